// Models of minimal samples; the same for all builds.
#include "estimation.hpp"
#include "matrices.hpp"

namespace caloric {
namespace {

constexpr int SEVEN = 7, FIVE = 5;  // equations of a fundamental and of an essential matrix
constexpr int STEPS = 8;            // to an essential matrix

// Reduces seven rows by elimination with full pivoting, and writes the basis of their null space; returns false if they
// are dependent.
bool write_null_space(Entries *rows, Entries *basis) {
  int order[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (int k = 0; k < SEVEN; ++k) {
    int row = k, column = k;
    double largest = 0;
    for (int i = k; i < SEVEN; ++i)
      for (int j = k; j < 9; ++j)
        if (std::abs(rows[i][order[j]]) > largest) {
          largest = std::abs(rows[i][order[j]]);
          row = i;
          column = j;
        }
    if (!(largest > 1e-10)) return false;
    std::swap(rows[k], rows[row]);
    std::swap(order[k], order[column]);
    const double pivot = rows[k][order[k]];
    for (int j = k; j < 9; ++j) rows[k][order[j]] /= pivot;
    for (int i = 0; i < SEVEN; ++i) {
      if (i == k) continue;
      const double factor = rows[i][order[k]];
      for (int j = k; j < 9; ++j) rows[i][order[j]] -= factor * rows[k][order[j]];
    }
  }
  for (int f = SEVEN; f < 9; ++f) {
    Entries &vector = basis[f - SEVEN];
    vector.fill(0);
    vector[order[f]] = 1;
    for (int k = 0; k < SEVEN; ++k) vector[order[k]] = -rows[k][order[f]];
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

LocalMap Solver::local_map(i64 match) const {
  const Matrix2 a = Matrix2::of_frame(matches_.first + 6 * match), b = Matrix2::of_frame(matches_.second + 6 * match);
  const Matrix2 map = b * a.inverse();
  return {{map.a, map.b, map.c, map.d}, matches_.reach * std::sqrt(std::abs(a.determinant())) / matches_.scale};
}

void Solver::append(const i64 *sample, int size, bool by_frames, const Entries *best,
                    std::vector<Entries> &models) const {
  if (is_planar(kind_)) return append_plane(sample, size, by_frames, models);
  const int needed = kind_ == Kind::fundamental ? SEVEN : FIVE;
  Entries rows[SEVEN];
  if (write_epipolar_rows(sample, size, by_frames, needed, rows) < needed) return;
  if (kind_ == Kind::fundamental)
    append_fundamental(rows, models);
  else
    append_essential(rows, sample[0], best, models);
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
      const LocalMap local = local_map(m);
      for (int j = 0; j < 2; ++j) {
        const double slope = local.map[2 * i + j], reach = local.reach;
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

// Writes at most `limit` equations of F: one of each point, then two of each local map; returns their number.
int Solver::write_epipolar_rows(const i64 *sample, int size, bool by_frames, int limit, Entries *rows) const {
  int used = 0;
  for (int k = 0; k < size && used < limit; ++k, ++used) {
    const double *x = matches_.x + 2 * sample[k], *y = matches_.y + 2 * sample[k];
    rows[used] = {y[0] * x[0], y[0] * x[1], y[0], y[1] * x[0], y[1] * x[1], y[1], x[0], x[1], 1};
  }
  for (int k = 0; k < size && by_frames; ++k)
    for (int j = 0; j < 2 && used < limit; ++j, ++used) {
      const i64 m = sample[k];
      const double x[3] = {matches_.x[2 * m], matches_.x[2 * m + 1], 1};
      const double y[3] = {matches_.y[2 * m], matches_.y[2 * m + 1], 1};
      const LocalMap local = local_map(m);
      for (int i = 0; i < 3; ++i)
        for (int c = 0; c < 3; ++c)
          rows[used][3 * i + c] = local.reach * ((c == j ? y[i] : 0) + (i < 2 ? local.map[2 * i + j] * x[c] : 0));
    }
  return used;
}

// F = t A + B with determinant 0, for the null space of seven equations.
void Solver::append_fundamental(Entries *rows, std::vector<Entries> &models) const {
  Entries basis[2];
  if (!write_null_space(rows, basis)) return;
  const auto mixed = [&](double t) {
    Entries result;
    for (int i = 0; i < ENTRIES; ++i) result[i] = t * basis[0][i] + basis[1][i];
    return result;
  };
  // The determinant at four values of t gives its coefficients.
  const double c0 = determinant(basis[1]), one = determinant(mixed(1)), minus = determinant(mixed(-1));
  const double c2 = (one + minus) / 2 - c0, odd = (one - minus) / 2;
  const double c3 = (determinant(mixed(2)) - 4 * c2 - 2 * odd - c0) / 6, c1 = odd - c3;
  double roots[3];
  const int count = write_cubic_roots(c3, c2, c1, c0, roots);
  for (int k = 0; k < count; ++k) models.push_back(normalized(mixed(roots[k])));
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
  const double epipole[3] = {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
  if (epipole[0] != 0 || epipole[1] != 0 || epipole[2] != 0) models.push_back(through(plane, epipole));
}

Entries Solver::through(const Entries &plane, const double *epipole) const {
  const Entries matrix = normalized(multiply(cross_matrix(epipole), plane));
  if (kind_ != Kind::essential) return matrix;
  return Model(kind_, multiply(multiply(transposed(cameras_->b), matrix), cameras_->a), cameras_).matrix();
}

// Newton steps to zeros of five equations, from the best model so far and from a rotation about the optical axis with a
// translation along an axis.
void Solver::append_essential(Entries *rows, i64 first, const Entries *best, std::vector<Entries> &models) const {
  for (int i = 0; i < FIVE; ++i)  // equations of E
    rows[i] = normalized(multiply(multiply(cameras_->inverse_b, rows[i]), transposed(cameras_->inverse_a)));
  double cosine = first % 2 == 0 ? 1 - (double)(first % 4) : 0, sine = first % 2 == 0 ? 0 : 2 - (double)(first % 4);
  if (matches_.first) {  // the rotation of the first local map
    const LocalMap local = local_map(first);
    const double *l = local.map;
    const double length = std::max(std::hypot(l[0] + l[3], l[2] - l[1]), 1e-300);
    cosine = (l[0] + l[3]) / length, sine = (l[2] - l[1]) / length;
  }
  const Entries rotation = {cosine, -sine, 0, sine, cosine, 0, 0, 0, 1};
  for (int start = best ? -1 : 0; start < 3; ++start) {
    const double axis[3] = {start == 0 ? 1.0 : 0.0, start == 1 ? 1.0 : 0.0, start == 2 ? 1.0 : 0.0};
    Model model(kind_, start < 0 ? *best : multiply(cross_matrix(axis), rotation), cameras_);
    for (int iteration = 0; iteration < STEPS; ++iteration) {
      double slopes[FIVE * FIVE], step[FIVE], sum = 0;
      const Entries ut = transposed(model.u()), v = transposed(model.vt());
      for (int i = 0; i < FIVE; ++i) {
        // <row, U M Vt> = <b, M>, for the matrix of the model and its derivatives
        const Entries b = multiply(multiply(ut, rows[i]), v);
        const double row[FIVE] = {b[7], -b[6], b[3] - b[1], b[5], -b[2]}, value = b[0] + b[4];
        std::copy(row, row + FIVE, slopes + FIVE * i);
        step[i] = -value;
        sum += value * value;
      }
      if (!solve(slopes, step, FIVE)) break;
      const double length = length_of(step, FIVE);
      if (!(length < 1e6)) break;
      for (double &change : step) change *= std::min(1.0, 0.5 / std::max(length, 1e-300));
      model.move(step);
      if (length < 1e-4 && sum < 1e-8) {
        models.push_back(model.matrix());
        break;
      }
    }
  }
}

}  // namespace caloric
