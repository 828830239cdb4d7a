// Scale space, extrema, descriptors and neighbours; compiled once for each kind of processor.
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric {
namespace {

// As many sums at once as there are registers for: ROWS of a product by two vectors, COLUMNS of a table
// by WIDE vectors, and a band of four rows by STRIPE vectors of a blur.
#if defined(__AVX512F__)
constexpr int ROWS = 12, WIDE = 2, STRIPE = 4;
#elif defined(__AVX2__)
constexpr int ROWS = 6, WIDE = 2, STRIPE = 2;
#elif defined(CALORIC_NEON)
constexpr int ROWS = 10, WIDE = 4, STRIPE = 4;
#else
constexpr int ROWS = 4, WIDE = 2, STRIPE = 2;
#endif
constexpr int FEATURES = WIDE * LANES;  // described at once

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
  const float *weights = layer.weights.data(), *centre = layer.taps + radius;
  const i64 stride = width + 2 * radius + 2 * LANES;
  const auto down = [&](auto count, i64 x, auto read) {
    constexpr int N = decltype(count)::value;
    Vec sum[N][BAND] = {};
    for (int k = 0; k < reach; ++k) {
      const Four four(weights + k);  // the weights of row k in the sums BAND - 1 ... 0
      Vec pixels[N];
      for (int v = 0; v < N; ++v) pixels[v] = read(row[k] + x + v * LANES);
      // These are more rows than a processor foresees, and more than the first cache holds.
      __builtin_prefetch(row[k] + x + 2 * N * LANES);
      unrolled<BAND>([&](auto j) {
        for (int v = 0; v < N; ++v) sum[v][j] = four.template fused<BAND - 1 - j>(pixels[v], sum[v][j]);
      });
    }
    for (int v = 0; v < N; ++v)
      for (int j = 0; j < BAND; ++j) store(buffer + j * stride + radius + x + v * LANES, sum[v][j]);
  };
  constexpr std::integral_constant<int, 1> one{};
  constexpr std::integral_constant<int, STRIPE> stripe{};
  const auto whole = [](const float *p) { return load(p); };
  i64 x = 0;
  for (; x + STRIPE * LANES <= width; x += STRIPE * LANES) down(stripe, x, whole);
  for (; x + LANES <= width; x += LANES) down(one, x, whole);
  if (x < width) down(one, x, [&](const float *p) { return load(p, width - x); });
  for (i64 j = 0; j < rows; ++j) {
    float *line = buffer + j * stride + radius, *out = layer.row(layer.done + j);
    for (int k = 1; k <= radius; ++k) {
      line[-k] = line[reflected(-k, width)];
      line[width - 1 + k] = line[reflected(width - 1 + k, width)];
    }
    const auto across = [&](auto count, const float *p, auto write) {
      constexpr int N = decltype(count)::value;
      Vec sum[N];
      for (int v = 0; v < N; ++v) sum[v] = centre[0] * load(p + v * LANES);
      for (int k = 1; k <= radius; ++k)
        for (int v = 0; v < N; ++v)
          sum[v] = fused(centre[k], load(p + v * LANES - k) + load(p + v * LANES + k), sum[v]);
      for (int v = 0; v < N; ++v) write(v * LANES, sum[v]);
    };
    const auto write = [&](i64 at, Vec v) { store(out + x + at, v); };
    for (x = 0; x + STRIPE * LANES <= width; x += STRIPE * LANES) across(stripe, line + x, write);
    for (; x + LANES <= width; x += LANES) across(one, line + x, write);
    if (x < width) across(one, line + x, [&](i64, Vec v) { store(out + x, v, width - x); });
  }
}

// Rows of an image enlarged twofold, two pixels a quarter to either side of each old one: across,
// then down. Beyond the rim the image goes on as it is there.
class Enlarging {
 public:
  Enlarging(const float *base, i64 stride, i64 height, i64 width, i64 kept)
      : base_(base), stride_(stride), height_(height), width_(width), kept_(kept), rows_(kept * 2 * width), across_(3 * 2 * width) {
    std::fill(which_, which_ + 3, -1);
  }
  // Row y of 2 * height; rows are asked for in rising order, and the last `kept` stay.
  const float *row(i64 y) { return rows_.data() + (y % kept_) * 2 * width_; }
  void make(i64 y) {
    const float *here = across(y / 2), *beside = across(std::clamp<i64>(y / 2 + (y % 2 ? 1 : -1), 0, height_ - 1));
    float *out = rows_.data() + (y % kept_) * 2 * width_;
    for (i64 x = 0; x < 2 * width_; ++x) out[x] = between(here[x], beside[x]);
  }

 private:
  // A quarter of a number is exact: the sum is rounded once, and so the same with and without fused products.
  static float between(float here, float beside) { return fused1(0.25f, beside - here, here); }
  const float *across(i64 y) {
    float *out = across_.data() + (y % 3) * 2 * width_;
    if (which_[y % 3] == y) return out;
    which_[y % 3] = y;
    const float *p = base_ + y * stride_;
    out[0] = p[0];
    for (i64 x = 1; x < width_; ++x) {
      out[2 * x - 1] = between(p[x - 1], p[x]);
      out[2 * x] = between(p[x], p[x - 1]);
    }
    out[2 * width_ - 1] = p[width_ - 1];
    return out;
  }
  const float *base_;
  i64 stride_, height_, width_, kept_;
  std::vector<float> rows_, across_;
  i64 which_[3];
};

// Rows top to bottom of all layers of an octave, each smoothed from the one before. The layers grow
// together, a few rows at a time, so that a layer's rows are still in the cache when the next reads
// them; rows beyond top and bottom that it needs are made and not kept. With `enlarged` the base has
// half as many rows and columns.
void octave(const float *base, i64 stride, bool enlarged, float *const *targets, i64 height, i64 width,
            const float *const *taps, const int *radii, int count, i64 top, i64 bottom) {
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
  Enlarging twice(base, stride, enlarged ? height / 2 : 0, enlarged ? width / 2 : 0, 2 * radii[0] + 2 * BAND);
  i64 made = first;  // rows of it
  std::vector<float> buffer(BAND * (width + 2 * widest + 2 * LANES) + LANES);
  std::vector<const float *> row(2 * widest + BAND);
  while (layers[count - 1].done < bottom) {
    // The last layer that has what it needs for its next rows.
    int i = count - 1;
    while (i > 0 && layers[i - 1].done < std::min(layers[i].done + BAND + layers[i].radius, layers[i - 1].end)) --i;
    Smoothing &layer = layers[i];
    if (i == 0 && enlarged)
      for (; made < std::min(layer.done + layer.radius + BAND, height); ++made) twice.make(made);
    for (int k = 0; k < 2 * layer.radius + BAND; ++k) {
      i64 y = reflected(layer.done - layer.radius + k, height);
      if (i == 0) {
        // Past the last row of the image no sum counts the mirrored ones, which may be gone.
        row[k] = enlarged ? twice.row(std::max(y, made - 2 * layer.radius - 2 * BAND)) : base + y * stride;
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

// Pixels of rows top to bottom where |D_i| is above the limit and none of the 26 neighbours is larger, D_i
// the difference of levels i + 1 and i. Three rows of the maximum over three layers are kept.
// LEVELS is their number where it is known to the compiler, else 0.
template <int LEVELS>
void find_candidates(const float *const *levels, int count, i64 height, i64 width, float limit, i64 top,
                     i64 bottom, std::vector<Candidate> &found) {
  const int layers = (LEVELS ? LEVELS : count) - 1, inner = layers - 2;
  const i64 stride = (width + 2 * LANES) / LANES * LANES;
  std::vector<float> sizes(2 * layers * stride), tallest(3 * inner * stride), crest(stride + LANES);
  for (i64 y = std::max<i64>(top, 1) - 1; y <= std::min(bottom, height - 1); ++y) {
    float *size = sizes.data() + (y % 2) * layers * stride;
    float *high = tallest.data() + (y % 3) * inner * stride;
    const auto differences = [&](i64 x, auto read) {
      Vec below = read(levels[0] + y * width + x), d[16];
      for (int i = 0; i < layers; ++i) {
        const Vec above = read(levels[i + 1] + y * width + x);
        d[i] = apart(above, below);
        if (i > 0 && i <= inner) store(size + i * stride + x, d[i]);
        below = above;
      }
      for (int i = 0; i < inner; ++i) store(high + i * stride + x, max(max(d[i], d[i + 1]), d[i + 2]));
    };
    i64 x = 0;
    for (; x + LANES <= width; x += LANES) {
      if (x % 16 == 0)
        for (int i = 0; i <= layers; ++i) __builtin_prefetch(levels[i] + y * width + x + 64);
      differences(x, [](const float *p) { return load(p); });
    }
    if (x < width) differences(x, [&](const float *p) { return load(p, width - x); });
    const i64 row = y - 1;
    if (row < std::max<i64>(top, 1) || row >= std::min(bottom, height - 1)) continue;
    const float *middle = sizes.data() + (row % 2) * layers * stride;
    for (int i = 0; i < inner; ++i) {
      const float *value = middle + (i + 1) * stride, *rows[3];
      for (int r = 0; r < 3; ++r) rows[r] = tallest.data() + (r * inner + i) * stride;
      for (i64 x = 0; x < width; x += LANES)
        store(crest.data() + x, max(max(load(rows[0] + x), load(rows[1] + x)), load(rows[2] + x)));
      // Few are there: asked of several vectors at once.
      const auto check = [&](auto count, i64 x) {
        constexpr int N = decltype(count)::value;
        Int peak[N], some = {};
        for (int n = 0; n < N; ++n) {
          const float *c = crest.data() + x + n * LANES;
          const Vec v = load(value + x + n * LANES);
          peak[n] = (v > limit) & (v >= load(c)) & (v >= max(load(c - 1), load(c + 1)));
          some |= peak[n];
        }
        if (!any(some)) return;
        for (int n = 0; n < N; ++n)
          for (std::uint32_t mask = bits(peak[n]); mask; mask &= mask - 1) {
            const i64 at = x + n * LANES + __builtin_ctz(mask);
            if (at < width - 1) found.push_back({i + 1, (std::int32_t)row, (std::int32_t)at});
          }
      };
      i64 x = 1;
      for (; x + 4 * LANES <= width; x += 4 * LANES) check(std::integral_constant<int, 4>{}, x);
      for (; x < width - 1; x += LANES) check(std::integral_constant<int, 1>{}, x);
    }
  }
}

void candidates(const float *const *levels, int count, i64 height, i64 width, float limit, i64 top,
                i64 bottom, std::vector<Candidate> &found) {
  (count == 6 ? find_candidates<6> : find_candidates<0>)(levels, count, height, width, limit, top, bottom, found);
}

// base^power for base > 0, within 3e-7: 2^(power log2 base), both by polynomials that are nearest to
// them on the intervals that are left (errors of 5e-8 and 2e-9). Even and odd terms apart, so that the
// one sum need not wait for the other.
inline Vec raised(Vec base, float power) {
  const Int whole = (Int)base;
  // The exponent such that what is left, 1 + f, lies in [sqrt(1/2), sqrt 2).
  const Int exponent = (whole - 0x3f3504f3) >> 23;
  const Vec f = (Vec)(whole - (exponent << 23)) - 1.0f, q = f * f;
  Vec even = fused(0.1231096846719146f, q, all(0.21607822552243777f));
  Vec odd = fused(-0.20586188051276055f, q, all(-0.2391698814010418f));
  even = fused(even, q, all(0.28790326092450147f));
  odd = fused(odd, q, all(-0.36069326813533614f));
  even = fused(even, q, all(0.48091075345941253f));
  odd = fused(odd, q, all(-0.7213474682495624f));
  even = fused(even, q, all(1.4426950035679822f));
  const Vec log2 = fused(f, fused(odd, f, even), __builtin_convertvector(exponent, Vec));
  const Vec t = power * log2;
  const Vec shift = all(12582912.0f);  // 1.5 2^23: what is added to it is rounded to a whole number
  const Vec rounded = t + shift, g = t - (rounded - shift), r = g * g;
  even = fused(0.0001546144469856913f, r, all(0.009618056678524637f));
  odd = fused(0.0013400428177615838f, r, all(0.05550327226670302f));
  even = fused(even, r, all(0.24022650922288757f));
  odd = fused(odd, r, all(0.6931472067028326f));
  even = fused(even, r, all(1.0f));
  const Int scale = ((Int)rounded - 0x4b400000 + 127) << 23;
  return fused(odd, g, even) * (Vec)scale;
}

// Twice the gradients in pixels of a level at four points, (u, v) right of and below the pixels that
// `corner` reads the 4 x 4 surroundings of: central differences, bilinear.
template <typename Corner>
inline void gradients(const Corner &corner, const float *u, const float *v, float *gx, float *gy) {
  Quad across[4], down[4];
  for (int n = 0; n < 4; ++n) {
    Quad r[4];
    corner(n, r);
    const Quad share = v[n] - Quad{}, here = r[2] - r[0];
    across[n] = fused4(share, r[2] - r[1], r[1]);
    down[n] = fused4(share, (r[3] - r[1]) - here, here);
  }
  transpose(across);
  transpose(down);
  const Quad left = across[2] - across[0], right = across[3] - across[1], share = load4(u);
  store4(gx, fused4(share, right - left, left));
  store4(gy, fused4(share, down[2] - down[1], down[1]));
}

// How far the points of a run lie from the centre of a frame, a vector beyond its end included.
struct Reach {
  float x = 0, y = 0;
  Reach(const Points &points, i64 first, i64 end) {
    for (i64 p = first; p < (end - first + LANES - 1) / LANES * LANES + first; ++p) {
      x = std::max(x, std::abs(points.x[p]));
      y = std::max(y, std::abs(points.y[p]));
    }
  }
};

// Of points: which pixel of a level, and how far right of and below it.
struct Places {
  std::vector<float> u, v;
  std::vector<std::int32_t> at;
  explicit Places(i64 count) : u(count), v(count), at(count) {}
};

// A^T grad f at the points first to end around one frame, from one level, 0 beyond the image; to gx,
// gy (end - first) and up to a vector beyond.
void look(const Level &level, i64 height, i64 width, const double *map, const Points &points, const Reach &reach,
          Places &places, i64 first, i64 end, float *gx, float *gy) {
  const double per = 1 / level.step;  // a power of two: products with it are exact
  const float a00 = (float)map[0], a01 = (float)map[1], a10 = (float)map[3], a11 = (float)map[4];
  const float b00 = (float)(map[0] * per), b01 = (float)(map[1] * per);
  const float b10 = (float)(map[3] * per), b11 = (float)(map[4] * per);
  // From the pixel at the centre: rounding then does not depend on where the window is.
  const double x0 = (map[2] - level.origin) * per, y0 = (map[5] - level.origin) * per;
  const double cx = std::floor(x0), cy = std::floor(y0);
  const float dx = (float)(x0 - cx), dy = (float)(y0 - cy);
  const float left = (float)((-0.5 - level.origin) * per - cx), right = left + (float)(width * per);
  const float top = (float)((-0.5 - level.origin) * per - cy), bottom = top + (float)(height * per);
  const std::int32_t column = (std::int32_t)std::clamp(cx - (double)level.left, -1e9, 1e9);
  const std::int32_t row = (std::int32_t)std::clamp(cy - (double)level.top, -1e9, 1e9);
  const float scale = (float)(0.5 * per);
  // The arrays of points go on for a vector beyond their end.
  const auto place = [&](i64 p, float b0, float b1, float d) {
    return fused(b0, load(points.x + p), fused(b1, load(points.y + p), all(d)));
  };
  const auto write = [&](i64 p, Vec fx, Vec fy) {
    store(gx + p - first, fused(a00, fx, a10 * fy));
    store(gy + p - first, fused(a01, fx, a11 * fy));
  };
  float across[LANES], down[LANES];
  // Of most frames all points lie within the image and the level: a pixel more than they reach, for rounding.
  const float far_x = std::abs(b00) * reach.x + std::abs(b01) * reach.y + 2;
  const float far_y = std::abs(b10) * reach.x + std::abs(b11) * reach.y + 2;
  if (far_x < 1e6f && far_y < 1e6f && -far_x >= left && far_x + 1 <= right && -far_y >= top && far_y + 1 <= bottom &&
      column - far_x >= 1 && row - far_y >= 1 && column + far_x <= level.width - 4 && row + far_y <= level.height - 4) {
    // First where they are, then what is there: reading does not wait for what it takes to know where.
    for (i64 p = first; p < end; p += LANES) {
      const Vec x = place(p, b00, b01, dx), y = place(p, b10, b11, dy);
      const Int whole_x = below(x), whole_y = below(y), at = (whole_y + (row - 1)) * level.width + whole_x + (column - 1);
      store(places.u.data() + p - first, x - __builtin_convertvector(whole_x, Vec));
      store(places.v.data() + p - first, y - __builtin_convertvector(whole_y, Vec));
      std::memcpy(places.at.data() + p - first, &at, sizeof at);
    }
    for (i64 p = first; p < end; p += LANES) {
      for (int l = 0; l < LANES; l += 4) {
        const i64 i = p - first + l;
        gradients(
            [&](int n, Quad (&r)[4]) {
              const float *corner = level.pixels + places.at[i + n];
              for (int k = 0; k < 4; ++k) r[k] = load4(corner + k * (i64)level.width);
            },
            places.u.data() + i, places.v.data() + i, across + l, down + l);
      }
      write(p, load(across) * scale, load(down) * scale);
    }
    return;
  }
  for (i64 p = first; p < end; p += LANES) {
    const Vec x = place(p, b00, b01, dx), y = place(p, b10, b11, dy);
    const Int inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom);
    if (!any(inside)) {
      write(p, Vec{}, Vec{});
      continue;
    }
    const Vec xs = inside ? x : Vec{}, ys = inside ? y : Vec{};
    const Int whole_x = below(xs), whole_y = below(ys), ix = whole_x + column, iy = whole_y + row;
    float u[LANES], v[LANES];
    store(u, xs - __builtin_convertvector(whole_x, Vec));
    store(v, ys - __builtin_convertvector(whole_y, Vec));
    std::int32_t at_x[LANES], at_y[LANES];
    std::memcpy(at_x, &ix, sizeof ix);
    std::memcpy(at_y, &iy, sizeof iy);
    // At the rim the image goes on as it is there.
    for (int l = 0; l < LANES; l += 4)
      gradients(
          [&](int n, Quad (&r)[4]) {
            for (int i = 0; i < 4; ++i) {
              const i64 y = std::clamp(at_y[l + n] - 1 + i, 0, level.height - 1);
              for (int j = 0; j < 4; ++j)
                r[i][j] = level.pixels[y * level.width + std::clamp(at_x[l + n] - 1 + j, 0, level.width - 1)];
            }
          },
          u + l, v + l, across + l, down + l);
    write(p, inside ? load(across) * scale : Vec{}, inside ? load(down) * scale : Vec{});
  }
}

// (FEATURES, stride) to (count, FEATURES); count may be rounded up to a multiple of 4.
void interleave(const float *from, i64 stride, i64 count, float *to) {
  for (i64 p = 0; p < count; p += 4)
    for (int f = 0; f < FEATURES; f += 4) {
      Quad q[4];
      for (int i = 0; i < 4; ++i) q[i] = load4(from + (f + i) * stride + p);
      transpose(q);
      for (int i = 0; i < 4; ++i) store4(to + (p + i) * FEATURES + f, q[i]);
    }
}

// Of LANES features at a point: rho, and the cosine and sine of phi.
struct Polar {
  Vec weight, cosine, sine;
  Polar(const float *gx, const float *gy, float factor, float power) {
    const Vec x = load(gx), y = load(gy), length = root(fused(x, x, y * y));
    const Int there = length > 0.0f;
    const Vec inverse = there ? 1.0f / length : Vec{};
    cosine = x * inverse;
    sine = y * inverse;
    weight = factor * (power == 1.0f ? length : there ? raised(length, power) : Vec{});
  }
  // rho cos m phi and rho sin m phi, from those of m - 1.
  void turn(Vec &c, Vec &s) const {
    const Vec next = fused(-s, sine, c * cosine);
    s = fused(s, cosine, c * sine);
    c = next;
  }
};

// Harmonics (2 * order + 1, points, FEATURES) of gradients at the points first to end: rho, then
// rho cos m phi and rho sin m phi, rho = factor |A^T grad f|^power. Of two points that mirror each other
// the sums and differences: what is alike in both comes at the first, what is opposite at the second.
void expand(const Points &points, i64 first, i64 end, int order, const float *gx, const float *gy, float *harmonics) {
  const i64 channel = points.count * FEATURES;
  for (i64 p = first; p < end; ++p) {
    const i64 q = points.partners[p];
    if (q < p) continue;
    for (int w = 0; w < WIDE; ++w) {
      const i64 i = (p - first) * FEATURES + w * LANES, j = (q - first) * FEATURES + w * LANES;
      const Polar one(gx + i, gy + i, points.factors[p], points.power);
      float *out = harmonics + first * FEATURES + i;
      Vec c = one.weight, s = {};
      if (q == p) {
        store(out, c);
        for (int m = 1; m <= order; ++m) {
          one.turn(c, s);
          store(out + (2 * m - 1) * channel, c);
          store(out + 2 * m * channel, s);
        }
        continue;
      }
      const Polar two(gx + j, gy + j, points.factors[q], points.power);
      float *other = harmonics + first * FEATURES + j;
      Vec d = two.weight, t = {};
      store(out, c + d);
      store(other, c - d);
      for (int m = 1; m <= order; ++m) {
        one.turn(c, s);
        two.turn(d, t);
        store(out + (2 * m - 1) * channel, c + d);
        store(other + (2 * m - 1) * channel, c - d);
        store(out + 2 * m * channel, s - t);
        store(other + 2 * m * channel, s + t);
      }
    }
  }
}

// pooled[column] = sum_row factor[row, column] harmonics[row], for WIDE vectors of features at once,
// so that the table, the larger of the two, is read less often.
void contract(const Factor &factor, const float *harmonics, float *pooled) {
  const i64 groups = (i64)factor.columns.size() / COLUMNS;
  std::memset(pooled, 0, 4 * (factor.width + 1) * FEATURES);
  for (std::size_t n = 0; n + 1 < factor.starts.size(); ++n) {
    const std::int32_t *columns = factor.columns.data() + (i64)n % groups * COLUMNS;
    Vec sum[COLUMNS][WIDE];
    for (int c = 0; c < COLUMNS; ++c)
      for (int w = 0; w < WIDE; ++w) sum[c][w] = load(pooled + (i64)columns[c] * FEATURES + w * LANES);
    const float *value = factor.values.data() + factor.starts[n] * COLUMNS;
    for (i64 i = factor.starts[n]; i < factor.starts[n + 1]; ++i, value += COLUMNS) {
      const float *z = harmonics + (i64)factor.rows[i] * FEATURES;
      const Four values(value);
      unrolled<WIDE>([&](auto w) {
        const Vec some = load(z + w * LANES);
        unrolled<COLUMNS>([&](auto c) { sum[c][w] = values.template fused<c>(some, sum[c][w]); });
      });
    }
    for (int c = 0; c < COLUMNS; ++c)
      for (int w = 0; w < WIDE; ++w) store(pooled + (i64)columns[c] * FEATURES + w * LANES, sum[c][w]);
  }
}

// Columns of two places that mirror each other, from what is alike and what is opposite in them.
void separate(const std::vector<Mirrored> &mirrored, float *pooled) {
  for (const Mirrored &pair : mirrored)
    for (int w = 0; w < WIDE; ++w) {
      float *first = pooled + pair.first * FEATURES + w * LANES, *second = pooled + pair.second * FEATURES + w * LANES;
      const Vec alike = load(first), opposite = load(second);
      store(first, alike + opposite);
      store(second, pair.turns ? opposite - alike : alike - opposite);
    }
}

// h(beta, x) of frames: harmonics, table, and where beta comes last its synthesis. raw (n, entries).
void describe(const std::vector<Level> &levels, i64 height, i64 width, const Frames &frames,
              const Points &points, const Table &table, float *raw) {
  const i64 channels = 2 * table.order + 1, places = table.factors[0].width;
  const i64 bins = table.synthesis ? table.bins : 1, entries = places * bins;
  i64 columns = 0, longest = 0;
  std::vector<Reach> reach;
  for (const Factor &factor : table.factors) columns += factor.width;
  for (i64 run = 0; run < points.number_of_runs; ++run) {
    longest = std::max(longest, points.runs[run + 1] - points.runs[run]);
    reach.emplace_back(points, points.runs[run], points.runs[run + 1]);
  }
  const i64 stride = longest + LANES;  // of a feature's gradients: whole vectors are written
  Places seen(stride);
  std::vector<float> gx(FEATURES * stride), gy(FEATURES * stride), gx_by_point(gx.size()), gy_by_point(gy.size());
  std::vector<float> harmonics(channels * points.count * FEATURES), pooled((columns + 1) * FEATURES);
  for (i64 first = 0; first < frames.count; first += FEATURES) {
    const i64 some = std::min<i64>(FEATURES, frames.count - first);
    for (i64 run = 0; run < points.number_of_runs; ++run) {
      const i64 from = points.runs[run], to = points.runs[run + 1];
      for (i64 n = 0; n < some; ++n)
        look(levels[frames.levels[(first + n) * points.number_of_runs + run]], height, width,
             frames.maps + 6 * (first + n), points, reach[run], seen, from, to, gx.data() + n * stride,
             gy.data() + n * stride);
      interleave(gx.data(), stride, to - from, gx_by_point.data());
      interleave(gy.data(), stride, to - from, gy_by_point.data());
      expand(points, from, to, table.order, gx_by_point.data(), gy_by_point.data(), harmonics.data());
    }
    const float *rest = harmonics.data();
    float *sums = pooled.data();
    for (const Factor &factor : table.factors) {
      contract(factor, rest, sums);  // what it writes beyond its columns the next one clears
      rest += factor.height * FEATURES;
      sums += factor.width * FEATURES;
    }
    separate(table.mirrored, pooled.data());
    for (i64 place = 0; place < places; ++place)
      for (i64 bin = 0; bin < bins; ++bin)
        for (int w = 0; w < WIDE; ++w) {
          const float *sum = pooled.data() + place * FEATURES + w * LANES;
          Vec h = load(sum);
          if (table.synthesis) {
            const float *factors = table.synthesis + bin * channels;
            h *= factors[0];
            for (i64 c = 1; c < channels; ++c) h = fused(factors[c], load(sum + c * places * FEATURES), h);
          }
          float *out = raw + (first + w * LANES) * entries + place * bins + bin;
          for (i64 l = 0; l < std::min<i64>(LANES, some - w * LANES); ++l) out[l * entries] = h[l];
        }
  }
}

// sum[r, 0 ... 2 LANES) = sum_k a[r, k] b[k, ...) over `depth` k, for R rows.
template <int R>
inline void tile(const float *a, i64 stride_a, const float *b, i64 stride_b, i64 depth, Vec (&sum)[R][2]) {
  Vec total[R][2] = {};  // apart from `sum`, whose address is known elsewhere: these stay in registers
  for (i64 k = 0; k < depth; ++k) {
    const Vec left = load(b + k * stride_b), right = load(b + k * stride_b + LANES);
    for (int r = 0; r < R; ++r) {
      const float value = a[r * stride_a + k];
      total[r][0] = fused(value, left, total[r][0]);
      total[r][1] = fused(value, right, total[r][1]);
    }
  }
  std::memcpy(sum, total, sizeof total);
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

// Writes the result of a row; computes all its scores again if the second best is not known.
void finish(const Pair &pair, const float *a, float half_a, i64 depth, const float *packed, const float *half_b,
            i64 columns, const double *xy, double radius, const Best &best, i64 y, std::vector<float> &scores) {
  if (settle(pair, xy, radius, best.first[y], best.second[y], best.nearest[y])) return;
  product(a, 1, depth, packed, columns, scores.data());
  float second = -std::numeric_limits<float>::infinity();
  const i64 c0 = best.nearest[y];
  for (i64 c = 0; c < columns; ++c) {
    const double apart = std::max(std::abs(xy[2 * c] - xy[2 * c0]), std::abs(xy[2 * c + 1] - xy[2 * c0 + 1]));
    if (apart > radius) second = std::max(second, scores[c] - half_b[c] - half_a);
  }
  best.second[y] = second;
}

// Rows as bytes, each with a scale of its own.
Bytes bytes_of(const float *a, i64 rows, i64 depth) {
  Bytes bytes;
  bytes.depth = (depth + 15) / 16 * 16;
  bytes.packed.assign(rows * bytes.depth, 0);
  for (i64 y = 0; y < rows; ++y) {
    float largest = 0;
    double error = 0, length = 0;
    for (i64 k = 0; k < depth; ++k) largest = std::max(largest, std::abs(a[y * depth + k]));
    const float scale = largest / 127;
    for (i64 k = 0; k < depth; ++k) {
      const float value = a[y * depth + k];
      const int q = scale > 0 ? (int)std::lrint(value / scale) : 0;
      bytes.packed[y * bytes.depth + k] = (std::int8_t)std::max(-127, std::min(127, q));
      const double missed = value - (double)scale * bytes.packed[y * bytes.depth + k];
      error += missed * missed;
      length += (double)value * value;
    }
    bytes.scale.push_back(scale);
    bytes.error.push_back((float)std::sqrt(error));
    bytes.longest = std::max(bytes.longest, (float)std::sqrt(length));
  }
  return bytes;
}

#ifdef CALORIC_NEON
constexpr int SCREENED = 8;  // rows at once
#ifdef __clang__
#define CALORIC_DOTPROD __attribute__((target("dotprod")))
#else
#define CALORIC_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

// sum = the products of a row with 2 LANES columns, in the order of `tile`.
inline void single(const float *a, const float *b, i64 depth, Vec (&sum)[2]) {
  Vec left = {}, right = {};
  for (i64 k = 0; k < depth; ++k) {
    left = fused(a[k], load(b + k * 2 * LANES), left);
    right = fused(a[k], load(b + k * 2 * LANES + LANES), right);
  }
  sum[0] = left;
  sum[1] = right;
}

// Of 8 rows and 8 columns: which rows may have a product above `limits` (8, 4), of a row in each lane, or
// above `tops` (8), of a column. The products are those of bytes with their errors added.
CALORIC_DOTPROD unsigned above(const std::int8_t *a, const std::int8_t *b, i64 depth, const float *scale_a,
                               const float *row, const float *scale_b, const float *column, const float *limits,
                               const float *tops) {
  int32x4_t total[SCREENED][2];
  for (int r = 0; r < SCREENED; ++r) total[r][0] = total[r][1] = vdupq_n_s32(0);
  for (i64 k = 0; k < depth; k += 16) {
    int8x16_t left[SCREENED];
    for (int r = 0; r < SCREENED; ++r) left[r] = vld1q_s8(a + r * depth + k);
#define STEP(lane)                                                                \
  {                                                                               \
    const int8x16_t one = vld1q_s8(b + 8 * k + 32 * lane), two = vld1q_s8(b + 8 * k + 32 * lane + 16); \
    for (int r = 0; r < SCREENED; ++r) {                                          \
      total[r][0] = vdotq_laneq_s32(total[r][0], one, left[r], lane);             \
      total[r][1] = vdotq_laneq_s32(total[r][1], two, left[r], lane);             \
    }                                                                             \
  }
    STEP(0) STEP(1) STEP(2) STEP(3)
#undef STEP
  }
  const float32x4_t by[2] = {vld1q_f32(scale_b), vld1q_f32(scale_b + 4)};
  const float32x4_t more[2] = {vld1q_f32(column), vld1q_f32(column + 4)};
  const float32x4_t best[2] = {vld1q_f32(tops), vld1q_f32(tops + 4)};
  unsigned flagged = 0;
  for (int r = 0; r < SCREENED; ++r) {
    const float32x4_t limit = vld1q_f32(limits + 4 * r), add = vdupq_n_f32(row[r]);
    uint32x4_t any = vdupq_n_u32(0);
    for (int side = 0; side < 2; ++side) {
      const float32x4_t product = vcvtq_f32_s32(total[r][side]);
      const float32x4_t score = vaddq_f32(vfmaq_f32(more[side], product, vmulq_n_f32(by[side], scale_a[r])), add);
      any = vorrq_u32(any, vorrq_u32(vcgtq_f32(score, limit), vcgtq_f32(score, best[side])));
    }
    flagged |= (vmaxvq_u32(any) != 0) << r;
  }
  return flagged;
}

// The same as below, with most pairs told apart by bytes. False if numbers are so small that rounding
// cannot be bounded.
bool nearest_screened(const float *a, const float *half_a, i64 rows, i64 depth, const float *packed,
                      const float *half_b, i64 columns, const double *xy, double radius, const Best &best,
                      float *best_of_b, const Bytes &b) {
  constexpr i64 SOME = 64, FIRST = 16;  // rows at once; of so many panels one is looked at first
  const float nothing = -std::numeric_limits<float>::infinity();
  Int steps;
  for (int l = 0; l < LANES; ++l) steps[l] = l;
  Bytes left = bytes_of(a, rows, depth);
  std::vector<std::int8_t> again(SCREENED * left.depth);
  float never[2 * LANES];
  for (float &top : never) top = std::numeric_limits<float>::infinity();
  left.packed.resize((rows + SCREENED) * left.depth);  // a group of rows may end beyond
  left.scale.resize(rows + SCREENED);
  // Rounding of the sums: 1e-4 of the longest product is far more than they have.
  const float rounding = 1e-4f * left.longest * b.longest;
  if (!(rounding > 1e-30f)) return false;
  std::vector<float> column(b.scale.size(), nothing), row(rows + SCREENED, nothing);
  for (std::size_t c = 0; c < column.size(); ++c) column[c] = b.error[c] * left.longest - half_b[c];
  for (i64 y = 0; y < rows; ++y) row[y] = left.error[y] * 1.01f * b.longest + rounding - half_a[y];
  for (i64 start = 0; start < rows; start += SOME) {
    const i64 stop = std::min(rows, start + SOME);
    Pair pairs[SOME];
    float limits[SOME + SCREENED][LANES];
    Vec floors[SOME];  // scores that the two best of a lane have at least
    const auto clear = [&](Pair &pair) { pair = {all(nothing), all(nothing), all(-1), all(-1)}; };
    const auto scan = [&](i64 x) {
      for (i64 y = start; y < stop; y += SCREENED) {
        unsigned flagged = above(left.packed.data() + y * left.depth, b.packed.data() + x * left.depth, left.depth,
                                 left.scale.data() + y, row.data() + y, b.scale.data() + x, column.data() + x,
                                 limits[y - start], best_of_b + x);
        for (; flagged; flagged &= flagged - 1) {
          const i64 r = y + __builtin_ctz(flagged);
          if (r >= stop) break;
          Vec sum[2];
          single(a + r * depth, packed + x * depth, depth, sum);
          for (int side = 0; side < 2; ++side) {
            const Vec score = sum[side] - load(half_b + x + side * LANES) - half_a[r];
            pairs[r - start].add(score, steps + (std::int32_t)(x + side * LANES));
            store(best_of_b + x + side * LANES, max(load(best_of_b + x + side * LANES), score));
          }
          store(limits[r - start], max(floors[r - start], pairs[r - start].second));
        }
      }
    };
    for (i64 y = 0; y < SOME; ++y) {
      clear(pairs[y]);
      floors[y] = all(nothing);
    }
    std::fill(&limits[0][0], &limits[0][0] + sizeof limits / sizeof(float), nothing);
    for (i64 x = 0; x < columns; x += FIRST * 2 * LANES) scan(x);
    for (i64 y = 0; y < stop - start; ++y) {
      // A little less: what reached it must be found again.
      floors[y] = pairs[y].second - rounding;
      store(limits[y], floors[y]);
      clear(pairs[y]);
    }
    for (i64 x = 0; x < columns; x += 2 * LANES) scan(x);
    i64 unsettled[SOME], count = 0;
    for (i64 y = start; y < stop; ++y)
      if (!settle(pairs[y - start], xy, radius, best.first[y], best.second[y], best.nearest[y])) unsettled[count++] = y;
    // Where the second best may be hidden by others near the best, all columns are looked at again.
    for (i64 group = 0; group < count; group += SCREENED) {
      const i64 some = std::min<i64>(SCREENED, count - group);
      float scale[SCREENED] = {}, add[SCREENED];
      for (i64 r = 0; r < SCREENED; ++r) {
        const i64 y = unsettled[group + std::min(r, some - 1)];
        std::memcpy(again.data() + r * left.depth, left.packed.data() + y * left.depth, left.depth);
        scale[r] = left.scale[y];
        add[r] = r < some ? row[y] : nothing;
        store(limits[r], all(best.second[y]));
      }
      for (i64 x = 0; x < columns; x += 2 * LANES) {
        unsigned flagged = above(again.data(), b.packed.data() + x * left.depth, left.depth, scale, add,
                                 b.scale.data() + x, column.data() + x, limits[0], never);
        for (; flagged; flagged &= flagged - 1) {
          const i64 r = __builtin_ctz(flagged), y = unsettled[group + r], c0 = best.nearest[y];
          Vec sum[2];
          single(a + y * depth, packed + x * depth, depth, sum);
          for (i64 c = x; c < std::min(columns, x + 2 * LANES); ++c) {
            const double apart = std::max(std::abs(xy[2 * c] - xy[2 * c0]), std::abs(xy[2 * c + 1] - xy[2 * c0 + 1]));
            const float score = sum[(c - x) / LANES][(c - x) % LANES] - half_b[c] - half_a[y];
            if (apart > radius) best.second[y] = std::max(best.second[y], score);
          }
          store(limits[r], all(best.second[y]));
        }
      }
    }
  }
  return true;
}
#endif

// Scores a.b - |a|^2/2 - |b|^2/2 of all pairs, none of them kept: of each row the two best columns,
// of each column the best row's score. b is packed in panels (depth, 2 LANES). With `bytes` only those
// are computed that can matter; the result is the same.
void nearest(const float *a, const float *half_a, i64 rows, i64 depth, const float *packed, const float *half_b,
             i64 columns, const double *xy, double radius, const Best &best, float *best_of_b, const Bytes *bytes) {
  const float nothing = -std::numeric_limits<float>::infinity();
#ifdef CALORIC_NEON
  if (bytes && nearest_screened(a, half_a, rows, depth, packed, half_b, columns, xy, radius, best, best_of_b, *bytes))
    return;
#else
  (void)bytes;
#endif
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
    for (i64 y = start; y < stop; ++y)
      finish(pairs[y - start], a + y * depth, half_a[y], depth, packed, half_b, columns, xy, radius, best, y, scores);
  }
}

}  // namespace

#define JOINED_(name, kind) name##_##kind
#define JOINED(name, kind) JOINED_(name, kind)
extern const Kernels JOINED(kernels, CALORIC_KIND) = {
    octave, candidates, describe, product, nearest, bytes_of, JOINED(refine, CALORIC_KIND), LANES};

}  // namespace caloric
