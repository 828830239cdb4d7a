// Residuals of two-view models and their likelihood. All builds use the same operations in the same order, without
// fused multiply-adds, and are bit-identical.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

typedef float Floats __attribute__((vector_size(4 * FLOATS)));
typedef std::int32_t Ints __attribute__((vector_size(4 * FLOATS)));
typedef double Doubles __attribute__((vector_size(8 * DOUBLES)));
typedef std::int64_t Longs __attribute__((vector_size(8 * DOUBLES)));

// The residual of a match with a homography, mapped - y. Its second coordinate minus `slope` times the first one is
// independent of the first one; `precisions` are the inverses of the variances of both, for unit variances of
// positions.
template <typename V, typename T>
struct PlaneResidual {
  V depth, u, v, errors[2], slope, precisions[2];

  PlaneResidual(const T *h, V x, V y, V s, V t) {
    const V z = h[6] * x + h[7] * y + h[8];
    depth = 1 / ((z > (T)1e-12) | (z < (T)-1e-12) ? z : z * 0 + (T)1e-12);
    u = (h[0] * x + h[1] * y + h[2]) * depth;
    v = (h[3] * x + h[4] * y + h[5]) * depth;
    const V xx = (h[0] - u * h[6]) * depth, xy = (h[1] - u * h[7]) * depth;
    const V yx = (h[3] - v * h[6]) * depth, yy = (h[4] - v * h[7]) * depth, covariance = xx * yx + xy * yy;
    precisions[0] = 1 / (1 + xx * xx + xy * xy);
    slope = covariance * precisions[0];
    precisions[1] = 1 / (1 + yx * yx + yy * yy - slope * covariance);
    errors[0] = u - s;
    errors[1] = v - t - slope * errors[0];
  }
};

// The epipolar constraint of a match, with the normals of the lines in both images; `variance` is that of the error.
template <typename V, typename T>
struct LineResidual {
  V bx, by, ax, ay, error, variance;

  LineResidual(const T *f, V x, V y, V s, V t) {
    bx = f[0] * x + f[1] * y + f[2];
    by = f[3] * x + f[4] * y + f[5];
    ax = f[0] * s + f[3] * t + f[6];
    ay = f[1] * s + f[4] * t + f[7];
    error = s * bx + t * by + f[6] * x + f[7] * y + f[8];
    variance = bx * bx + by * by + ax * ax + ay * ay;
    variance = variance > (T)1e-30 ? variance : variance * 0 + (T)1e-30;
  }
};

inline Doubles load(const double *values) {
  Doubles v;
  std::memcpy(&v, values, sizeof v);
  return v;
}

// exp(x) for x <= 0, to 1e-9 of its value.
inline Doubles fast_exp(Doubles x) {
  constexpr double LOG2E = 1.4426950408889634, LN2 = 0.6931471805599453, MAGIC = 6755399441055744.0;
  x = x > -700.0 ? x : x * 0 - 700.0;
  const Doubles shifted = x * LOG2E + MAGIC, r = x - (shifted - MAGIC) * LN2;
  const Doubles p =
      1 + r * (1 + r * (1. / 2 + r * (1. / 6 + r * (1. / 24 + r * (1. / 120 + r * (1. / 720 + r * (1. / 5040)))))));
  return p * (Doubles)(((Longs)shifted + 1023) << 52);
}

inline Doubles square_root(Doubles v) {
  for (int i = 0; i < DOUBLES; ++i) v[i] = std::sqrt(v[i]);
  return v;
}

inline double sum_of(Doubles v) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }

// The residuals of a vector of matches, one or two each, with their precisions and derivatives by the matrix.
struct Residuals {
  int dimensions;
  Doubles errors[2], precisions[2], slopes[2][ENTRIES];

  Residuals(const FitTask &task, i64 first, bool with_slopes) : dimensions(task.planar ? 2 : 1) {
    const double *matrix = task.matrix.data(), *values = task.values + first;
    const Doubles x = load(values), y = load(values + task.stride);
    const Doubles s = load(values + 2 * task.stride), t = load(values + 3 * task.stride);
    if (task.planar) {
      const PlaneResidual<Doubles, double> r(matrix, x, y, s, t);
      for (int k = 0; k < 2; ++k) {
        errors[k] = r.errors[k];
        precisions[k] = r.precisions[k];
      }
      if (!with_slopes) return;
      const Doubles ratio[3] = {x * r.depth, y * r.depth, r.depth};
      for (int j = 0; j < 3; ++j) {
        slopes[0][j] = slopes[1][3 + j] = ratio[j];
        slopes[0][3 + j] = Doubles{};
        slopes[0][6 + j] = -r.u * ratio[j];
        slopes[1][j] = -r.slope * ratio[j];
        slopes[1][6 + j] = (r.slope * r.u - r.v) * ratio[j];
      }
    } else {
      const LineResidual<Doubles, double> r(matrix, x, y, s, t);
      errors[0] = r.error;
      precisions[0] = 1 / r.variance;
      if (!with_slopes) return;
      const Doubles relative = errors[0] * precisions[0];
      // (q - relative b) p + q (-relative a), for b and a with a third entry of 0
      const Doubles q[2] = {s - relative * r.bx, t - relative * r.by}, a[2] = {relative * r.ax, relative * r.ay};
      slopes[0][0] = q[0] * x - s * a[0];
      slopes[0][1] = q[0] * y - s * a[1];
      slopes[0][2] = q[0];
      slopes[0][3] = q[1] * x - t * a[0];
      slopes[0][4] = q[1] * y - t * a[1];
      slopes[0][5] = q[1];
      slopes[0][6] = x - a[0];
      slopes[0][7] = y - a[1];
      slopes[0][8] = Doubles{} + 1;
    }
  }
};

// Adds the normal equations of D residuals per match. Invalid matches have no weight, but may have infinite slopes.
template <int D>
inline void add_equations(Residuals &r, Doubles weights, Longs valid, Doubles *hessian, Doubles *gradient) {
  Doubles weighted[D][ENTRIES];
  for (int k = 0; k < D; ++k) {
    r.errors[k] = valid ? r.errors[k] : Doubles{};
    const Doubles w = valid ? weights * r.precisions[k] : Doubles{};
    for (int i = 0; i < ENTRIES; ++i) {
      r.slopes[k][i] = valid ? r.slopes[k][i] : Doubles{};
      weighted[k][i] = w * r.slopes[k][i];
    }
  }
  for (int i = 0; i < ENTRIES; ++i) {
    Doubles sum = weighted[0][i] * r.errors[0];
    if (D == 2) sum += weighted[D - 1][i] * r.errors[D - 1];
    gradient[i] += sum;
    for (int j = i; j < ENTRIES; ++j) {
      sum = weighted[0][i] * r.slopes[0][j];
      if (D == 2) sum += weighted[D - 1][i] * r.slopes[D - 1][j];
      *hessian++ += sum;
    }
  }
}

}  // namespace

void write_squares(bool planar, const Entries &matrix, const FloatPoints &points, i64 count, float *squares) {
  float h[ENTRIES];
  double largest = 1e-300;
  for (const double entry : matrix) largest = std::max(largest, std::abs(entry));
  for (int i = 0; i < ENTRIES; ++i) h[i] = (float)(matrix[i] / largest);
  for (i64 m = 0; m < count; m += FLOATS) {
    Floats p[4], square;
    for (int k = 0; k < 4; ++k) std::memcpy(&p[k], points.coordinates[k] + m, sizeof p[k]);
    if (planar) {
      const PlaneResidual<Floats, float> r(h, p[0], p[1], p[2], p[3]);
      square = r.errors[0] * r.errors[0] * r.precisions[0] + r.errors[1] * r.errors[1] * r.precisions[1];
    } else {
      const LineResidual<Floats, float> r(h, p[0], p[1], p[2], p[3]);
      square = r.error * r.error / r.variance;
    }
    square *= points.square_scale;
    std::memcpy(squares + m, &square, sizeof square);
  }
}

// Returns the index of the most likely noise, or -1 if none is more likely than unrelated matches.
int find_noise(const NoiseTable &table, const float *squares, i64 count, double &likelihood) {
  constexpr int MAX_BINS = 512;  // of the exponent and the first bit of the mantissa
  std::int32_t counts[2][MAX_BINS] = {}, bins[FLOATS];
  for (i64 m = 0; m < count; m += FLOATS) {
    Floats values;
    std::memcpy(&values, squares + m, sizeof values);
    Ints bin = ((Ints)values >> 22) - table.first_bin;
    bin = bin > 0 ? bin : bin * 0;
    bin = (bin < table.bins - 1) & (values >= 0) ? bin : bin * 0 + (table.bins - 1);
    std::memcpy(bins, &bin, sizeof bins);
    const int used = (int)std::min<i64>(FLOATS, count - m);
    for (int i = 0; i < used; ++i) ++counts[i & 1][bins[i]];
  }
  likelihood = 0;
  int best = -1;
  for (int k = 0; k < table.count; k += FLOATS) {
    Floats sums = {}, row;
    for (int b = 0; b < table.bins; ++b) {
      std::memcpy(&row, table.logarithms + (i64)b * table.count + k, sizeof row);
      sums += row * (float)(counts[0][b] + counts[1][b]);
    }
    for (int i = 0; i < FLOATS; ++i)
      if (sums[i] > likelihood) {
        likelihood = sums[i];
        best = k + i;
      }
  }
  return best;
}

void sum_fit(const FitTask &task, const NoiseConstants &c, const Noise &noise, const FitOptions &options,
             FitSums &sums) {
  const double variance = noise.sigma * noise.sigma, square_width = c.width * c.width, other = 1 - noise.share;
  const double inverse_square_width = 1 / square_width;
  const double narrow_share = noise.share * (1 - c.tail) * c.peak;
  const double wide_share = noise.share * c.tail * c.peak / (c.dimensions == 2 ? square_width : c.width);
  const double mixed = options.mixed / (1 + c.tail * (square_width - 1)), unmixed = 1 - options.mixed;
  const double square_scale = task.scale * task.scale;
  Doubles hessian[ENTRIES * (ENTRIES + 1) / 2] = {}, gradient[ENTRIES] = {}, correct = {}, squared = {}, all = {};
  Doubles product = Doubles{} + 1;  // of densities: logarithms of several at once
  sums.likelihood = 0;
  for (i64 first = 0; first < task.count; first += DOUBLES) {
    Residuals r(task, first, options.with_equations);
    const Doubles variances = load(task.values + 4 * task.stride + first), factors = load(task.factors + first);
    Doubles square = {};
    for (int k = 0; k < r.dimensions; ++k) square += r.errors[k] * r.errors[k] * r.precisions[k];
    const Longs valid = square < 1e100;
    square = valid ? square * square_scale : square * 0 + 1e100;
    const Doubles inverse = 1 / (variance + variances), relative = square * inverse;
    const Doubles peak = c.dimensions == 2 ? inverse : square_root(inverse);
    const Doubles narrow = narrow_share * peak * fast_exp(relative * -0.5);
    const Doubles wide = wide_share * peak * fast_exp(relative * (-0.5 / square_width));
    const Doubles density = other + narrow + wide, likely = 1 / density;
    const Doubles probability = (narrow + wide) * likely, weight = (narrow + wide * inverse_square_width) * likely;
    correct += factors * probability;
    all += factors;
    product *= factors > 0.0 ? density : density * 0 + 1;
    if (first / DOUBLES % 16 == 15) {
      for (int i = 0; i < DOUBLES; ++i) sums.likelihood += std::log(product[i]);
      product = Doubles{} + 1;
    }
    const Doubles weighted = (unmixed * weight + mixed * probability) * inverse;
    Doubles used = factors * (options.by_probability ? probability : weighted);
    used = valid ? used : Doubles{};
    squared += options.by_probability ? used * square : factors * (valid ? weight * relative : Doubles{});
    if (options.weights) std::memcpy(options.weights + first, &used, sizeof used);
    for (int k = 0; k < r.dimensions && options.errors; ++k) {
      const Doubles error = valid ? task.scale * r.errors[k] * square_root(r.precisions[k] * used) : Doubles{};
      std::memcpy(options.errors + k * task.stride + first, &error, sizeof error);
    }
    if (!options.with_equations) continue;
    if (task.planar)
      add_equations<2>(r, used, valid, hessian, gradient);
    else
      add_equations<1>(r, used, valid, hessian, gradient);
  }
  for (int i = 0; i < DOUBLES; ++i) sums.likelihood += std::log(product[i]);
  sums.correct = sum_of(correct);
  sums.squared = sum_of(squared);
  sums.all = sum_of(all);
  const Doubles *sum = hessian;
  for (int i = 0; i < ENTRIES; ++i) {
    sums.gradient[i] = sum_of(gradient[i]);
    for (int j = i; j < ENTRIES; ++j)
      sums.hessian[ENTRIES * i + j] = sums.hessian[ENTRIES * j + i] = sum_of(*sum++);
  }
}

// Writes residuals in pixels (count, 2) of unit variance; the second of an epipolar geometry is 0.
void write_errors(const FitTask &task, double *errors) {
  for (i64 first = 0; first < task.count; first += DOUBLES) {
    const Residuals r(task, first, false);
    for (int k = 0; k < 2; ++k) {
      Doubles error = {};
      if (k < r.dimensions) error = task.scale * r.errors[k] * square_root(r.precisions[k]);
      const i64 count = std::min<i64>(DOUBLES, task.count - first);
      for (i64 i = 0; i < count; ++i) errors[2 * (first + i) + k] = error[i];
    }
  }
}

}  // namespace caloric::CALORIC_BUILD
