// Sub-pixel refinement of matches, as in caloric.matching.refinement_steps; compiled once per instruction set.
#include <memory>

#include "kernels.hpp"
#include "refinement_patch.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

// Solves H x = g for a symmetric H (6, 6) by Cholesky. Returns false if H is not positive definite.
bool solve(const double (&matrix)[6][6], const double *g, double *x) {
  double l[6][6];
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (int k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
      if (i == j) {
        if (!(sum > 0)) return false;
        l[i][i] = std::sqrt(sum);
      } else {
        l[i][j] = sum / l[j][j];
      }
    }
  for (int i = 0; i < 6; ++i) {
    double sum = g[i];
    for (int k = 0; k < i; ++k) sum -= l[i][k] * x[k];
    x[i] = sum / l[i][i];
  }
  for (int i = 5; i >= 0; --i) {
    double sum = x[i];
    for (int k = i + 1; k < 6; ++k) sum -= l[k][i] * x[k];
    x[i] = sum / l[i][i];
  }
  return true;
}

// Computes B delta^{-1}, where delta = 1 + (s0 s1 s4; s2 s3 s5).
void update(const double *b, const double *s, double *out) {
  const double d = 1 / ((1 + s[0]) * (1 + s[3]) - s[1] * s[2]);
  const double m00 = (1 + s[3]) * d, m01 = -s[1] * d, m10 = -s[2] * d, m11 = (1 + s[0]) * d;
  const double tx = -(m00 * s[4] + m01 * s[5]), ty = -(m10 * s[4] + m11 * s[5]);
  for (int i = 0; i < 2; ++i) {
    const double *row = b + 3 * i;
    out[3 * i] = row[0] * m00 + row[1] * m10;
    out[3 * i + 1] = row[0] * m01 + row[1] * m11;
    out[3 * i + 2] = row[0] * tx + row[1] * ty + row[2];
  }
}

class Refiner {
 public:
  explicit Refiner(const RefinementTask &task)
      : task_(task), c_(task.constants), grid_((float)c_.spacing, task.window) {
    for (const RefinementFilters &filters : task.filters) filters_.emplace_back(filters);
  }

  void refine(i64 m) {
    const double *a = task_.a + 6 * m, *initial_b = task_.b + 6 * m;
    double *b = task_.maps + 6 * m, *statistics = task_.statistics + 3 * m, *covariance = task_.covariances + 4 * m;
    double *total_covariance = task_.totals + 4 * m;
    std::copy(initial_b, initial_b + 6, b);
    std::fill(statistics, statistics + 3, 0.0);
    std::fill(covariance, covariance + 4, std::numeric_limits<double>::infinity());
    std::fill(total_covariance, total_covariance + 4, std::numeric_limits<double>::infinity());
    double power_a = 0, cost = 0, power_b = 0;
    if (!sample(task_.second, initial_b, c_.spacing, grid_, buffers_)) return;
    std::memcpy(buffers_.initial_patch_b, buffers_.patch, sizeof buffers_.initial_patch_b);
    if (!sample(task_.first, a, c_.spacing, grid_, buffers_)) return;
    std::memcpy(buffers_.patch_a, buffers_.patch, sizeof buffers_.patch_a);
    for (std::size_t k = 0; k < filters_.size(); ++k) {
      std::memcpy(buffers_.patch, buffers_.patch_a, sizeof buffers_.patch_a);
      power_a = compute_field(filters_[k], grid_, c_.power_epsilon, buffers_, buffers_.tmpl);
      if (k == 0 && std::isfinite(c_.max_start_cost)) {
        std::memcpy(buffers_.patch, buffers_.initial_patch_b, sizeof buffers_.initial_patch_b);
        compare(filters_[k], buffers_.trial, cost, power_b);
        if (!(cost < c_.max_start_cost)) return;
      }
      compute_jacobian(grid_, (float)c_.spacing, buffers_);
      if (!minimize(filters_[k], b, cost, power_b)) return;
      if (k + 1 < filters_.size() && !(cost < c_.max_cost)) return;
    }
    if (compute_covariance(a, b, power_a, power_b, covariance)) add_residual(cost, covariance, total_covariance);
    std::memcpy(buffers_.patch, buffers_.initial_patch_b, sizeof buffers_.initial_patch_b);
    compare(filters_.back(), buffers_.trial, statistics[0], power_b);
    statistics[1] = cost;
    statistics[2] = power_a;
  }

 private:
  // Computes the residual of buffers_.patch, its cost, and the mean square of its gradient field.
  void compare(const Filters &filters, float *residual, double &cost, double &power) {
    power = compute_field(filters, grid_, c_.power_epsilon, buffers_, residual);
    Vec sum[PARTS / LANES] = {};
    for (int i = 0; i < BOTH; i += PARTS)
      for (int n = 0; n < PARTS / LANES; ++n) {
        const int k = i + n * LANES;
        const Vec r = load(residual + k) - load(buffers_.tmpl + k);
        store(residual + k, r);
        sum[n] = mul_add(r, r, sum[n]);
      }
    cost = total(sum);
  }

  // Computes rows FIRST to END of the Hessian J^T J.
  template <int FIRST, int END>
  void compute_hessian() {
    constexpr int COUNT = (END * (END + 1) - FIRST * (FIRST + 1)) / 2;
    Vec sums[COUNT][PARTS / LANES];
    for (int v = 0; v < PARTS / LANES; ++v) {
      Vec sum[COUNT] = {};
      for (int k = v * LANES; k < BOTH; k += PARTS) {
        Vec derivatives[END];
        for (int p = 0; p < END; ++p) derivatives[p] = load(buffers_.jacobian[p] + k);
        for (int p = FIRST, n = 0; p < END; ++p)
          for (int q = 0; q <= p; ++q, ++n) sum[n] = mul_add(derivatives[p], derivatives[q], sum[n]);
      }
      for (int n = 0; n < COUNT; ++n) sums[n][v] = sum[n];
    }
    for (int p = FIRST, n = 0; p < END; ++p)
      for (int q = 0; q <= p; ++q, ++n) hessian_[p][q] = hessian_[q][p] = total(sums[n]);
  }

  // Refines b by Gauss-Newton steps with Levenberg-Marquardt damping. Returns false if b is outside of the image.
  bool minimize(const Filters &filters, double *b, double &cost, double &power) {
    double trace = 0;
    compute_hessian<0, 4>();
    compute_hessian<4, 6>();
    for (int i = 0; i < 6; ++i) trace += hessian_[i][i];
    const double min_diagonal = c_.relative_damping * trace + c_.diagonal_epsilon;
    if (!sample(task_.second, b, c_.spacing, grid_, buffers_)) return false;
    compare(filters, buffers_.residual, cost, power);
    double damping = c_.damping;
    for (int n = 0; n < filters.steps; ++n) {
      double gradient[6], matrix[6][6], step[6], next[6], next_cost, next_power, largest = 0;
      Vec sum[6][PARTS / LANES] = {};
      for (int i = 0; i < BOTH; i += PARTS)
        for (int v = 0; v < PARTS / LANES; ++v) {
          const Vec r = load(buffers_.residual + i + v * LANES);
          for (int p = 0; p < 6; ++p) sum[p][v] = mul_add(load(buffers_.jacobian[p] + i + v * LANES), r, sum[p][v]);
        }
      for (int p = 0; p < 6; ++p) gradient[p] = total(sum[p]);
      std::memcpy(matrix, hessian_, sizeof matrix);
      for (int p = 0; p < 6; ++p) matrix[p][p] += damping * (hessian_[p][p] + min_diagonal);
      if (!solve(matrix, gradient, step)) break;
      for (double &s : step) {
        s = std::clamp(s, -c_.max_step, c_.max_step);
        largest = std::max(largest, std::abs(s));
      }
      update(b, step, next);
      if (!sample(task_.second, next, c_.spacing, grid_, buffers_)) break;
      compare(filters, buffers_.trial, next_cost, next_power);
      if (next_cost < cost) {
        std::copy(next, next + 6, b);
        std::memcpy(buffers_.residual, buffers_.trial, sizeof buffers_.trial);
        cost = next_cost;
        power = next_power;
        damping /= c_.damping_decrease;
        if (largest < c_.tolerance) break;
      } else {
        damping = std::max(c_.damping_increase * damping, c_.min_increased_damping);
      }
    }
    return true;
  }

  // Computes the correlations of the noise between samples of a patch. Returns the variance of the noise divided
  // by the mean square gradient.
  double noise(const std::vector<PyramidLevel> &levels, const double *map, double noise_level, double power,
               float *correlations) {
    const int level = level_of(map, c_.spacing, (int)levels.size());
    const double distance = std::max(sigma_of(map) * c_.spacing / (1 << level), c_.min_noise_spacing);
    const double *pixels = task_.correlations + 4 * level;
    const auto spline = [](double x) {
      const double two = std::max(2 - std::abs(x), 0.0), one = std::max(1 - std::abs(x), 0.0);
      return two * two * two / 6 - 4 * one * one * one / 6;
    };
    for (int lag = 0; lag < NOISE_LAGS; ++lag) {
      double sum = pixels[0] * spline(lag * distance);
      for (int i = 1; i < 4; ++i) sum += pixels[i] * (spline(lag * distance - i) + spline(lag * distance + i));
      correlations[lag] = (float)sum;
    }
    return noise_level * noise_level * task_.variances[level] / (power + c_.power_epsilon);
  }

  // Multiplies the columns of a patch by the Toeplitz matrix of correlations.
  static void correlate(const float *correlations, const float *in, float *out) {
    for (int r = 0; r < SIDE; ++r) {
      Vec sum[ROW_VECTORS] = {};
      for (int k = std::max(0, r - NOISE_LAGS + 1); k < std::min(SIDE, r + NOISE_LAGS); ++k)
        for (int n = 0; n < ROW_VECTORS; ++n)
          sum[n] = mul_add(correlations[std::abs(r - k)], load(in + k * STRIDE + n * LANES), sum[n]);
      for (int n = 0; n < ROW_VECTORS; ++n) store(out + r * STRIDE + n * LANES, sum[n]);
    }
  }

  // Propagates the noise of both images to the shift. Returns false if the Hessian is singular.
  bool compute_covariance(const double *a, const double *b, double power_a, double power_b, double *covariance) {
    double matrix[6][6];
    float kernel[2][PADDED_PATCH] = {}, correlated[PADDED_PATCH] = {}, weights[BOTH];
    const Filters &filters = filters_.back();
    std::memcpy(matrix, hessian_, sizeof matrix);
    for (int i = 0; i < 6; ++i) matrix[i][i] += c_.diagonal_epsilon;
    for (int p = 0; p < 2; ++p) {
      double unit[6] = {};
      unit[4 + p] = 1;
      double *row = inverse_[p];
      if (!solve(matrix, unit, row)) return false;
      // The derivative of the shift with respect to the residual, then with respect to the patch.
      for (int i = 0; i < BOTH; i += LANES) {
        Vec sum = {};
        for (int q = 0; q < 6; ++q) sum = mul_add((float)row[q], load(buffers_.jacobian[q] + i), sum);
        store(weights + i, sum * load(grid_.root_weight + i % FIELD));
      }
      std::memset(buffers_.first, 0, sizeof buffers_.first);
      std::memset(buffers_.second, 0, sizeof buffers_.second);
      filter(filters.derivative_transposed, filters.smooth_transposed, weights, weights + FIELD, buffers_.first,
             buffers_.second);
      transpose_patch(buffers_.first, buffers_.first_transposed);
      transpose_patch(buffers_.second, buffers_.second_transposed);
      filter(filters.smooth_transposed, filters.derivative_transposed, buffers_.first_transposed,
             buffers_.second_transposed, kernel[p], buffers_.first);
      for (int i = 0; i < SIDE * STRIDE; i += LANES)
        store(kernel[p] + i, load(kernel[p] + i) + load(buffers_.first + i));
      for (int r = 0; r < SIDE; ++r) std::fill(kernel[p] + r * STRIDE + SIDE, kernel[p] + (r + 1) * STRIDE, 0.0f);
      std::fill(kernel[p] + SIDE * STRIDE, kernel[p] + PADDED_PATCH, 0.0f);
    }
    std::fill(covariance, covariance + 4, 0.0);
    for (int image = 0; image < 2; ++image) {
      float correlations[NOISE_LAGS];
      const double variance = image ? noise(task_.second, b, task_.noise[1], power_b, correlations)
                                    : noise(task_.first, a, task_.noise[0], power_a, correlations);
      for (int p = 0; p < 2; ++p) {
        correlate(correlations, kernel[p], buffers_.first);
        std::fill(buffers_.first + SIDE * STRIDE, buffers_.first + PADDED_PATCH, 0.0f);
        transpose_patch(buffers_.first, buffers_.first_transposed);
        correlate(correlations, buffers_.first_transposed, buffers_.second);
        std::fill(buffers_.second + SIDE * STRIDE, buffers_.second + PADDED_PATCH, 0.0f);
        transpose_patch(buffers_.second, correlated);
        for (int q = 0; q <= p; ++q) covariance[2 * p + q] += variance * dot<FIELD>(kernel[q], correlated);
      }
    }
    covariance[1] = covariance[2];
    return true;
  }

  // Adds to the covariance by noise what the residual shows beyond it.
  void add_residual(double cost, const double *covariance, double *result) {
    const double variance = cost * (1 + cost / c_.correlated_cost) / c_.residual_samples;
    const double trace = variance * (inverse_[0][4] + inverse_[1][5]), noise = covariance[0] + covariance[3];
    const double share = std::max(trace - noise, 0.0) / (trace + c_.power_epsilon);
    for (int p = 0; p < 2; ++p)
      for (int q = 0; q < 2; ++q) result[2 * p + q] = covariance[2 * p + q] + share * variance * inverse_[p][4 + q];
    result[1] = result[2];
  }

  const RefinementTask &task_;
  const RefinementConstants c_;
  const Grid grid_;
  std::vector<Filters> filters_;
  Buffers buffers_;
  double hessian_[6][6];
  double inverse_[2][6];  // the rows of its inverse for the shift
};

}  // namespace

void refine_matches(const RefinementTask &task) {
  const auto refiner = std::make_unique<Refiner>(task);  // too large for the stack of a thread
  for (i64 m = 0; m < task.count; ++m) refiner->refine(m);
}

}  // namespace caloric::CALORIC_BUILD
