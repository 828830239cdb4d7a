// Matrices (2, 2), with the formulas of caloric.frames.
#pragma once

namespace caloric {

struct Matrix2 {
  double a, b, c, d;

  // The linear part of a frame (2, 3).
  static Matrix2 of_frame(const double *frame) { return {frame[0], frame[1], frame[3], frame[4]}; }
  double determinant() const { return a * d - b * c; }
  Matrix2 transposed() const { return {a, c, b, d}; }
  Matrix2 inverse() const {
    const double divisor = determinant();
    return {d / divisor, -b / divisor, -c / divisor, a / divisor};
  }
  Matrix2 operator*(const Matrix2 &o) const {
    return {a * o.a + b * o.c, a * o.b + b * o.d, c * o.a + d * o.c, c * o.b + d * o.d};
  }
};

}  // namespace caloric
