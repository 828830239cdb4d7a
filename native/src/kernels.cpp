// Compiled once for each kind of processor. A vector holds LANES neighbouring pixels, or one number
// of LANES features: no sum runs across lanes, so results do not depend on how many there are.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace caloric {
namespace {

// As many sums at once as there are registers for: ROWS of a product, AT_ONCE columns of a table.
#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12, AT_ONCE = 8;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 6, AT_ONCE = 4;
#else
constexpr int LANES = 4, ROWS = 4, AT_ONCE = 4;
#endif
constexpr int WIDE = 2, FEATURES = WIDE * LANES;  // described at once
using i64 = std::int64_t;
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef std::int32_t Int __attribute__((vector_size(4 * LANES)));
typedef float Quad __attribute__((vector_size(16)));

inline Vec load(const float *p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec load(const float *p, i64 count) {
  Vec v = {};
  std::memcpy(&v, p, 4 * std::min<i64>(count, LANES));
  return v;
}
inline void store(float *p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline void store(float *p, Vec v, i64 count) { std::memcpy(p, &v, 4 * std::min<i64>(count, LANES)); }
inline Vec all(float x) { return x - Vec{}; }
inline Int all(std::int32_t x) { return x - Int{}; }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
// a b + c, rounded once. Left to themselves compilers differ in where they do that, and with a pyramid's
// last bits it changes which extrema there are.
#if defined(__AVX512F__)
inline Vec fused(float a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)all(a), (__m512)b, (__m512)c); }
#elif defined(__AVX2__)
inline Vec fused(float a, Vec b, Vec c) { return (Vec)_mm256_fmadd_ps((__m256)all(a), (__m256)b, (__m256)c); }
#else
inline Vec fused(float a, Vec b, Vec c) { return a * b + c; }
#endif
#if defined(__AVX512F__)
inline Vec root(Vec v) { return (Vec)_mm512_sqrt_ps((__m512)v); }
inline std::uint32_t bits(Int mask) { return _mm512_movepi32_mask((__m512i)mask); }  // one a lane
#elif defined(__AVX2__)
inline Vec root(Vec v) { return (Vec)_mm256_sqrt_ps((__m256)v); }
inline std::uint32_t bits(Int mask) { return _mm256_movemask_ps((__m256)mask); }
#else
inline Vec root(Vec v) {
  for (int l = 0; l < LANES; ++l) v[l] = __builtin_sqrtf(v[l]);
  return v;
}
inline std::uint32_t bits(Int mask) {
  std::uint32_t result = 0;
  for (int l = 0; l < LANES; ++l) result |= (std::uint32_t)(mask[l] & 1) << l;
  return result;
}
#endif

// i folded into 0 ... n - 1 at pixels' centres: BORDER_REFLECT_101.
inline i64 reflected(i64 i, i64 n) {
  if (n == 1) return 0;
  const i64 period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

constexpr int BAND = 4;  // rows smoothed at once, which share most of what they read

// One layer of an octave on its way: its taps, the rows of it that the next layer still needs, and
// how many rows are done.
struct Smoothing {
  const float *taps;
  int radius;
  std::vector<float> weights;  // the taps between zeros: every row counts in every sum of a band
  i64 kept, done, end;
  float *target;  // where rows top to bottom belong; those beyond are in the ring
  i64 top, bottom, width;
  std::vector<float> ring;
  float *row(i64 y) { return y >= top && y < bottom ? target + y * width : ring.data() + (y % kept) * width; }
};

// The next rows of a layer: sum_k taps_k of the rows around, first down, then across.
void smooth_band(Smoothing &layer, const float *const *row, i64 width, float *buffer, i64 rows) {
  const int radius = layer.radius, reach = 2 * radius + BAND;
  const float *weights = layer.weights.data() + BAND - 1, *centre = layer.taps + radius;
  const i64 stride = width + 2 * radius + 2 * LANES;
  const auto down = [&](i64 x, auto read) {
    Vec sum[BAND] = {};
    for (int k = 0; k < reach; ++k) {
      const Vec pixels = read(row[k] + x);
      for (int j = 0; j < BAND; ++j) sum[j] = fused(weights[k - j], pixels, sum[j]);
    }
    for (int j = 0; j < BAND; ++j) store(buffer + j * stride + radius + x, sum[j]);
  };
  i64 x = 0;
  for (; x + LANES <= width; x += LANES) down(x, [](const float *p) { return load(p); });
  if (x < width) down(x, [&](const float *p) { return load(p, width - x); });
  for (i64 j = 0; j < rows; ++j) {
    float *line = buffer + j * stride + radius, *out = layer.row(layer.done + j);
    for (int k = 1; k <= radius; ++k) {
      line[-k] = line[reflected(-k, width)];
      line[width - 1 + k] = line[reflected(width - 1 + k, width)];
    }
    const auto across = [&](const float *p) {
      Vec sum = centre[0] * load(p);
      for (int k = 1; k <= radius; ++k) sum = fused(centre[k], load(p - k) + load(p + k), sum);
      return sum;
    };
    for (x = 0; x + LANES <= width; x += LANES) store(out + x, across(line + x));
    if (x < width) store(out + x, across(line + x), width - x);
  }
}

// Rows top to bottom of all layers of an octave, each smoothed from the one before. The layers grow
// together, a few rows at a time, so that a layer's rows are still in the cache when the next reads
// them; rows beyond top and bottom that it needs are made and not kept.
void octave(const float *base, float *const *targets, i64 height, i64 width, const float *const *taps,
            const int *radii, int count, i64 top, i64 bottom) {
  std::vector<Smoothing> layers(count);
  i64 first = top, last = bottom, widest = 0;
  for (int i = count - 1; i >= 0; --i) {
    Smoothing &layer = layers[i];
    layer.taps = taps[i];
    layer.radius = radii[i];
    layer.weights.assign(2 * radii[i] + 2 * BAND - 1, 0.0f);
    std::copy(taps[i], taps[i] + 2 * radii[i] + 1, layer.weights.begin() + BAND - 1);
    layer.kept = 2 * (i + 1 < count ? radii[i + 1] : 0) + 3 * BAND;
    layer.target = targets[i];
    layer.top = top;
    layer.bottom = bottom;
    layer.width = width;
    if (first < top || last > bottom) layer.ring.resize(layer.kept * width);
    layer.done = first;
    layer.end = last;
    first = std::max<i64>(0, first - radii[i]);
    last = std::min(height, last + radii[i]);
    widest = std::max<i64>(widest, radii[i]);
  }
  std::vector<float> buffer(BAND * (width + 2 * widest + 2 * LANES) + LANES);
  std::vector<const float *> row(2 * widest + BAND);
  while (layers[count - 1].done < bottom) {
    // The last layer that has what it needs for its next rows.
    int i = count - 1;
    while (i > 0 && layers[i - 1].done < std::min(layers[i].done + BAND + layers[i].radius, layers[i - 1].end)) --i;
    Smoothing &layer = layers[i];
    for (int k = 0; k < 2 * layer.radius + BAND; ++k) {
      i64 y = reflected(layer.done - layer.radius + k, height);
      if (i == 0) {
        row[k] = base + y * width;
      } else {
        // Rows that no sum counts may be beyond what there is: any will do.
        y = std::min(y, layers[i - 1].done - 1);
        row[k] = layers[i - 1].row(std::max(y, layer.done - layer.radius));
      }
    }
    const i64 rows = std::min<i64>(BAND, layer.end - layer.done);
    smooth_band(layer, row.data(), width, buffer.data(), rows);
    layer.done += rows;
  }
}

// Pixels of rows top to bottom where |D_i| is above the limit and no neighbour of 27 is larger, D_i
// the difference of levels i + 1 and i. Three rows of the maximum over three layers are kept.
void candidates(const float *const *levels, int count, i64 height, i64 width, float limit, i64 top,
                i64 bottom, std::vector<Candidate> &found) {
  const int layers = count - 1, inner = layers - 2;
  const i64 stride = (width + 2 * LANES) / LANES * LANES;
  std::vector<float> sizes(2 * layers * stride), tallest(3 * inner * stride), column(stride + 2 * LANES);
  for (i64 y = std::max<i64>(top, 1) - 1; y <= std::min(bottom, height - 1); ++y) {
    float *size = sizes.data() + (y % 2) * layers * stride;
    float *high = tallest.data() + (y % 3) * inner * stride;
    const auto differences = [&](i64 x, auto read) {
      Vec below = read(levels[0] + y * width + x), d[16];
      for (int i = 0; i < layers; ++i) {
        const Vec above = read(levels[i + 1] + y * width + x);
        const Vec difference = above - below;
        d[i] = max(difference, -difference);
        store(size + i * stride + x, d[i]);
        below = above;
      }
      for (int i = 0; i < inner; ++i) store(high + i * stride + x, max(max(d[i], d[i + 1]), d[i + 2]));
    };
    i64 x = 0;
    for (; x + LANES <= width; x += LANES) differences(x, [](const float *p) { return load(p); });
    if (x < width) differences(x, [&](const float *p) { return load(p, width - x); });
    const i64 row = y - 1;
    if (row < std::max<i64>(top, 1) || row >= std::min(bottom, height - 1)) continue;
    const float *middle = sizes.data() + (row % 2) * layers * stride;
    for (int i = 0; i < inner; ++i) {
      const float *value = middle + (i + 1) * stride, *high_i = tallest.data() + i * stride;
      for (i64 x = 0; x < width; x += LANES) {
        Vec v = load(high_i + x);
        v = max(v, load(high_i + inner * stride + x));
        store(column.data() + x, max(v, load(high_i + 2 * inner * stride + x)));
      }
      for (i64 x = 1; x < width - 1; x += LANES) {
        const Vec v = load(value + x);
        const float *c = column.data() + x;
        const Int above = v > limit;
        if (!bits(above)) continue;
        const Int peak = above & (v >= load(c - 1)) & (v >= load(c)) & (v >= load(c + 1));
        for (std::uint32_t mask = bits(peak); mask; mask &= mask - 1) {
          const i64 at = x + __builtin_ctz(mask);
          if (at < width - 1) found.push_back({i + 1, (std::int32_t)row, (std::int32_t)at});
        }
      }
    }
  }
}

// base^power for base > 0, within 3e-7: 2^(power log2 base), both by their series.
inline Vec raised(Vec base, float power) {
  Int whole;
  std::memcpy(&whole, &base, sizeof whole);
  // The exponent such that what is left lies in [sqrt(1/2), sqrt 2).
  const Int exponent = (whole - 0x3f3504f3) >> 23;
  whole -= exponent << 23;
  Vec m;
  std::memcpy(&m, &whole, sizeof m);
  const Vec s = (m - 1.0f) / (m + 1.0f), q = s * s;
  const Vec series = 1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9))));
  const Vec log2 = __builtin_convertvector(exponent, Vec) + 2.885390082f * s * series;
  const Vec t = power * log2;
  const Int n = __builtin_convertvector(t + (t > 0.0f ? all(0.5f) : all(-0.5f)), Int);
  const Vec f = 0.6931471806f * (t - __builtin_convertvector(n, Vec));
  Vec e = 1.0f + f * (1.0f / 7);
  for (int k = 6; k >= 1; --k) e = 1.0f + f * (1.0f / k) * e;
  const Int scale = (n + 127) << 23;
  Vec two;
  std::memcpy(&two, &scale, sizeof two);
  return e * two;
}

// Twice the gradient in pixels of a level, (u, v) right of and below pixel (x, y): central
// differences, bilinear. At the rim the image goes on as it is there.
template <bool RIM>
inline void gradient(const Level &level, int x, int y, float u, float v, float &gx, float &gy) {
  Quad r[4];
  for (int i = 0; i < 4; ++i) {
    if constexpr (RIM) {
      const float *row = level.pixels + (i64)std::clamp(y - 1 + i, 0, level.height - 1) * level.width;
      for (int j = 0; j < 4; ++j) r[i][j] = row[std::clamp(x - 1 + j, 0, level.width - 1)];
    } else {
      std::memcpy(&r[i], level.pixels + (i64)(y - 1 + i) * level.width + x - 1, sizeof r[i]);
    }
  }
  const Quad across = r[1] + v * (r[2] - r[1]), down = (r[2] - r[0]) + v * ((r[3] - r[1]) - (r[2] - r[0]));
  const float left = across[2] - across[0], right = across[3] - across[1];
  gx = left + u * (right - left);
  gy = down[1] + u * (down[2] - down[1]);
}

// The whole number below, and what is left.
inline Int whole(Vec x, Vec &rest) {
  Int i = __builtin_convertvector(x, Int);
  i += x < __builtin_convertvector(i, Vec);  // truncated: one less below 0; true is -1
  rest = x - __builtin_convertvector(i, Vec);
  return i;
}

// A^T grad f at the points first to end around one frame, from one level, 0 beyond the image; to gx,
// gy (end - first, FEATURES) at the frame's place.
void look(const Level &level, i64 height, i64 width, const double *map, const Points &points, i64 first, i64 end,
          float *gx, float *gy) {
  const double step = level.step;
  const float a00 = (float)map[0], a01 = (float)map[1], a10 = (float)map[3], a11 = (float)map[4];
  const float b00 = (float)(map[0] / step), b01 = (float)(map[1] / step);
  const float b10 = (float)(map[3] / step), b11 = (float)(map[4] / step);
  // From the pixel at the centre: rounding then does not depend on where the window is.
  const double x0 = (map[2] - level.origin) / step, y0 = (map[5] - level.origin) / step;
  const double cx = std::floor(x0), cy = std::floor(y0);
  const float dx = (float)(x0 - cx), dy = (float)(y0 - cy);
  const float left = (float)((-0.5 - level.origin) / step - cx), right = left + (float)(width / step);
  const float top = (float)((-0.5 - level.origin) / step - cy), bottom = top + (float)(height / step);
  const std::int32_t column = (std::int32_t)std::clamp(cx - (double)level.left, -1e9, 1e9);
  const std::int32_t row = (std::int32_t)std::clamp(cy - (double)level.top, -1e9, 1e9);
  const float scale = (float)(0.5 / step);
  for (i64 p = first; p < end; p += LANES) {
    // The arrays of points go on for a vector beyond their end.
    const Vec px = load(points.x + p), py = load(points.y + p);
    const Vec x = b00 * px + b01 * py + dx, y = b10 * px + b11 * py + dy;
    const Int inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom);
    Vec fx = {}, fy = {};
    if (bits(inside)) {
      Vec u, v;
      const Int ix = whole(inside ? x : Vec{}, u) + column, iy = whole(inside ? y : Vec{}, v) + row;
      float across[LANES], down[LANES];
      const Int at_rim = (ix < 1) | (iy < 1) | (ix > level.width - 3) | (iy > level.height - 3);
      if (bits(at_rim))
        for (int l = 0; l < LANES; ++l) gradient<true>(level, ix[l], iy[l], u[l], v[l], across[l], down[l]);
      else
        for (int l = 0; l < LANES; ++l) gradient<false>(level, ix[l], iy[l], u[l], v[l], across[l], down[l]);
      fx = inside ? load(across) * scale : Vec{};
      fy = inside ? load(down) * scale : Vec{};
    }
    const Vec hx = a00 * fx + a10 * fy, hy = a01 * fx + a11 * fy;
    for (i64 l = 0; l < std::min<i64>(LANES, end - p); ++l) {
      gx[(p - first + l) * FEATURES] = hx[l];
      gy[(p - first + l) * FEATURES] = hy[l];
    }
  }
}

// Harmonics (2 * order + 1, points, FEATURES) of gradients at the points first to end: rho, then
// rho cos m phi and rho sin m phi, rho = area (smoothing |A^T grad f|)^power.
void expand(const Points &points, i64 first, i64 end, int order, const float *gx, const float *gy, float *harmonics) {
  const i64 channel = points.count * FEATURES;
  for (i64 i = 0; i < (end - first) * FEATURES; i += LANES) {
    const i64 p = first + i / FEATURES;
    const Vec x = load(gx + i), y = load(gy + i);
    const Vec length = root(x * x + y * y);
    const Int there = length > 0.0f;
    const Vec inverse = there ? 1.0f / length : Vec{};
    const Vec cosine = x * inverse, sine = y * inverse;
    Vec weight = length * points.relative[p];
    if (points.power != 1.0f) weight = there ? raised(there ? weight : all(1.0f), points.power) : Vec{};
    weight *= points.areas[p];
    float *out = harmonics + first * FEATURES + i;
    store(out, weight);
    Vec c = weight, s = {};
    for (int m = 1; m <= order; ++m) {
      const Vec next = c * cosine - s * sine;
      s = s * cosine + c * sine;
      c = next;
      store(out + (2 * m - 1) * channel, c);
      store(out + 2 * m * channel, s);
    }
  }
}

// pooled[column] = sum_row factor[row, column] harmonics[row], for WIDE vectors of features at once,
// so that the table, the larger of the two, is read half as often.
void contract(const Factor &factor, const float *harmonics, float *pooled) {
  const i64 groups = (factor.width + COLUMNS - 1) / COLUMNS;
  std::memset(pooled, 0, 4 * groups * COLUMNS * FEATURES);
  for (std::size_t n = 0; n + 1 < factor.starts.size(); ++n) {
    for (int part = 0; part < COLUMNS; part += AT_ONCE) {
      float *out = pooled + ((i64)n % groups * COLUMNS + part) * FEATURES;
      Vec sum[AT_ONCE][WIDE];
      for (int c = 0; c < AT_ONCE; ++c)
        for (int w = 0; w < WIDE; ++w) sum[c][w] = load(out + c * FEATURES + w * LANES);
      const float *value = factor.values.data() + factor.starts[n] * COLUMNS + part;
      for (i64 i = factor.starts[n]; i < factor.starts[n + 1]; ++i, value += COLUMNS) {
        const float *z = harmonics + (i64)factor.rows[i] * FEATURES;
        for (int w = 0; w < WIDE; ++w) {
          const Vec some = load(z + w * LANES);
          for (int c = 0; c < AT_ONCE; ++c) sum[c][w] += value[c] * some;
        }
      }
      for (int c = 0; c < AT_ONCE; ++c)
        for (int w = 0; w < WIDE; ++w) store(out + c * FEATURES + w * LANES, sum[c][w]);
    }
  }
}

// h(beta, x) of frames: harmonics, table, and where beta comes last its synthesis. raw (n, entries).
void describe(const std::vector<Level> &levels, i64 height, i64 width, const Frames &frames,
              const Points &points, const Table &table, float *raw) {
  const i64 channels = 2 * table.order + 1, places = table.factors[0].width;
  const i64 bins = table.synthesis ? table.bins : 1, entries = places * bins;
  i64 columns = 0;
  for (const Factor &factor : table.factors) columns += factor.width;
  std::vector<float> gx(points.count * FEATURES), gy(points.count * FEATURES);
  std::vector<float> harmonics(channels * points.count * FEATURES), pooled((columns + COLUMNS) * FEATURES);
  for (i64 first = 0; first < frames.count; first += FEATURES) {
    const i64 some = std::min<i64>(FEATURES, frames.count - first);
    for (i64 run = 0; run < points.number_of_runs; ++run) {
      const i64 from = points.runs[run], to = points.runs[run + 1];
      for (i64 n = first; n < first + some; ++n)
        look(levels[frames.levels[n * points.number_of_runs + run]], height, width, frames.maps + 6 * n, points, from,
             to, gx.data() + n - first, gy.data() + n - first);
      expand(points, from, to, table.order, gx.data(), gy.data(), harmonics.data());
    }
    const float *rest = harmonics.data();
    float *sums = pooled.data();
    for (const Factor &factor : table.factors) {
      contract(factor, rest, sums);  // what it writes beyond its columns the next one overwrites
      rest += factor.height * FEATURES;
      sums += factor.width * FEATURES;
    }
    for (i64 place = 0; place < places; ++place)
      for (i64 bin = 0; bin < bins; ++bin)
        for (int w = 0; w < WIDE; ++w) {
          const float *sum = pooled.data() + place * FEATURES + w * LANES;
          Vec h = load(sum);
          if (table.synthesis) {
            const float *factors = table.synthesis + bin * channels;
            h *= factors[0];
            for (i64 c = 1; c < channels; ++c) h += factors[c] * load(sum + c * places * FEATURES);
          }
          float *out = raw + (first + w * LANES) * entries + place * bins + bin;
          for (i64 l = 0; l < std::min<i64>(LANES, some - w * LANES); ++l) out[l * entries] = h[l];
        }
  }
}

// scores[r, 0 ... 2 LANES) = sum_k a[r, k] b[k, ...), k from first to last, for R rows.
template <int R>
inline void tile(const float *a, i64 stride_a, const float *b, i64 stride_b, i64 depth, Vec (&sum)[R][2]) {
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = Vec{};
  for (i64 k = 0; k < depth; ++k) {
    const Vec left = load(b + k * stride_b), right = load(b + k * stride_b + LANES);
    for (int r = 0; r < R; ++r) {
      const float value = a[r * stride_a + k];
      sum[r][0] += value * left;
      sum[r][1] += value * right;
    }
  }
}

// result (rows, columns) = a (rows, depth) b, b packed in panels (depth, 2 LANES).
void product(const float *a, i64 rows, i64 depth, const float *b, i64 columns, float *result) {
  for (i64 x = 0; x < columns; x += 2 * LANES) {
    const float *panel = b + x * depth;
    for (i64 y = 0; y < rows; y += ROWS) {
      const i64 some = std::min<i64>(ROWS, rows - y);
      Vec sum[ROWS][2];
      if (some == ROWS) {
        tile<ROWS>(a + y * depth, depth, panel, 2 * LANES, depth, sum);
      } else {
        for (i64 r = 0; r < some; ++r) {
          Vec one[1][2];
          tile<1>(a + (y + r) * depth, depth, panel, 2 * LANES, depth, one);
          sum[r][0] = one[0][0];
          sum[r][1] = one[0][1];
        }
      }
      for (i64 r = 0; r < some; ++r) {
        store(result + (y + r) * columns + x, sum[r][0], columns - x);
        if (x + LANES < columns) store(result + (y + r) * columns + x + LANES, sum[r][1], columns - x - LANES);
      }
    }
  }
}

// The two best of each lane so far.
struct Pair {
  Vec first, second;
  Int nearest, next;
  void add(Vec score, Int column) {
    const Int better = score > first, good = score > second;
    second = better ? first : good ? score : second;
    next = better ? nearest : good ? column : next;
    first = better ? score : first;
    nearest = better ? column : nearest;
  }
};

// The best column of a row, and the best score of another that is not near it. Between equals the
// first column counts. False if a lane may hide a better second.
bool settle(const Pair &pair, const double *xy, double radius, float &first, float &second, i64 &nearest) {
  int lane = 0;
  for (int l = 1; l < LANES; ++l)
    if (pair.first[l] > pair.first[lane] ||
        (pair.first[l] == pair.first[lane] && pair.nearest[l] < pair.nearest[lane]))
      lane = l;
  first = pair.first[lane];
  nearest = pair.nearest[lane];
  const auto near = [&](i64 c) {
    if (c == nearest) return true;
    if (!xy || c < 0) return false;
    return std::max(std::abs(xy[2 * c] - xy[2 * nearest]), std::abs(xy[2 * c + 1] - xy[2 * nearest + 1])) <= radius;
  };
  float hidden = second = -std::numeric_limits<float>::infinity();
  for (int l = 0; l < LANES; ++l) {
    const bool one = near(pair.nearest[l]), two = near(pair.next[l]);
    if (!one) second = std::max(second, pair.first[l]);
    if (!two) second = std::max(second, pair.second[l]);
    if (one && two) hidden = std::max(hidden, pair.second[l]);
  }
  return hidden <= second;
}

// Scores a.b - |a|^2/2 - |b|^2/2 of all pairs, none of them kept: of each row the two best columns,
// of each column the best row's score. b is packed in panels (depth, 2 LANES).
void nearest(const float *a, const float *half_a, i64 rows, i64 depth, const float *packed, const float *half_b,
             i64 columns, const double *xy, double radius, const Best &best, float *best_of_b) {
  const float nothing = -std::numeric_limits<float>::infinity();
  constexpr i64 SOME = 8 * ROWS;
  Int steps;
  for (int l = 0; l < LANES; ++l) steps[l] = l;
  std::vector<float> scores(columns + 2 * LANES);
  for (i64 start = 0; start < rows; start += SOME) {
    const i64 stop = std::min(rows, start + SOME);
    Pair pairs[SOME];
    for (Pair &pair : pairs) pair = {all(nothing), all(nothing), all(-1), all(-1)};
    for (i64 x = 0; x < columns; x += 2 * LANES) {
      const Vec half[2] = {load(half_b + x), load(half_b + x + LANES)};
      Vec tops[2] = {load(best_of_b + x), load(best_of_b + x + LANES)};
      const auto use = [&](i64 y, Vec (&sum)[2]) {
        for (int side = 0; side < 2; ++side) {
          const Vec score = sum[side] - half[side] - half_a[y];
          pairs[y - start].add(score, steps + (std::int32_t)(x + side * LANES));
          tops[side] = max(tops[side], score);
        }
      };
      i64 y = start;
      for (; y + ROWS <= stop; y += ROWS) {
        Vec sum[ROWS][2];
        tile<ROWS>(a + y * depth, depth, packed + x * depth, 2 * LANES, depth, sum);
        for (int r = 0; r < ROWS; ++r) use(y + r, sum[r]);
      }
      for (; y < stop; ++y) {
        Vec sum[1][2];
        tile<1>(a + y * depth, depth, packed + x * depth, 2 * LANES, depth, sum);
        use(y, sum[0]);
      }
      store(best_of_b + x, tops[0]);
      store(best_of_b + x + LANES, tops[1]);
    }
    for (i64 y = start; y < stop; ++y) {
      if (settle(pairs[y - start], xy, radius, best.first[y], best.second[y], best.nearest[y])) continue;
      product(a + y * depth, 1, depth, packed, columns, scores.data());
      float second = nothing;
      const i64 c0 = best.nearest[y];
      for (i64 c = 0; c < columns; ++c) {
        const double apart = std::max(std::abs(xy[2 * c] - xy[2 * c0]), std::abs(xy[2 * c + 1] - xy[2 * c0 + 1]));
        if (apart > radius) second = std::max(second, scores[c] - half_b[c] - half_a[y]);
      }
      best.second[y] = second;
    }
  }
}

}  // namespace

#define NAME_(kind) kernels_##kind
#define NAME(kind) NAME_(kind)
extern const Kernels NAME(CALORIC_KIND) = {octave, candidates, describe, product, nearest, LANES};

}  // namespace caloric
