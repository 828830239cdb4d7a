// Smoothing of the scale space; compiled once per instruction set.
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

// Vectors of each row of a band that are summed at once: as many as fit in registers.
#if defined(__AVX512F__) || defined(CALORIC_NEON)
constexpr int STRIPE = 4;
#else
constexpr int STRIPE = 2;
#endif
constexpr int BAND = 4;  // rows smoothed at once: they share most of the rows they read

// Index i reflected into 0, ..., n - 1 without repeating the border (BORDER_REFLECT_101).
inline i64 reflect(i64 i, i64 n) {
  if (n == 1) return 0;
  const i64 period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

// The state of one layer: its taps, the rows that the next layer still needs, and the progress.
struct LayerState {
  const float *taps;
  int radius;
  std::vector<float> weights;  // the taps padded with zeros: every row contributes to every sum of a band
  i64 ring_rows;
  i64 next, end;  // rows
  float *output;  // rows top to bottom; the others are in the ring buffer
  i64 top, bottom, width;
  Aligned<float> ring;
  float *row(i64 y) { return y >= top && y < bottom ? output + y * width : ring.data() + (y % ring_rows) * width; }
};

// Computes the next rows of a layer from the rows around them: vertically, then horizontally.
void smooth_band(LayerState &layer, const float *const *row, i64 width, float *buffer, i64 rows) {
  const int radius = layer.radius, support = 2 * radius + BAND;
  const float *weights = layer.weights.data(), *center = layer.taps + radius;
  const i64 stride = width + 2 * radius + 2 * LANES;
  const auto filter_columns = [&](auto count, i64 x, auto read) {
    constexpr int N = decltype(count)::value;
    Vec sum[N][BAND] = {};
    for (int k = 0; k < support; ++k) {
      const FourScalars scalars(weights + k);  // the weights of row k in the sums BAND - 1, ..., 0
      Vec pixels[N];
      for (int v = 0; v < N; ++v) pixels[v] = read(row[k] + x + v * LANES);
      // These are more rows than the hardware prefetches, and more than the L1 cache holds.
      __builtin_prefetch(row[k] + x + 2 * N * LANES);
      unroll<BAND>([&](auto j) {
        for (int v = 0; v < N; ++v) sum[v][j] = scalars.template mul_add_lane<BAND - 1 - j>(pixels[v], sum[v][j]);
      });
    }
    for (int v = 0; v < N; ++v)
      for (int j = 0; j < BAND; ++j) store(buffer + j * stride + radius + x + v * LANES, sum[v][j]);
  };
  constexpr std::integral_constant<int, 1> one{};
  constexpr std::integral_constant<int, STRIPE> stripe{};
  const auto load_full = [](const float *p) { return load(p); };
  i64 x = 0;
  for (; x + STRIPE * LANES <= width; x += STRIPE * LANES) filter_columns(stripe, x, load_full);
  for (; x + LANES <= width; x += LANES) filter_columns(one, x, load_full);
  if (x < width) filter_columns(one, x, [&](const float *p) { return load(p, width - x); });
  for (i64 j = 0; j < rows; ++j) {
    float *line = buffer + j * stride + radius, *out = layer.row(layer.next + j);
    for (int k = 1; k <= radius; ++k) {
      line[-k] = line[reflect(-k, width)];
      line[width - 1 + k] = line[reflect(width - 1 + k, width)];
    }
    const auto filter_row = [&](auto count, const float *p, auto write) {
      constexpr int N = decltype(count)::value;
      Vec sum[N];
      for (int v = 0; v < N; ++v) sum[v] = center[0] * load(p + v * LANES);
      for (int k = 1; k <= radius; ++k)
        for (int v = 0; v < N; ++v)
          sum[v] = mul_add(center[k], load(p + v * LANES - k) + load(p + v * LANES + k), sum[v]);
      for (int v = 0; v < N; ++v) write(v * LANES, sum[v]);
    };
    const auto write_full = [&](i64 offset, Vec v) { store(out + x + offset, v); };
    for (x = 0; x + STRIPE * LANES <= width; x += STRIPE * LANES) filter_row(stripe, line + x, write_full);
    for (; x + LANES <= width; x += LANES) filter_row(one, line + x, write_full);
    if (x < width) filter_row(one, line + x, [&](i64, Vec v) { store(out + x, v, width - x); });
  }
}

// Rows of an image upsampled by 2: each pixel becomes two, a quarter of a pixel to either side, by linear
// interpolation. Borders are replicated.
class Upsampler {
 public:
  Upsampler(const float *base, i64 stride, i64 height, i64 width, i64 ring_rows)
      : base_(base),
        stride_(stride),
        height_(height),
        width_(width),
        ring_rows_(ring_rows),
        rows_(ring_rows * 2 * width),
        widened_(3 * 2 * width) {
    std::fill(widened_index_, widened_index_ + 3, -1);
  }
  // Row y of the upsampled image, one of the last `ring_rows` computed.
  const float *row(i64 y) { return rows_.data() + (y % ring_rows_) * 2 * width_; }
  // Computes row y. Rows must be computed in ascending order.
  void compute(i64 y) {
    const float *near = widened(y / 2), *far = widened(std::clamp<i64>(y / 2 + (y % 2 ? 1 : -1), 0, height_ - 1));
    float *out = rows_.data() + (y % ring_rows_) * 2 * width_;
    for (i64 x = 0; x < 2 * width_; ++x) out[x] = interpolate(near[x], far[x]);
  }

 private:
  // A quarter of a float is exact: only the sum is rounded, with or without fused multiply-add.
  static float interpolate(float near, float far) { return mul_add1(0.25f, far - near, near); }
  // Row y of the base, upsampled horizontally.
  const float *widened(i64 y) {
    float *out = widened_.data() + (y % 3) * 2 * width_;
    if (widened_index_[y % 3] == y) return out;
    widened_index_[y % 3] = y;
    const float *p = base_ + y * stride_;
    out[0] = p[0];
    for (i64 x = 1; x < width_; ++x) {
      out[2 * x - 1] = interpolate(p[x - 1], p[x]);
      out[2 * x] = interpolate(p[x], p[x - 1]);
    }
    out[2 * width_ - 1] = p[width_ - 1];
    return out;
  }
  const float *base_;
  i64 stride_, height_, width_, ring_rows_;
  Aligned<float> rows_, widened_;
  i64 widened_index_[3];
};

}  // namespace

// Computes rows top to bottom of all layers. All layers advance together, a few rows at a time, so that the rows
// of a layer are still in the cache when the next layer reads them. Rows outside of top and bottom that later
// layers need are computed and discarded.
void smooth_octave(const SmoothingTask &task, i64 top, i64 bottom) {
  const i64 height = task.height, width = task.width;
  const int count = (int)task.layers.size(), *radii = task.radii.data();
  std::vector<LayerState> layers(count);
  i64 first = top, last = bottom, max_radius = 0;
  for (int i = count - 1; i >= 0; --i) {
    LayerState &layer = layers[i];
    layer.taps = task.taps[i];
    layer.radius = radii[i];
    layer.weights.assign(2 * radii[i] + 2 * BAND - 1, 0.0f);
    std::copy(layer.taps, layer.taps + 2 * radii[i] + 1, layer.weights.begin() + BAND - 1);
    layer.ring_rows = 2 * (i + 1 < count ? radii[i + 1] : 0) + 3 * BAND;
    layer.output = task.layers[i];
    layer.top = top;
    layer.bottom = bottom;
    layer.width = width;
    if (first < top || last > bottom) layer.ring.resize(layer.ring_rows * width);
    layer.next = first;
    layer.end = last;
    first = std::max<i64>(0, first - radii[i]);
    last = std::min(height, last + radii[i]);
    max_radius = std::max<i64>(max_radius, radii[i]);
  }
  const i64 upsampled_rows = 2 * radii[0] + 2 * BAND;
  Upsampler upsampler(task.base, task.base_stride, task.upsample ? height / 2 : 0, task.upsample ? width / 2 : 0,
                      upsampled_rows);
  i64 upsampled = first;  // the next row to upsample
  Aligned<float> buffer(BAND * (width + 2 * max_radius + 2 * LANES) + LANES);
  std::vector<const float *> row(2 * max_radius + BAND);
  while (layers[count - 1].next < bottom) {
    // Find the last layer whose next rows can be computed.
    int i = count - 1;
    while (i > 0 && layers[i - 1].next < std::min(layers[i].next + BAND + layers[i].radius, layers[i - 1].end)) --i;
    LayerState &layer = layers[i];
    if (i == 0 && task.upsample)
      for (; upsampled < std::min(layer.next + layer.radius + BAND, height); ++upsampled) upsampler.compute(upsampled);
    for (int k = 0; k < 2 * layer.radius + BAND; ++k) {
      i64 y = reflect(layer.next - layer.radius + k, height);
      if (i == 0) {
        // Reflected rows that have left the ring buffer have weight 0.
        row[k] =
            task.upsample ? upsampler.row(std::max(y, upsampled - upsampled_rows)) : task.base + y * task.base_stride;
      } else {
        // Rows that are not available have weight 0: read any other row.
        y = std::min(y, layers[i - 1].next - 1);
        row[k] = layers[i - 1].row(std::max(y, layer.next - layer.radius));
      }
    }
    const i64 rows = std::min<i64>(BAND, layer.end - layer.next);
    smooth_band(layer, row.data(), width, buffer.data(), rows);
    layer.next += rows;
  }
}

}  // namespace caloric::CALORIC_BUILD
