// Models of two-view geometry and their parameters. caloric.matching.models has the formulas.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>

#include "fits.hpp"

namespace caloric {

enum class Kind { homography, affine, fundamental, essential };

inline bool is_planar(Kind kind) { return kind == Kind::homography || kind == Kind::affine; }

inline Entries multiply(const Entries &a, const Entries &b) {
  Entries result;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) result[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
  return result;
}

inline Entries transposed(const Entries &a) { return {a[0], a[3], a[6], a[1], a[4], a[7], a[2], a[5], a[8]}; }

inline double determinant(const Entries &m) {
  return m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
}

inline Entries cross_matrix(const double *t) { return {0, -t[2], t[1], t[2], 0, -t[0], -t[1], t[0], 0}; }

inline double length_of(const double *v, int n) {
  double square = 0;
  for (int i = 0; i < n; ++i) square += v[i] * v[i];
  return std::sqrt(square);
}

// Returns the matrix divided by the root of the sum of its squares.
Entries normalized(Entries matrix);

// Solves a x = b for each column of b (n, columns) in place, by elimination with pivoting; returns false if a (n, n) is
// singular.
bool solve(double *a, double *b, int n, int columns = 1);

// Calibration matrices (3, 3) of both images and their inverses.
struct Cameras {
  Entries a, b, inverse_a, inverse_b;

  // Returns the matrix of residuals of an essential matrix, or of a derivative of it.
  Entries of_residuals(const Entries &matrix) const {
    return multiply(multiply(transposed(inverse_b), matrix), inverse_a);
  }
};

// A model with its parameters: the nine entries of a homography, the first six of an affine map; rotations of U and V
// and s of F = U diag(1, s, 0) Vt. For an essential matrix s is 1, and U and V rotate about z by the same angle.
class Model {
 public:
  Model(Kind kind, const Entries &matrix, const Cameras *cameras);

  int parameters() const {
    return kind_ == Kind::homography ? 9 : kind_ == Kind::affine ? 6 : kind_ == Kind::fundamental ? 7 : 5;
  }
  Entries matrix() const;
  // Returns the matrix of residuals, for this matrix or a derivative of it.
  Entries of_residuals(const Entries &matrix) const;
  // Returns the derivative of the matrix by a parameter.
  Entries change(int parameter) const;
  void move(const double *step);
  // U and Vt of an epipolar geometry.
  const Entries &u() const { return u_; }
  const Entries &vt() const { return vt_; }

 private:
  Kind kind_;
  const Cameras *cameras_;
  Entries matrix_;  // of a homography or an affine map
  Entries u_, vt_;
  double s_ = 1;
};

}  // namespace caloric
