// Matrices (2, 2), with the formulas of caloric.frames.
#pragma once
#include <algorithm>
#include <cmath>

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
  // The sum and the difference of the singular values.
  void singular_values(double &sum, double &difference) const {
    const double squares = a * a + b * b + c * c + d * d, area = 2 * std::abs(determinant());
    sum = std::sqrt(squares + area);
    difference = std::sqrt(std::max(squares - area, 0.0));
  }
  Matrix2 operator*(const Matrix2 &o) const {
    return {a * o.a + b * o.c, a * o.b + b * o.d, c * o.a + d * o.c, c * o.b + d * o.d};
  }
};

}  // namespace caloric
