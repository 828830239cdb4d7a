// The parameters of models; the same for all builds.
#include "models.hpp"

namespace caloric {
namespace {

// A rotation by about the vector w (3,) of axis and angle: Cayley's formula.
Entries rotation(const double *w) {
  const double half[3] = {w[0] / 2, w[1] / 2, w[2] / 2};
  const Entries cross = cross_matrix(half), twice = multiply(cross, cross);
  const double factor = 2 / (1 + half[0] * half[0] + half[1] * half[1] + half[2] * half[2]);
  Entries result;
  for (int i = 0; i < ENTRIES; ++i) result[i] = (i % 4 == 0) + factor * (cross[i] + twice[i]);
  return result;
}

void cross_product(const double *a, const double *b, double *result) {
  for (int i = 0; i < 3; ++i) result[i] = a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3];
}

double normalize(double *v) {
  const double length = length_of(v, 3);
  for (int i = 0; i < 3; ++i) v[i] /= std::max(length, 1e-300);
  return length;
}

// Eigenvectors (rows, by descending eigenvalues) of a symmetric matrix (3, 3), by Jacobi rotations.
Entries eigenvectors(Entries a) {
  Entries vectors = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  for (int sweep = 0; sweep < 12; ++sweep)
    for (int p = 0; p < 2; ++p)
      for (int q = p + 1; q < 3; ++q) {
        const double off = a[3 * p + q];
        if (std::abs(off) < 1e-300) continue;
        const double theta = (a[4 * q] - a[4 * p]) / (2 * off);
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int k = 0; k < 3; ++k) {
          const double x = a[3 * k + p], y = a[3 * k + q];
          a[3 * k + p] = c * x - s * y;
          a[3 * k + q] = s * x + c * y;
        }
        for (int k = 0; k < 3; ++k) {
          const double x = a[3 * p + k], y = a[3 * q + k];
          a[3 * p + k] = c * x - s * y;
          a[3 * q + k] = s * x + c * y;
          const double v = vectors[3 * p + k], w = vectors[3 * q + k];
          vectors[3 * p + k] = c * v - s * w;
          vectors[3 * q + k] = s * v + c * w;
        }
      }
  for (int i = 0; i < 2; ++i)
    for (int j = i + 1; j < 3; ++j)
      if (a[4 * j] > a[4 * i]) {
        std::swap(a[4 * i], a[4 * j]);
        std::swap_ranges(&vectors[3 * i], &vectors[3 * i] + 3, &vectors[3 * j]);
      }
  return vectors;
}

// F = U diag(1, s, 0) Vt up to scale, with rotations or reflections U and Vt; returns s.
double decompose(const Entries &matrix, Entries &u, Entries &vt) {
  vt = eigenvectors(multiply(transposed(matrix), matrix));
  double columns[3][3], lengths[2];
  for (int k = 0; k < 2; ++k) {
    for (int i = 0; i < 3; ++i)
      columns[k][i] = matrix[3 * i] * vt[3 * k] + matrix[3 * i + 1] * vt[3 * k + 1] + matrix[3 * i + 2] * vt[3 * k + 2];
    if (k == 1) {  // orthogonal in spite of rounding
      double along = 0;
      for (int i = 0; i < 3; ++i) along += columns[0][i] * columns[1][i];
      for (int i = 0; i < 3; ++i) columns[1][i] -= along * columns[0][i];
    }
    lengths[k] = normalize(columns[k]);
  }
  if (!(lengths[1] > 1e-12 * lengths[0])) {  // of rank 1: any orthogonal vector
    const double axis[3] = {std::abs(columns[0][0]) < 0.6 ? 1.0 : 0.0, std::abs(columns[0][0]) < 0.6 ? 0.0 : 1.0, 0};
    cross_product(columns[0], axis, columns[1]);
    normalize(columns[1]);
    lengths[1] = 0;
  }
  cross_product(columns[0], columns[1], columns[2]);
  for (int i = 0; i < 3; ++i)
    for (int k = 0; k < 3; ++k) u[3 * i + k] = columns[k][i];
  return lengths[0] > 0 ? lengths[1] / lengths[0] : 0;
}

}  // namespace

Entries normalized(Entries matrix) {
  const double length = std::max(length_of(matrix.data(), ENTRIES), 1e-150);
  for (double &entry : matrix) entry /= length;
  return matrix;
}

bool solve(double *a, double *b, int n, int columns) {
  for (int k = 0; k < n; ++k) {
    int pivot = k;
    for (int i = k + 1; i < n; ++i)
      if (std::abs(a[n * i + k]) > std::abs(a[n * pivot + k])) pivot = i;
    if (!(std::abs(a[n * pivot + k]) > 0)) return false;
    if (pivot != k) {
      std::swap_ranges(a + n * k, a + n * k + n, a + n * pivot);
      std::swap_ranges(b + columns * k, b + columns * (k + 1), b + columns * pivot);
    }
    for (int i = k + 1; i < n; ++i) {
      const double factor = a[n * i + k] / a[n * k + k];
      for (int j = k + 1; j < n; ++j) a[n * i + j] -= factor * a[n * k + j];
      for (int c = 0; c < columns; ++c) b[columns * i + c] -= factor * b[columns * k + c];
    }
  }
  for (int i = n - 1; i >= 0; --i)
    for (int c = 0; c < columns; ++c) {
      for (int j = i + 1; j < n; ++j) b[columns * i + c] -= a[n * i + j] * b[columns * j + c];
      b[columns * i + c] /= a[n * i + i];
    }
  return true;
}

Model::Model(Kind kind, const Entries &matrix, const Cameras *cameras)
    : kind_(kind), cameras_(cameras), matrix_(kind == Kind::homography ? normalized(matrix) : matrix) {
  if (is_planar(kind)) return;
  const double s = decompose(matrix, u_, vt_);
  if (kind == Kind::fundamental) s_ = s;
}

Entries Model::matrix() const {
  return is_planar(kind_) ? matrix_ : multiply(multiply(u_, {1, 0, 0, 0, s_, 0, 0, 0, 0}), vt_);
}

Entries Model::of_residuals(const Entries &matrix) const {
  return kind_ == Kind::essential ? cameras_->of_residuals(matrix) : matrix;
}

Entries Model::change(int parameter) const {
  if (is_planar(kind_)) {
    Entries result{};
    result[parameter] = 1;
    return result;
  }
  // Generators of rotations times diag(1, s, 0), and with the opposite sign diag(1, s, 0) times generators.
  const double s = s_;
  const Entries middles[7] = {{0, 0, 0, 0, 0, 0, 0, s, 0},  {0, 0, 0, 0, 0, 0, -1, 0, 0}, {0, -s, 0, 1, 0, 0, 0, 0, 0},
                              {0, 0, 0, 0, 0, s, 0, 0, 0},  {0, 0, -1, 0, 0, 0, 0, 0, 0}, {0, 1, 0, -s, 0, 0, 0, 0, 0},
                              {0, 0, 0, 0, 1, 0, 0, 0, 0}};
  return multiply(multiply(u_, middles[parameter]), vt_);
}

void Model::move(const double *step) {
  if (is_planar(kind_)) {
    for (int i = 0; i < parameters(); ++i) matrix_[i] += step[i];
    if (kind_ == Kind::homography) matrix_ = normalized(matrix_);
    return;
  }
  double all[7] = {};
  std::copy(step, step + parameters(), all);
  u_ = multiply(u_, rotation(all));
  vt_ = multiply(transposed(rotation(all + 3)), vt_);
  s_ += all[6];
}

}  // namespace caloric
