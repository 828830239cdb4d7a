// Models of two-view geometry: parameters, residuals, and the normal equations of their fits.
// caloric.matching.models has the formulas.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>

namespace caloric {

constexpr int ENTRIES = 9;  // of a matrix, and the largest number of parameters
using Entries = std::array<double, ENTRIES>;

enum class Kind { homography, affine, fundamental, essential };

inline bool is_planar(Kind kind) { return kind == Kind::homography || kind == Kind::affine; }

inline void multiply(const double *a, const double *b, double *result) {
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) result[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
}

inline void transpose(const double *a, double *result) {
  for (int i = 0; i < 9; ++i) result[i] = a[3 * (i % 3) + i / 3];
}

inline double determinant(const double *m) {
  return m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
}

// Solves a x = b in place by elimination with pivoting; returns false if a (n, n) is singular.
bool solve(double *a, double *b, int n);

// The residual of a match with a homography, mapped - y, in the metric (a, b; b, c).
struct PlaneResidual {
  double inverse_depth, u, v, ru, rv, a, b, c;

  PlaneResidual(const double *h, const double *x, const double *y) {
    constexpr double EPSILON = 1e-12;
    const double z = h[6] * x[0] + h[7] * x[1] + h[8];
    inverse_depth = 1 / (std::abs(z) > EPSILON ? z : EPSILON);
    u = (h[0] * x[0] + h[1] * x[1] + h[2]) * inverse_depth;
    v = (h[3] * x[0] + h[4] * x[1] + h[5]) * inverse_depth;
    ru = u - y[0];
    rv = v - y[1];
    const double xx = (h[0] - u * h[6]) * inverse_depth, xy = (h[1] - u * h[7]) * inverse_depth;
    const double yx = (h[3] - v * h[6]) * inverse_depth, yy = (h[4] - v * h[7]) * inverse_depth;
    const double p = 1 + xx * xx + xy * xy, q = xx * yx + xy * yy, r = 1 + yx * yx + yy * yy;
    const double factor = 1 / (p * r - q * q);
    a = factor * r;
    b = -factor * q;
    c = factor * p;
  }

  double square() const { return a * ru * ru + 2 * b * ru * rv + c * rv * rv; }
};

// Sums of the normal equations. The Hessian consists of 3 x 3 blocks, each the sum of a factor of the two rows of the
// homography times the products of the coordinates of a point.
class PlaneSums {
 public:
  void add(double weight, const PlaneResidual &residual, const double *x, const double *) {
    const double a = weight * residual.a, b = weight * residual.b, c = weight * residual.c;
    const double u = residual.u, v = residual.v, au = a * u + b * v, bv = b * u + c * v;
    const double gu = a * residual.ru + b * residual.rv, gv = b * residual.ru + c * residual.rv;
    const double t = residual.inverse_depth, r = x[0] * t, s = x[1] * t;
    const double factors[6] = {a, b, c, -au, -bv, au * u + bv * v}, slopes[3] = {gu, gv, -u * gu - v * gv};
    const double products[6] = {r * r, r * s, r * t, s * s, s * t, t * t}, ratio[3] = {r, s, t};
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) blocks_[6 * i + j] += factors[i] * products[j];
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) gradient_[3 * i + j] += slopes[i] * ratio[j];
  }

  void write(double *hessian, double *gradient) const {
    const int block[3][3] = {{0, 1, 3}, {1, 2, 4}, {3, 4, 5}}, product[3][3] = {{0, 1, 2}, {1, 3, 4}, {2, 4, 5}};
    for (int i = 0; i < 9; ++i)
      for (int j = 0; j < 9; ++j) hessian[9 * i + j] = blocks_[6 * block[i / 3][j / 3] + product[i % 3][j % 3]];
    std::copy(gradient_, gradient_ + 9, gradient);
  }

 private:
  double blocks_[36] = {}, gradient_[9] = {};
};

// Sampson's distance of a match from an epipolar geometry.
struct LineResidual {
  double b[3], a[3], inverse_length, distance;

  LineResidual(const double *f, const double *x, const double *y) {
    for (int i = 0; i < 3; ++i) {
      b[i] = f[3 * i] * x[0] + f[3 * i + 1] * x[1] + f[3 * i + 2];
      a[i] = f[i] * y[0] + f[3 + i] * y[1] + f[6 + i];
    }
    inverse_length = 1 / std::sqrt(std::max(b[0] * b[0] + b[1] * b[1] + a[0] * a[0] + a[1] * a[1], 1e-300));
    distance = (y[0] * b[0] + y[1] * b[1] + b[2]) * inverse_length;
  }

  double square() const { return distance * distance; }
};

class LineSums {
 public:
  void add(double weight, const LineResidual &residual, const double *x, const double *y) {
    const double p[3] = {x[0], x[1], 1}, q[3] = {y[0], y[1], 1}, ratio = residual.distance * residual.inverse_length;
    const double nb[3] = {residual.b[0], residual.b[1], 0}, na[3] = {residual.a[0], residual.a[1], 0};
    double slopes[9];
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        slopes[3 * i + j] = (q[i] * p[j] - ratio * (nb[i] * p[j] + q[i] * na[j])) * residual.inverse_length;
    for (int i = 0; i < 9; ++i) {
      const double factor = weight * slopes[i];
      gradient_[i] += factor * residual.distance;
      for (int j = i; j < 9; ++j) hessian_[9 * i + j] += factor * slopes[j];
    }
  }

  void write(double *hessian, double *gradient) const {
    for (int i = 0; i < 9; ++i)
      for (int j = 0; j < 9; ++j) hessian[9 * i + j] = hessian_[9 * std::min(i, j) + std::max(i, j)];
    std::copy(gradient_, gradient_ + 9, gradient);
  }

 private:
  double hessian_[81] = {}, gradient_[9] = {};
};

// Calibration matrices (3, 3) of both images and their inverses.
struct Cameras {
  double a[9], b[9], inverse_a[9], inverse_b[9];
};

// A model with its parameters: the nine entries of a homography, the first six of an affine map; rotations of U and V
// and s of F = U diag(1, s, 0) Vt; a rotation of R and two changes of the direction t of E = [t]x R.
class Model {
 public:
  // `matrix` is that of residuals; for an essential matrix it is E.
  Model(Kind kind, const double *matrix, const Cameras *cameras);

  int parameters() const {
    return kind_ == Kind::homography ? 9 : kind_ == Kind::affine ? 6 : kind_ == Kind::fundamental ? 7 : 5;
  }
  // Writes the matrix of the model (3, 3), and that of its residuals.
  void write(double *matrix) const;
  void write_in_units(double *matrix) const;
  // Writes the derivatives (parameters, 3, 3) of either matrix.
  void write_own_changes(double *changes) const;
  void write_changes(double *changes) const;
  void move(const double *step);

 private:
  void to_units(double *matrix) const;

  Kind kind_;
  const Cameras *cameras_;
  double matrix_[9];             // of a homography or an affine map
  double u_[9], vt_[9], s_ = 0;  // of a fundamental matrix
  double rotation_[9], t_[3];    // of an essential matrix
};

}  // namespace caloric
