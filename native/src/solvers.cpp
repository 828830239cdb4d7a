// Models of minimal samples; the same for all builds.
#include "estimation.hpp"

namespace caloric {
namespace {

// Reduces rows (count, 9) by elimination with full pivoting, and writes the basis (9 - count, 9) of their null space;
// returns false if they are dependent.
bool write_null_space(double *rows, int count, double *basis) {
  int order[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (int k = 0; k < count; ++k) {
    int row = k, column = k;
    double largest = 0;
    for (int i = k; i < count; ++i)
      for (int j = k; j < 9; ++j)
        if (std::abs(rows[9 * i + order[j]]) > largest) {
          largest = std::abs(rows[9 * i + order[j]]);
          row = i;
          column = j;
        }
    if (!(largest > 1e-10)) return false;
    std::swap_ranges(rows + 9 * k, rows + 9 * k + 9, rows + 9 * row);
    std::swap(order[k], order[column]);
    const double pivot = rows[9 * k + order[k]];
    for (int j = k; j < 9; ++j) rows[9 * k + order[j]] /= pivot;
    for (int i = 0; i < count; ++i) {
      if (i == k) continue;
      const double factor = rows[9 * i + order[k]];
      for (int j = k; j < 9; ++j) rows[9 * i + order[j]] -= factor * rows[9 * k + order[j]];
    }
  }
  for (int f = count; f < 9; ++f) {
    double *vector = basis + 9 * (f - count);
    std::fill(vector, vector + 9, 0.0);
    vector[order[f]] = 1;
    for (int k = 0; k < count; ++k) vector[order[k]] = -rows[9 * k + order[f]];
  }
  return true;
}

// Writes the real roots of c3 t^3 + c2 t^2 + c1 t + c0; returns their number.
int write_cubic_roots(double c3, double c2, double c1, double c0, double *roots) {
  const double scale = std::max({std::abs(c3), std::abs(c2), std::abs(c1), std::abs(c0)});
  if (!(std::abs(c3) > 1e-12 * scale)) return 0;
  const double a = c2 / c3, b = c1 / c3, c = c0 / c3, q = (a * a - 3 * b) / 9;
  const double r = (2 * a * a * a - 9 * a * b + 27 * c) / 54, under = q * q * q - r * r;
  if (under > 0) {
    const double angle = std::acos(std::min(std::max(r / std::sqrt(q * q * q), -1.0), 1.0)), turn = 2 * std::acos(-1.0);
    for (int k = 0; k < 3; ++k) roots[k] = -2 * std::sqrt(q) * std::cos((angle + turn * k) / 3) - a / 3;
    return 3;
  }
  const double s = (r < 0 ? 1 : -1) * std::cbrt(std::abs(r) + std::sqrt(-under));
  roots[0] = s + (s == 0 ? 0 : q / s) - a / 3;
  return 1;
}

}  // namespace

Solver::Solver(const MatchedPoints &matches, Kind kind, const Cameras *cameras)
    : matches_(matches), kind_(kind), cameras_(cameras) {}

void Solver::append(const i64 *sample, int size, bool by_frames, const Entries *best, std::vector<Entries> &models) const {
  if (is_planar(kind_))
    append_plane(sample, size, by_frames, models);
  else if (kind_ == Kind::fundamental)
    append_fundamental(sample, size, by_frames, models);
  else
    append_essential(sample, size, by_frames, best, models);
}

// Least squares of the entries of a homography or an affine map whose last is 1: two equations of each point, and four
// of each local map.
void Solver::append_plane(const i64 *sample, int size, bool by_frames, std::vector<Entries> &models) const {
  const int unknowns = kind_ == Kind::homography ? 8 : 6;
  double squares[64] = {}, right[8] = {};
  const auto add = [&](const double *row) {
    for (int i = 0; i < unknowns; ++i) {
      for (int j = 0; j < unknowns; ++j) squares[unknowns * i + j] += row[i] * row[j];
      right[i] -= row[i] * row[8];
    }
  };
  for (int k = 0; k < size; ++k) {
    const i64 m = sample[k];
    const double x[3] = {matches_.x[2 * m], matches_.x[2 * m + 1], 1}, *y = matches_.y + 2 * m;
    for (int i = 0; i < 2; ++i) {
      double row[9] = {};
      for (int j = 0; j < 3; ++j) {
        row[3 * i + j] = x[j];
        row[6 + j] = -y[i] * x[j];
      }
      add(row);
      if (!by_frames) continue;
      for (int j = 0; j < 2; ++j) {
        const double slope = matches_.local[4 * m + 2 * i + j], reach = matches_.reach[m];
        double derivative[9] = {};
        derivative[3 * i + j] = reach;
        for (int c = 0; c < 3; ++c) derivative[6 + c] = -reach * slope * x[c];
        derivative[6 + j] -= reach * y[i];
        add(derivative);
      }
    }
  }
  if (!solve(squares, right, unknowns)) return;
  Entries matrix = {0, 0, 0, 0, 0, 0, 0, 0, 1};
  std::copy(right, right + unknowns, matrix.begin());
  models.push_back(matrix);
}

// Writes at most `limit` equations (., 9) of F: one of each point, after those two of each local map, in the order of
// the sample but with the points first; returns their number.
int Solver::write_epipolar_rows(const i64 *sample, int size, bool by_frames, int limit, double *rows) const {
  int used = 0;
  for (int k = 0; k < size && used < limit; ++k, ++used) {
    const double *x = matches_.x + 2 * sample[k], *y = matches_.y + 2 * sample[k];
    const double row[9] = {y[0] * x[0], y[0] * x[1], y[0], y[1] * x[0], y[1] * x[1], y[1], x[0], x[1], 1};
    std::copy(row, row + 9, rows + 9 * used);
  }
  for (int k = 0; k < size && by_frames; ++k)
    for (int j = 0; j < 2 && used < limit; ++j, ++used) {
      const i64 m = sample[k];
      const double x[3] = {matches_.x[2 * m], matches_.x[2 * m + 1], 1};
      const double y[3] = {matches_.y[2 * m], matches_.y[2 * m + 1], 1}, *local = matches_.local + 4 * m;
      for (int i = 0; i < 3; ++i)
        for (int c = 0; c < 3; ++c)
          rows[9 * used + 3 * i + c] =
              matches_.reach[m] * ((c == j ? y[i] : 0) + (i < 2 ? local[2 * i + j] * x[c] : 0));
    }
  return used;
}

// Seven equations: F = t A + B with determinant 0.
void Solver::append_fundamental(const i64 *sample, int size, bool by_frames, std::vector<Entries> &models) const {
  double rows[63], basis[18];
  if (write_epipolar_rows(sample, size, by_frames, 7, rows) < 7 || !write_null_space(rows, 7, basis)) return;
  const double *a = basis, *b = basis + 9;
  // The determinant of t a + b at four values of t gives its coefficients.
  double values[4], mixed[9], roots[3];
  const double at[4] = {0, 1, -1, 2};
  for (int k = 0; k < 4; ++k) {
    for (int i = 0; i < 9; ++i) mixed[i] = at[k] * a[i] + b[i];
    values[k] = determinant(mixed);
  }
  const double c0 = values[0], c2 = (values[1] + values[2]) / 2 - c0, odd = (values[1] - values[2]) / 2;
  const double c3 = (values[3] - 4 * c2 - 2 * odd - c0) / 6, c1 = odd - c3;
  const int count = write_cubic_roots(c3, c2, c1, c0, roots);
  for (int k = 0; k < count; ++k) {
    Entries matrix;
    double square = 0;
    for (int i = 0; i < 9; ++i) {
      matrix[i] = roots[k] * a[i] + b[i];
      square += matrix[i] * matrix[i];
    }
    for (double &entry : matrix) entry /= std::sqrt(square);
    models.push_back(matrix);
  }
}

void Solver::append_parallax(const i64 *sample, const Entries &plane, std::vector<Entries> &models) const {
  double lines[2][3];
  for (int k = 0; k < 2; ++k) {
    const double *x = matches_.x + 2 * sample[k], *y = matches_.y + 2 * sample[k];
    double mapped[3];
    for (int i = 0; i < 3; ++i) mapped[i] = plane[3 * i] * x[0] + plane[3 * i + 1] * x[1] + plane[3 * i + 2];
    lines[k][0] = mapped[1] - mapped[2] * y[1];
    lines[k][1] = mapped[2] * y[0] - mapped[0];
    lines[k][2] = mapped[0] * y[1] - mapped[1] * y[0];
  }
  const double *a = lines[0], *b = lines[1];
  const Entries matrix =
      through(plane, {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]});
  if (std::isfinite(matrix[0])) models.push_back(matrix);
}

// Undefined if the epipole is.
Entries Solver::through(const Entries &plane, const std::array<double, 3> &e) const {
  const double cross[9] = {0, -e[2], e[1], e[2], 0, -e[0], -e[1], e[0], 0};
  Entries matrix;
  multiply(cross, plane.data(), matrix.data());
  double square = 0;
  for (const double entry : matrix) square += entry * entry;
  for (double &entry : matrix) entry /= std::sqrt(square);
  if (kind_ == Kind::essential) {
    double left[9], transposed[9];
    transpose(cameras_->b, transposed);
    multiply(transposed, matrix.data(), left);
    multiply(left, cameras_->a, matrix.data());
  }
  return matrix;
}

// Gauss-Newton steps to a zero of five equations, from the best model so far and from a rotation about the
// optical axis with a translation along an axis.
void Solver::append_essential(const i64 *sample, int size, bool by_frames, const Entries *best, std::vector<Entries> &models) const {
  double rows[9 * 9];
  const int count = write_epipolar_rows(sample, size, by_frames, 5, rows);
  if (count < 5) return;
  for (int i = 0; i < count; ++i) {  // of unit length
    double square = 0;
    for (int j = 0; j < 9; ++j) square += rows[9 * i + j] * rows[9 * i + j];
    for (int j = 0; j < 9; ++j) rows[9 * i + j] /= std::sqrt(std::max(square, 1e-300));
  }
  for (int start = best ? -1 : 0; start < 3; ++start) {
    Entries first;
    if (start < 0) {
      first = *best;
    } else {
      double cosine = 1, sine = 0;
      if (matches_.local) {  // the rotation of the first local map
        const double *l = matches_.local + 4 * sample[0];
        const double length = std::hypot(l[0] + l[3], l[2] - l[1]);
        if (length > 0) cosine = (l[0] + l[3]) / length, sine = (l[2] - l[1]) / length;
      } else {
        const int quarter = (int)(sample[0] % 4);
        cosine = quarter == 0 ? 1 : quarter == 2 ? -1 : 0;
        sine = quarter == 1 ? 1 : quarter == 3 ? -1 : 0;
      }
      const double rotation[9] = {cosine, -sine, 0, sine, cosine, 0, 0, 0, 1};
      const double axes[3][9] = {
          {0, 0, 0, 0, 0, -1, 0, 1, 0}, {0, 0, 1, 0, 0, 0, -1, 0, 0}, {0, -1, 0, 1, 0, 0, 0, 0, 0}};
      multiply(axes[start], rotation, first.data());
    }
    Model model(kind_, first.data(), cameras_);
    for (int iteration = 0; iteration < 8; ++iteration) {
      double matrix[9], changes[45], squares[25] = {}, step[5] = {}, sum = 0, norm = 0;
      model.write_in_units(matrix);
      model.write_changes(changes);
      for (int k = 0; k < 9; ++k) norm += matrix[k] * matrix[k];
      for (int i = 0; i < count; ++i) {
        double value = 0, slopes[5] = {};
        for (int k = 0; k < 9; ++k) {
          value += rows[9 * i + k] * matrix[k];
          for (int j = 0; j < 5; ++j) slopes[j] += rows[9 * i + k] * changes[9 * j + k];
        }
        sum += value * value;
        for (int j = 0; j < 5; ++j) {
          step[j] -= slopes[j] * value;
          for (int k = 0; k < 5; ++k) squares[5 * j + k] += slopes[j] * slopes[k];
        }
      }
      double trace = 0;
      for (int j = 0; j < 5; ++j) trace += squares[6 * j];
      for (int j = 0; j < 5; ++j) squares[6 * j] += 1e-9 * trace;
      if (!solve(squares, step, 5)) break;
      double largest = 0;
      for (const double change : step) largest = std::max(largest, std::abs(change));
      if (!(largest < 1e6)) break;
      if (largest > 0.5)
        for (double &change : step) change *= 0.5 / largest;
      model.move(step);
      if (largest < 1e-4 && (count > 5 || sum < 1e-8 * norm)) {
        Entries matrix_of_model;
        model.write(matrix_of_model.data());
        models.push_back(matrix_of_model);
        break;
      }
    }
  }
}

}  // namespace caloric
