// The fit of a two-view geometry by Gauss-Newton steps; the same for all builds. caloric.matching.fitting has the
// formulas, caloric.matching.models the parameters of the models.
#include <algorithm>
#include <cmath>

#include "kernels.hpp"

namespace caloric {
namespace {

constexpr int ENTRIES = 9;  // of a matrix, and the largest number of parameters

void multiply(const double *a, const double *b, double *result) {
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) result[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
}

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

// A homography, by its nine entries with norm 1, or an affine map, by the first six.
class Entries {
 public:
  Entries(const double *state, int parameters) : parameters_(parameters) { std::copy(state, state + ENTRIES, matrix_); }

  int parameters() const { return parameters_; }
  void write(double *matrix) const { std::copy(matrix_, matrix_ + ENTRIES, matrix); }

  void write_changes(double *changes) const {
    for (int i = 0; i < parameters_; ++i)
      for (int j = 0; j < ENTRIES; ++j) changes[ENTRIES * i + j] = i == j;
  }

  void move(const double *step) {
    for (int i = 0; i < parameters_; ++i) matrix_[i] += step[i];
    if (parameters_ < ENTRIES) return;
    double square = 0;
    for (const double entry : matrix_) square += entry * entry;
    for (double &entry : matrix_) entry /= std::sqrt(square);
  }

 private:
  double matrix_[ENTRIES];
  int parameters_;
};

// F = U diag(1, s, 0) Vt, by rotations of U and V, and s.
class Fundamental {
 public:
  explicit Fundamental(const double *state) : s_(state[18]) {
    std::copy(state, state + 9, u_);
    std::copy(state + 9, state + 18, vt_);
  }

  int parameters() const { return 7; }

  void write(double *matrix) const {
    const double middle[9] = {1, 0, 0, 0, s_, 0, 0, 0, 0};
    write_product(middle, matrix);
  }

  void write_changes(double *changes) const {
    // Generators of rotations times diag(1, s, 0), and with the opposite sign diag(1, s, 0) times generators.
    const double s = s_;
    const double middles[7][9] = {{0, 0, 0, 0, 0, 0, 0, s, 0},  {0, 0, 0, 0, 0, 0, -1, 0, 0},
                                  {0, -s, 0, 1, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, s, 0, 0, 0},
                                  {0, 0, -1, 0, 0, 0, 0, 0, 0}, {0, 1, 0, -s, 0, 0, 0, 0, 0},
                                  {0, 0, 0, 0, 1, 0, 0, 0, 0}};
    for (int i = 0; i < 7; ++i) write_product(middles[i], changes + ENTRIES * i);
  }

  void move(const double *step) {
    double rotation[9], transposed[9], product[9];
    to_rotation(step, rotation);
    multiply(u_, rotation, product);
    std::copy(product, product + 9, u_);
    to_rotation(step + 3, rotation);
    for (int i = 0; i < 9; ++i) transposed[i] = rotation[3 * (i % 3) + i / 3];
    multiply(transposed, vt_, product);
    std::copy(product, product + 9, vt_);
    s_ += step[6];
  }

 private:
  void write_product(const double *middle, double *result) const {
    double left[9];
    multiply(u_, middle, left);
    multiply(left, vt_, result);
  }

  double u_[9], vt_[9], s_;
};

// Solves a x = b in place by elimination with pivoting; returns false if a (n, n) is singular.
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

template <typename Model>
void descend(EquationsTask task, Mixture mixture, const FitConstants &constants, Model model, double *matrix) {
  const int n = model.parameters();
  task.matches.matrix = matrix;
  model.write(matrix);
  for (int iteration = 0; iteration < constants.steps; ++iteration) {
    double entries[81], slopes[9], changes[81], products[81], hessian[81], step[9];
    mixture = normal_equations(task, mixture, entries, slopes);
    model.write_changes(changes);
    // The derivatives by the parameters: changes entries changesᵀ, and changes slopes.
    double trace = 0;
    for (int i = 0; i < n; ++i) {
      step[i] = 0;
      for (int k = 0; k < ENTRIES; ++k) step[i] -= changes[ENTRIES * i + k] * slopes[k];
      for (int j = 0; j < ENTRIES; ++j) {
        products[ENTRIES * i + j] = 0;
        for (int k = 0; k < ENTRIES; ++k)
          products[ENTRIES * i + j] += changes[ENTRIES * i + k] * entries[ENTRIES * k + j];
      }
      for (int j = 0; j < n; ++j) {
        hessian[n * i + j] = 0;
        for (int k = 0; k < ENTRIES; ++k) hessian[n * i + j] += products[ENTRIES * i + k] * changes[ENTRIES * j + k];
      }
      trace += hessian[n * i + i];
    }
    for (int i = 0; i < n; ++i) hessian[n * i + i] += constants.ridge * trace;
    if (!solve(hessian, step, n)) return;
    double largest = 0;
    for (int i = 0; i < n; ++i) {
      if (!std::isfinite(step[i])) return;
      largest = std::max(largest, std::abs(step[i]));
    }
    model.move(step);
    model.write(matrix);
    if (largest < constants.tolerance) return;
  }
}

}  // namespace

void fit_model(const EquationsTask &task, Mixture mixture, const FitConstants &constants, const double *state,
               int parameters, double *matrix) {
  if (task.matches.planar)
    descend(task, mixture, constants, Entries(state, parameters), matrix);
  else
    descend(task, mixture, constants, Fundamental(state), matrix);
}

}  // namespace caloric
