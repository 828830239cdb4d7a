// Descriptors of frames: gradients, their harmonics, and the product with a table; compiled once per
// instruction set.
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

// Vectors of features per column of a table that are summed at once: as many as fit in registers.
#if defined(CALORIC_NEON)
constexpr int FEATURE_VECTORS = 4;
#else
constexpr int FEATURE_VECTORS = 2;
#endif
constexpr int FEATURES = FEATURE_VECTORS * LANES;  // described at once

// The three hot functions below are not inlined: in one large function the compiler would spill registers.

// base^power for base > 0 with a relative error below 3e-7: 2^(power log2 base), both by minimax polynomials on
// the reduced intervals (errors 5e-8 and 2e-9). Even and odd terms are summed separately, so that neither sum
// waits for the other.
inline Vec vector_pow(Vec base, float power) {
  const IntVec bits = (IntVec)base;
  // The exponent for which the mantissa 1 + f is in [sqrt(1/2), sqrt(2)).
  const IntVec exponent = (bits - 0x3f3504f3) >> 23;
  const Vec f = (Vec)(bits - (exponent << 23)) - 1.0f, q = f * f;
  Vec even = mul_add(0.1231096846719146f, q, broadcast(0.21607822552243777f));
  Vec odd = mul_add(-0.20586188051276055f, q, broadcast(-0.2391698814010418f));
  even = mul_add(even, q, broadcast(0.28790326092450147f));
  odd = mul_add(odd, q, broadcast(-0.36069326813533614f));
  even = mul_add(even, q, broadcast(0.48091075345941253f));
  odd = mul_add(odd, q, broadcast(-0.7213474682495624f));
  even = mul_add(even, q, broadcast(1.4426950035679822f));
  const Vec log2 = mul_add(f, mul_add(odd, f, even), __builtin_convertvector(exponent, Vec));
  const Vec t = power * log2;
  const Vec shift = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec rounded = t + shift, g = t - (rounded - shift), r = g * g;
  even = mul_add(0.0001546144469856913f, r, broadcast(0.009618056678524637f));
  odd = mul_add(0.0013400428177615838f, r, broadcast(0.05550327226670302f));
  even = mul_add(even, r, broadcast(0.24022650922288757f));
  odd = mul_add(odd, r, broadcast(0.6931472067028326f));
  even = mul_add(even, r, broadcast(1.0f));
  const IntVec scale = ((IntVec)rounded - 0x4b400000 + 127) << 23;
  return mul_add(odd, g, even) * (Vec)scale;
}

// Computes twice the gradients at four points, per pixel of a level: central differences, interpolated
// bilinearly. A point is (u, v) to the right of and below a pixel, whose 4 x 4 neighborhood `read` loads.
template <typename Read>
inline void gradients(const Read &read, const float *u, const float *v, float *gx, float *gy) {
  Vec4 across[4], down[4];
  for (int n = 0; n < 4; ++n) {
    Vec4 r[4];
    read(n, r);
    const Vec4 fraction = v[n] - Vec4{}, first = r[2] - r[0];
    across[n] = mul_add4(fraction, r[2] - r[1], r[1]);
    down[n] = mul_add4(fraction, (r[3] - r[1]) - first, first);
  }
  transpose(across);
  transpose(down);
  const Vec4 left = across[2] - across[0], right = across[3] - across[1], fraction = load4(u);
  store4(gx, mul_add4(fraction, right - left, left));
  store4(gy, mul_add4(fraction, down[2] - down[1], down[1]));
}

// Points first to end of a run, and how far they are from the center, including the padding of the last vector.
struct Run {
  i64 first, end;
  float extent_x = 0, extent_y = 0;
  Run(const Points &points, i64 first, i64 end) : first(first), end(end) {
    for (i64 p = first; p < (end - first + LANES - 1) / LANES * LANES + first; ++p) {
      extent_x = std::max(extent_x, std::abs(points.x[p]));
      extent_y = std::max(extent_y, std::abs(points.y[p]));
    }
  }
};

// Positions of points in a level: the pixel, and the fractions to the right of and below it.
struct PixelPositions {
  Aligned<float> u, v;
  std::vector<std::int32_t> pixel;
  explicit PixelPositions(i64 count) : u(count), v(count), pixel(count) {}
};

// Computes A^T grad f at the points of a run around one frame, from one level of an image (height, width). The
// gradient outside of the image is 0. The results gx, gy (end - first,) are padded to whole vectors.
[[gnu::noinline]] void sample_gradients(const Level &level, i64 height, i64 width, const double *map,
                                        const Points &points, const Run &run, PixelPositions &positions, float *gx,
                                        float *gy) {
  const i64 first = run.first, end = run.end;
  const double inverse_step = 1 / level.step;  // a power of two: products with it are exact
  const float a00 = (float)map[0], a01 = (float)map[1], a10 = (float)map[3], a11 = (float)map[4];
  const float b00 = (float)(map[0] * inverse_step), b01 = (float)(map[1] * inverse_step);
  const float b10 = (float)(map[3] * inverse_step), b11 = (float)(map[4] * inverse_step);
  // Positions are relative to the pixel at the center, so that rounding does not depend on the window.
  const double x0 = (map[2] - level.origin) * inverse_step, y0 = (map[5] - level.origin) * inverse_step;
  const double cx = std::floor(x0), cy = std::floor(y0);
  const float dx = (float)(x0 - cx), dy = (float)(y0 - cy);
  const float left = (float)((-0.5 - level.origin) * inverse_step - cx), right = left + (float)(width * inverse_step);
  const float top = (float)((-0.5 - level.origin) * inverse_step - cy), bottom = top + (float)(height * inverse_step);
  const std::int32_t column = (std::int32_t)std::clamp(cx - (double)level.left, -1e9, 1e9);
  const std::int32_t row = (std::int32_t)std::clamp(cy - (double)level.top, -1e9, 1e9);
  const float scale = (float)(0.5 * inverse_step);
  const auto transform = [&](i64 p, float b0, float b1, float d) {
    return mul_add(b0, load(points.x + p), mul_add(b1, load(points.y + p), broadcast(d)));
  };
  const auto write = [&](i64 p, Vec fx, Vec fy) {
    store(gx + p - first, mul_add(a00, fx, a10 * fy));
    store(gy + p - first, mul_add(a01, fx, a11 * fy));
  };
  const auto load_rows = [&](const float *corner, Vec4(&r)[4]) {
    for (int k = 0; k < 4; ++k) r[k] = load4(corner + k * (i64)level.width);
  };
  float across[LANES], down[LANES];
  // For most frames all points are inside the image and the level. One extra pixel allows for rounding.
  const float reach_x = std::abs(b00) * run.extent_x + std::abs(b01) * run.extent_y + 2;
  const float reach_y = std::abs(b10) * run.extent_x + std::abs(b11) * run.extent_y + 2;
  if (reach_x < 1e6f && reach_y < 1e6f && -reach_x >= left && reach_x + 1 <= right && -reach_y >= top &&
      reach_y + 1 <= bottom && column - reach_x >= 1 && row - reach_y >= 1 && column + reach_x <= level.width - 4 &&
      row + reach_y <= level.height - 4) {
    // Compute all positions before reading pixels, so that loads do not wait for addresses.
    for (i64 p = first; p < end; p += LANES) {
      const Vec x = transform(p, b00, b01, dx), y = transform(p, b10, b11, dy);
      const IntVec ix = floor_to_int(x), iy = floor_to_int(y);
      const IntVec pixel = (iy + (row - 1)) * level.width + ix + (column - 1);
      store(positions.u.data() + p - first, x - __builtin_convertvector(ix, Vec));
      store(positions.v.data() + p - first, y - __builtin_convertvector(iy, Vec));
      std::memcpy(positions.pixel.data() + p - first, &pixel, sizeof pixel);
    }
    for (i64 p = first; p < end; p += LANES) {
      for (int l = 0; l < LANES; l += 4) {
        const i64 i = p - first + l;
        gradients([&](int n, Vec4(&r)[4]) { load_rows(level.pixels + positions.pixel[i + n], r); },
                  positions.u.data() + i, positions.v.data() + i, across + l, down + l);
      }
      write(p, load(across) * scale, load(down) * scale);
    }
    return;
  }
  for (i64 p = first; p < end; p += LANES) {
    const Vec x = transform(p, b00, b01, dx), y = transform(p, b10, b11, dy);
    const IntVec inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom);
    if (!any(inside)) {
      write(p, Vec{}, Vec{});
      continue;
    }
    const Vec xs = inside ? x : Vec{}, ys = inside ? y : Vec{};
    const IntVec floor_x = floor_to_int(xs), floor_y = floor_to_int(ys), ix = floor_x + column, iy = floor_y + row;
    float u[LANES], v[LANES];
    store(u, xs - __builtin_convertvector(floor_x, Vec));
    store(v, ys - __builtin_convertvector(floor_y, Vec));
    std::int32_t columns[LANES], rows[LANES];
    std::memcpy(columns, &ix, sizeof ix);
    std::memcpy(rows, &iy, sizeof iy);
    for (int l = 0; l < LANES; l += 4)
      gradients(
          [&](int n, Vec4(&r)[4]) {
            const std::int32_t x = columns[l + n] - 1, y = rows[l + n] - 1;
            if (x >= 0 && x <= level.width - 4 && y >= 0 && y <= level.height - 4) {
              load_rows(level.pixels + y * (i64)level.width + x, r);
              return;
            }
            // Borders are replicated.
            for (int i = 0; i < 4; ++i) {
              const float *row = level.pixels + (i64)std::clamp(y + i, 0, level.height - 1) * level.width;
              for (int j = 0; j < 4; ++j) r[i][j] = row[std::clamp(x + j, 0, level.width - 1)];
            }
          },
          u + l, v + l, across + l, down + l);
    write(p, inside ? load(across) * scale : Vec{}, inside ? load(down) * scale : Vec{});
  }
}

// Transposes (FEATURES, stride) to (count, FEATURES), with count rounded up to a multiple of 4.
void interleave(const float *in, i64 stride, i64 count, float *out) {
  for (i64 p = 0; p < count; p += 4)
    for (int f = 0; f < FEATURES; f += 4) {
      Vec4 q[4];
      for (int i = 0; i < 4; ++i) q[i] = load4(in + (f + i) * stride + p);
      transpose(q);
      for (int i = 0; i < 4; ++i) store4(out + (p + i) * FEATURES + f, q[i]);
    }
}

// The gradients of LANES features at one point: rho, cos phi and sin phi.
struct Polar {
  Vec weight, cosine, sine;
  Polar(const float *gx, const float *gy, float factor, float power) {
    const Vec x = load(gx), y = load(gy), length = square_root(mul_add(x, x, y * y));
    const IntVec nonzero = length > 0.0f;
    const Vec inverse = nonzero ? 1.0f / length : Vec{};
    cosine = x * inverse;
    sine = y * inverse;
    weight = factor * (power == 1.0f ? length : nonzero ? vector_pow(length, power) : Vec{});
  }
  // Replaces rho cos (m - 1) phi and rho sin (m - 1) phi by those of m.
  void next_harmonic(Vec &c, Vec &s) const {
    const Vec next = mul_add(-s, sine, c * cosine);
    s = mul_add(s, cosine, c * sine);
    c = next;
  }
};

// Computes harmonics (2 order + 1, points, FEATURES) of gradients at points first to end: rho, then rho cos m phi
// and rho sin m phi, where rho = factor |A^T grad f|^power. Of two mirrored points the first gets the even part
// (their sum), the second the odd part (their difference).
[[gnu::noinline]] void expand(const Points &points, i64 first, i64 end, int order, const float *gx, const float *gy,
                              float *harmonics) {
  const i64 channel = points.count * FEATURES;
  for (i64 p = first; p < end; ++p) {
    const i64 q = points.partners[p];
    if (q < p) continue;
    for (int w = 0; w < FEATURE_VECTORS; ++w) {
      const i64 i = (p - first) * FEATURES + w * LANES, j = (q - first) * FEATURES + w * LANES;
      const Polar one(gx + i, gy + i, points.factors[p], points.power);
      float *even = harmonics + first * FEATURES + i;
      Vec c = one.weight, s = {};
      if (q == p) {
        store(even, c);
        for (int m = 1; m <= order; ++m) {
          one.next_harmonic(c, s);
          store(even + (2 * m - 1) * channel, c);
          store(even + 2 * m * channel, s);
        }
        continue;
      }
      const Polar two(gx + j, gy + j, points.factors[q], points.power);
      float *odd = harmonics + first * FEATURES + j;
      Vec d = two.weight, t = {};
      store(even, c + d);
      store(odd, c - d);
      for (int m = 1; m <= order; ++m) {
        one.next_harmonic(c, s);
        two.next_harmonic(d, t);
        store(even + (2 * m - 1) * channel, c + d);
        store(odd + (2 * m - 1) * channel, c - d);
        store(even + 2 * m * channel, s - t);
        store(odd + 2 * m * channel, s + t);
      }
    }
  }
}

// Computes pooled[column] = sum_row factor[row, column] harmonics[row]. Several vectors of features are summed at
// once, so that the table, which is larger than the harmonics, is read less often.
[[gnu::noinline]] void contract(const Factor &factor, const float *harmonics, float *pooled) {
  const i64 groups = (i64)factor.columns.size() / COLUMNS;
  std::memset(pooled, 0, 4 * (factor.width + 1) * FEATURES);
  for (std::size_t n = 0; n + 1 < factor.starts.size(); ++n) {
    const std::int32_t *columns = factor.columns.data() + (i64)n % groups * COLUMNS;
    Vec sum[COLUMNS][FEATURE_VECTORS];
    for (int c = 0; c < COLUMNS; ++c)
      for (int w = 0; w < FEATURE_VECTORS; ++w) sum[c][w] = load(pooled + (i64)columns[c] * FEATURES + w * LANES);
    const float *value = factor.values.data() + factor.starts[n] * COLUMNS;
    for (i64 i = factor.starts[n]; i < factor.starts[n + 1]; ++i, value += COLUMNS) {
      const float *z = harmonics + (i64)factor.rows[i] * FEATURES;
      const FourScalars values(value);
      unroll<FEATURE_VECTORS>([&](auto w) {
        const Vec features = load(z + w * LANES);
        unroll<COLUMNS>([&](auto c) { sum[c][w] = values.template mul_add_lane<c>(features, sum[c][w]); });
      });
    }
    for (int c = 0; c < COLUMNS; ++c)
      for (int w = 0; w < FEATURE_VECTORS; ++w) store(pooled + (i64)columns[c] * FEATURES + w * LANES, sum[c][w]);
  }
}

// Replaces the even and odd parts of mirrored columns by the columns.
void separate(const std::vector<MirroredColumns> &mirrored, float *pooled) {
  for (const MirroredColumns &pair : mirrored)
    for (int w = 0; w < FEATURE_VECTORS; ++w) {
      float *first = pooled + pair.first * FEATURES + w * LANES, *second = pooled + pair.second * FEATURES + w * LANES;
      const Vec even = load(first), odd = load(second);
      store(first, even + odd);
      store(second, pair.is_sine ? odd - even : even - odd);
    }
}

}  // namespace

// Computes h(beta, x) of frames: the harmonics multiplied by the table and, if there is one, by its synthesis.
// The result `raw` is (frames, entries).
void describe(const std::vector<Level> &levels, i64 height, i64 width, const Frames &frames, const Points &points,
              const Table &table, float *raw) {
  const float *synthesis = table.synthesis.empty() ? nullptr : table.synthesis.data();
  const i64 channels = 2 * table.order + 1, positions = table.factors[0].width, bins = table.bins;
  const i64 entries = table.entries();
  i64 columns = 0, max_run = 0;
  std::vector<Run> runs;
  for (const Factor &factor : table.factors) columns += factor.width;
  for (i64 r = 0; r < points.run_count; ++r) {
    runs.emplace_back(points, points.runs[r], points.runs[r + 1]);
    max_run = std::max(max_run, runs[r].end - runs[r].first);
  }
  const i64 stride = max_run + LANES;  // floats per feature: whole vectors are written
  PixelPositions pixels(stride);
  Aligned<float> gx(FEATURES * stride), gy(FEATURES * stride), gx_by_point(gx.size()), gy_by_point(gy.size());
  Aligned<float> harmonics(channels * points.count * FEATURES), pooled((columns + 1) * FEATURES);
  for (i64 first = 0; first < frames.count; first += FEATURES) {
    const i64 count = std::min<i64>(FEATURES, frames.count - first);
    for (i64 r = 0; r < points.run_count; ++r) {
      const Run &run = runs[r];
      for (i64 n = 0; n < count; ++n)
        sample_gradients(levels[frames.levels[(first + n) * points.run_count + r]], height, width,
                         frames.maps + 6 * (first + n), points, run, pixels, gx.data() + n * stride,
                         gy.data() + n * stride);
      interleave(gx.data(), stride, run.end - run.first, gx_by_point.data());
      interleave(gy.data(), stride, run.end - run.first, gy_by_point.data());
      expand(points, run.first, run.end, table.order, gx_by_point.data(), gy_by_point.data(), harmonics.data());
    }
    const float *input = harmonics.data();
    float *output = pooled.data();
    for (const Factor &factor : table.factors) {
      contract(factor, input, output);  // also writes a padding column, which the next factor clears
      input += factor.height * FEATURES;
      output += factor.width * FEATURES;
    }
    separate(table.mirrored, pooled.data());
    for (i64 position = 0; position < positions; ++position)
      for (i64 bin = 0; bin < bins; ++bin)
        for (int w = 0; w < FEATURE_VECTORS; ++w) {
          const float *sum = pooled.data() + position * FEATURES + w * LANES;
          Vec h = load(sum);
          if (synthesis) {
            const float *factors = synthesis + bin * channels;
            h *= factors[0];
            for (i64 c = 1; c < channels; ++c) h = mul_add(factors[c], load(sum + c * positions * FEATURES), h);
          }
          float *out = raw + (first + w * LANES) * entries + position * bins + bin;
          for (i64 l = 0; l < std::min<i64>(LANES, count - w * LANES); ++l) out[l * entries] = h[l];
        }
  }
}

}  // namespace caloric::CALORIC_BUILD
