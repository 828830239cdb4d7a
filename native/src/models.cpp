// The parameters of models; the same for all builds.
#include "models.hpp"

namespace caloric {
namespace {

// The rotation by a vector (3,) of axis and angle: Rodrigues' formula.
void to_rotation(const double *w, double *rotation) {
  const double square = w[0] * w[0] + w[1] * w[1] + w[2] * w[2], angle = std::sqrt(square);
  const double sine = angle > 1e-8 ? std::sin(angle) / angle : 1, half = std::sin(angle / 2);
  const double cosine = angle > 1e-8 ? 2 * half * half / square : 0.5;
  const double cross[9] = {0, -w[2], w[1], w[2], 0, -w[0], -w[1], w[0], 0};
  double twice[9];
  multiply(cross, cross, twice);
  for (int i = 0; i < 9; ++i) rotation[i] = (i % 4 == 0) + sine * cross[i] + cosine * twice[i];
}

void cross_product(const double *a, const double *b, double *result) {
  for (int i = 0; i < 3; ++i) result[i] = a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3];
}

double normalize(double *v) {
  const double length = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  for (int i = 0; i < 3; ++i) v[i] /= std::max(length, 1e-300);
  return length;
}

// Eigenvectors (rows, by descending eigenvalues) of a symmetric matrix (3, 3), by Jacobi rotations.
void eigenvectors(const double *symmetric, double *vectors) {
  double a[9];
  std::copy(symmetric, symmetric + 9, a);
  for (int i = 0; i < 9; ++i) vectors[i] = i % 4 == 0;
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
        std::swap_ranges(vectors + 3 * i, vectors + 3 * i + 3, vectors + 3 * j);
      }
}

// F = U diag(1, s, 0) Vt up to scale, with rotations or reflections U and Vt.
void decompose(const double *matrix, double *u, double *vt, double &s) {
  double transposed[9], product[9];
  transpose(matrix, transposed);
  multiply(transposed, matrix, product);
  eigenvectors(product, vt);
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
  s = lengths[0] > 0 ? lengths[1] / lengths[0] : 0;
}

void write_cross(const double *t, double *result) {
  const double cross[9] = {0, -t[2], t[1], t[2], 0, -t[0], -t[1], t[0], 0};
  std::copy(cross, cross + 9, result);
}

// Two unit vectors orthogonal to t.
void write_across(const double *t, double across[2][3]) {
  const int smallest = std::abs(t[0]) < std::abs(t[1]) ? (std::abs(t[0]) < std::abs(t[2]) ? 0 : 2)
                                                       : (std::abs(t[1]) < std::abs(t[2]) ? 1 : 2);
  double axis[3] = {};
  axis[smallest] = 1;
  cross_product(t, axis, across[0]);
  normalize(across[0]);
  cross_product(t, across[0], across[1]);
}

}  // namespace

bool solve(double *a, double *b, int n) {
  for (int k = 0; k < n; ++k) {
    int pivot = k;
    for (int i = k + 1; i < n; ++i)
      if (std::abs(a[n * i + k]) > std::abs(a[n * pivot + k])) pivot = i;
    if (!(std::abs(a[n * pivot + k]) > 0)) return false;
    if (pivot != k) {
      std::swap_ranges(a + n * k, a + n * k + n, a + n * pivot);
      std::swap(b[k], b[pivot]);
    }
    for (int i = k + 1; i < n; ++i) {
      const double factor = a[n * i + k] / a[n * k + k];
      for (int j = k + 1; j < n; ++j) a[n * i + j] -= factor * a[n * k + j];
      b[i] -= factor * b[k];
    }
  }
  for (int i = n - 1; i >= 0; --i) {
    for (int j = i + 1; j < n; ++j) b[i] -= a[n * i + j] * b[j];
    b[i] /= a[n * i + i];
  }
  return true;
}

Model::Model(Kind kind, const double *matrix, const Cameras *cameras) : kind_(kind), cameras_(cameras) {
  std::copy(matrix, matrix + 9, matrix_);
  if (kind == Kind::homography) {
    double square = 0;
    for (const double entry : matrix_) square += entry * entry;
    for (double &entry : matrix_) entry /= std::sqrt(std::max(square, 1e-300));
  } else if (!is_planar(kind)) {
    decompose(matrix, u_, vt_, s_);
    if (kind == Kind::essential) {  // R = U W Vt or U Wt Vt with a quarter turn W, t = u_3
      double trace = -4;
      for (const double sine : {1.0, -1.0}) {
        const double w[9] = {0, -sine, 0, sine, 0, 0, 0, 0, 1};
        double left[9], rotation[9];
        multiply(u_, w, left);
        multiply(left, vt_, rotation);
        const double sign = determinant(rotation) < 0 ? -1 : 1, sum = sign * (rotation[0] + rotation[4] + rotation[8]);
        if (sum <= trace) continue;
        trace = sum;
        for (int i = 0; i < 9; ++i) rotation_[i] = sign * rotation[i];
      }
      for (int i = 0; i < 3; ++i) t_[i] = u_[3 * i + 2];
    }
  }
}

void Model::to_units(double *matrix) const {
  if (kind_ != Kind::essential) return;
  double left[9], transposed[9];
  transpose(cameras_->inverse_b, transposed);
  multiply(transposed, matrix, left);
  multiply(left, cameras_->inverse_a, matrix);
}

void Model::write(double *matrix) const {
  if (is_planar(kind_)) {
    std::copy(matrix_, matrix_ + 9, matrix);
  } else if (kind_ == Kind::fundamental) {
    const double middle[9] = {1, 0, 0, 0, s_, 0, 0, 0, 0};
    double left[9];
    multiply(u_, middle, left);
    multiply(left, vt_, matrix);
  } else {
    double cross[9];
    write_cross(t_, cross);
    multiply(cross, rotation_, matrix);
  }
}

void Model::write_in_units(double *matrix) const {
  write(matrix);
  to_units(matrix);
}

void Model::write_own_changes(double *changes) const {
  if (is_planar(kind_)) {
    for (int i = 0; i < parameters(); ++i)
      for (int j = 0; j < ENTRIES; ++j) changes[ENTRIES * i + j] = i == j;
  } else if (kind_ == Kind::fundamental) {
    // Generators of rotations times diag(1, s, 0), and with the opposite sign diag(1, s, 0) times generators.
    const double s = s_;
    const double middles[7][9] = {{0, 0, 0, 0, 0, 0, 0, s, 0},  {0, 0, 0, 0, 0, 0, -1, 0, 0},
                                  {0, -s, 0, 1, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, s, 0, 0, 0},
                                  {0, 0, -1, 0, 0, 0, 0, 0, 0}, {0, 1, 0, -s, 0, 0, 0, 0, 0},
                                  {0, 0, 0, 0, 1, 0, 0, 0, 0}};
    double left[9];
    for (int i = 0; i < 7; ++i) {
      multiply(u_, middles[i], left);
      multiply(left, vt_, changes + ENTRIES * i);
    }
  } else {
    const double generators[3][9] = {
        {0, 0, 0, 0, 0, -1, 0, 1, 0}, {0, 0, 1, 0, 0, 0, -1, 0, 0}, {0, -1, 0, 1, 0, 0, 0, 0, 0}};
    double cross[9], left[9], across[2][3];
    write_cross(t_, cross);
    write_across(t_, across);
    for (int i = 0; i < 5; ++i) {
      if (i < 3)
        multiply(cross, generators[i], left);
      else
        write_cross(across[i - 3], left);
      multiply(left, rotation_, changes + ENTRIES * i);
    }
  }
}

void Model::write_changes(double *changes) const {
  write_own_changes(changes);
  for (int i = 0; i < parameters(); ++i) to_units(changes + ENTRIES * i);
}

void Model::move(const double *step) {
  double rotation[9], product[9];
  if (is_planar(kind_)) {
    for (int i = 0; i < parameters(); ++i) matrix_[i] += step[i];
    if (kind_ == Kind::affine) return;
    double square = 0;
    for (const double entry : matrix_) square += entry * entry;
    for (double &entry : matrix_) entry /= std::sqrt(square);
  } else if (kind_ == Kind::fundamental) {
    double transposed[9];
    to_rotation(step, rotation);
    multiply(u_, rotation, product);
    std::copy(product, product + 9, u_);
    to_rotation(step + 3, rotation);
    transpose(rotation, transposed);
    multiply(transposed, vt_, product);
    std::copy(product, product + 9, vt_);
    s_ += step[6];
  } else {
    double across[2][3];
    write_across(t_, across);
    to_rotation(step, rotation);
    multiply(rotation, rotation_, product);
    std::copy(product, product + 9, rotation_);
    for (int i = 0; i < 3; ++i) t_[i] += step[3] * across[0][i] + step[4] * across[1][i];
    normalize(t_);
  }
}

}  // namespace caloric
