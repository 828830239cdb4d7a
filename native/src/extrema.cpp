// Extrema of the difference of Gaussians and their sub-pixel refinement; compiled once per instruction set.
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

// Three rows of the maximum over three layers are kept. IMAGES is the number of Gaussian images if it is known
// at compile time, else 0.
template <int IMAGES>
std::vector<Candidate> scan(const Octave &octave, float threshold, i64 top, i64 bottom) {
  std::vector<Candidate> candidates;
  const float *const *images = octave.images.data();
  const i64 height = octave.height, width = octave.width;
  const int layers = (IMAGES ? IMAGES : (int)octave.images.size()) - 1, inner_layers = layers - 2;
  const i64 stride = (width + 2 * LANES) / LANES * LANES;
  Aligned<float> magnitudes(2 * layers * stride), layer_maxima(3 * inner_layers * stride), maxima(stride + LANES);
  for (i64 y = std::max<i64>(top, 1) - 1; y <= std::min(bottom, height - 1); ++y) {
    float *magnitude = magnitudes.data() + (y % 2) * layers * stride;
    float *layer_maximum = layer_maxima.data() + (y % 3) * inner_layers * stride;
    const auto subtract = [&](i64 x, auto read) {
      Vec lower = read(images[0] + y * width + x), d[MAX_IMAGES];
      for (int i = 0; i < layers; ++i) {
        const Vec upper = read(images[i + 1] + y * width + x);
        d[i] = abs_difference(upper, lower);
        if (i > 0 && i <= inner_layers) store(magnitude + i * stride + x, d[i]);
        lower = upper;
      }
      for (int i = 0; i < inner_layers; ++i) store(layer_maximum + i * stride + x, max(max(d[i], d[i + 1]), d[i + 2]));
    };
    i64 x = 0;
    for (; x + LANES <= width; x += LANES) {
      if (x % 16 == 0)
        for (int i = 0; i <= layers; ++i) __builtin_prefetch(images[i] + y * width + x + 64);
      subtract(x, [](const float *p) { return load(p); });
    }
    if (x < width) subtract(x, [&](const float *p) { return load(p, width - x); });
    const i64 row = y - 1;
    if (row < std::max<i64>(top, 1) || row >= std::min(bottom, height - 1)) continue;
    for (int i = 0; i < inner_layers; ++i) {
      const float *value = magnitudes.data() + ((row % 2) * layers + i + 1) * stride, *rows[3];
      for (int r = 0; r < 3; ++r) rows[r] = layer_maxima.data() + (r * inner_layers + i) * stride;
      for (i64 x = 0; x < width; x += LANES)
        store(maxima.data() + x, max(max(load(rows[0] + x), load(rows[1] + x)), load(rows[2] + x)));
      // Extrema are rare: test several vectors before branching.
      const auto check = [&](auto count, i64 x) {
        constexpr int N = decltype(count)::value;
        IntVec is_maximum[N], any_maximum = {};
        for (int n = 0; n < N; ++n) {
          const float *m = maxima.data() + x + n * LANES;
          const Vec v = load(value + x + n * LANES);
          is_maximum[n] = (v > threshold) & (v >= load(m)) & (v >= max(load(m - 1), load(m + 1)));
          any_maximum |= is_maximum[n];
        }
        if (!any(any_maximum)) return;
        for (int n = 0; n < N; ++n)
          for (std::uint32_t mask = mask_bits(is_maximum[n]); mask; mask &= mask - 1) {
            const i64 column = x + n * LANES + __builtin_ctz(mask);
            if (column < width - 1) candidates.push_back({i + 1, (std::int32_t)row, (std::int32_t)column});
          }
      };
      i64 x = 1;
      for (; x + 4 * LANES <= width; x += 4 * LANES) check(std::integral_constant<int, 4>{}, x);
      for (; x < width - 1; x += LANES) check(std::integral_constant<int, 1>{}, x);
    }
  }
  return candidates;
}

// The second-order expansion of D at a pixel, as in caloric.detector.extrema: the value, the gradient, and the
// Hessian as xx, yy, ss, xy, xs, ys.
struct Parabola {
  double value, g[3], h[6];
};

Parabola fit(const float *const *images, i64 width, i64 layer, i64 row, i64 column) {
  const auto d = [&](i64 s, i64 y, i64 x) {
    const i64 pixel = (row + y) * width + column + x;
    return (double)(images[layer + s + 1][pixel] - images[layer + s][pixel]);
  };
  const double center = d(0, 0, 0);
  const double ahead[3] = {d(0, 0, 1), d(0, 1, 0), d(1, 0, 0)}, behind[3] = {d(0, 0, -1), d(0, -1, 0), d(-1, 0, 0)};
  Parabola p;
  p.value = center;
  for (int i = 0; i < 3; ++i) {
    p.g[i] = (ahead[i] - behind[i]) / 2;
    p.h[i] = ahead[i] + behind[i] - 2 * center;
  }
  p.h[3] = (d(0, 1, 1) - d(0, 1, -1) - d(0, -1, 1) + d(0, -1, -1)) / 4;
  p.h[4] = (d(1, 0, 1) - d(1, 0, -1) - d(-1, 0, 1) + d(-1, 0, -1)) / 4;
  p.h[5] = (d(1, 1, 0) - d(1, -1, 0) - d(-1, 1, 0) + d(-1, -1, 0)) / 4;
  return p;
}

// Computes the peak u = -H^{-1} g by cofactors. Returns false if H is singular.
bool solve(const Parabola &p, double min_determinant, double *u) {
  const double xx = p.h[0], yy = p.h[1], ss = p.h[2], xy = p.h[3], xs = p.h[4], ys = p.h[5];
  const double a = yy * ss - ys * ys, b = xs * ys - xy * ss, c = xy * ys - xs * yy;
  const double e = xx * ss - xs * xs, f = xs * xy - xx * ys, i = xx * yy - xy * xy;
  const double determinant = xx * a + xy * b + xs * c;
  if (!(std::abs(determinant) > min_determinant)) return false;
  const double gx = -p.g[0] / determinant, gy = -p.g[1] / determinant, gs = -p.g[2] / determinant;
  u[0] = a * gx + b * gy + c * gs;
  u[1] = b * gx + e * gy + f * gs;
  u[2] = c * gx + f * gy + i * gs;
  return true;
}

// The contrast and edge tests of caloric.detector.extrema.
bool is_accepted(const Parabola &p, double peak, const ExtremumConstants &constants) {
  const double trace = p.h[0] + p.h[1], determinant = p.h[0] * p.h[1] - p.h[3] * p.h[3], edge = constants.edge_ratio;
  return std::abs(peak) * constants.scales_per_octave >= constants.contrast &&
         trace * trace * edge < (edge + 1) * (edge + 1) * determinant && determinant > 0;
}

}  // namespace

// Returns the pixels of rows top to bottom where |D| exceeds the threshold and is a maximum of its 26 neighbors.
std::vector<Candidate> find_candidates(const Octave &octave, float threshold, i64 top, i64 bottom) {
  return (octave.images.size() == 6 ? scan<6> : scan<0>)(octave, threshold, top, bottom);
}

// Returns the sub-pixel extrema that candidates (count, 3), given as layer, row and column, converge to and that
// pass the contrast and edge tests.
std::vector<Extremum> refine_extrema(const Octave &octave, const i64 *candidates, i64 count,
                                     const ExtremumConstants &constants) {
  const i64 layers = (i64)octave.images.size() - 2, height = octave.height, width = octave.width;
  std::vector<Extremum> extrema;
  for (i64 n = 0; n < count; ++n) {
    const i64 layer = candidates[3 * n];
    i64 row = candidates[3 * n + 1], column = candidates[3 * n + 2];
    if (layer < 1 || layer >= layers || row < 1 || row >= height - 1 || column < 1 || column >= width - 1) continue;
    for (int k = 1; k <= constants.max_fits; ++k) {
      const Parabola p = fit(octave.images.data(), width, layer, row, column);
      double u[3];
      if (!solve(p, constants.min_determinant, u)) break;
      const auto step = [&](double offset, i64 index, i64 size) {
        return (i64)(offset > constants.move_threshold && index < size - 2) -
               (i64)(offset < -constants.move_threshold && index > 1);
      };
      const i64 right = step(u[0], column, width), down = step(u[1], row, height);
      if ((right || down) && k < constants.max_fits) {
        row += down;
        column += right;
        continue;
      }
      const double max_offset = constants.max_offset;
      if (std::abs(u[0]) < max_offset && std::abs(u[1]) < max_offset && std::abs(u[2]) < max_offset) {
        const double peak = p.value + 0.5 * (p.g[0] * u[0] + p.g[1] * u[1] + p.g[2] * u[2]);
        if (is_accepted(p, peak, constants))
          extrema.push_back({(double)layer, (double)row, (double)column, u[0], u[1], u[2], peak});
      }
      break;
    }
  }
  return extrema;
}

}  // namespace caloric::CALORIC_BUILD
