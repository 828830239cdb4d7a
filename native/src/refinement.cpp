// Refinement of matches, as caloric.matching.refinement has it; compiled once for each kind of processor.
//
// A patch has SIDE rows of SIDE samples, STRIDE apart, and FIELD floats in all; fields are stored column
// by column, the two parts of a gradient one after the other. What lies between SIDE and STRIDE is made
// along and multiplied by a window of 0. Sums have 16 parts, whatever the number of lanes.
#include "kernels.hpp"
#include "vectors.hpp"

#include <memory>

namespace caloric {
namespace {

constexpr int SIDE = REFINED_SIDE, STRIDE = 24, FIELD = 512, BOTH = 2 * FIELD, MOST_TAPS = 9, PARTS = 16;
constexpr int ROOM = STRIDE * STRIDE + 2 * LANES;  // of a patch that is transposed, and what is read beyond

// Rows of a banded matrix (SIDE, SIDE): `count` numbers from column `first`, which are 7 or MOST_TAPS.
struct Banded {
  int count, first[SIDE];
  float taps[SIDE][MOST_TAPS];
  Banded(const float *matrix, int count, bool transposed) : count(count) {
    for (int r = 0; r < SIDE; ++r) {
      first[r] = std::clamp(r - count / 2, 0, SIDE - count);
      for (int k = 0; k < count; ++k)
        taps[r][k] = transposed ? matrix[(first[r] + k) * SIDE + r] : matrix[r * SIDE + first[r] + k];
    }
  }
};

// How many numbers of a row there are, which is known for the slope: it reaches one farther.
int taps_of(const RefineFilters &from) {
  const float *row = from.slope + SIDE / 2 * SIDE + SIDE / 2;
  return row[4] == 0 && row[-4] == 0 ? 7 : MOST_TAPS;
}

struct Filters {
  Banded smooth, slope, smooth_back, slope_back;
  int steps;
  explicit Filters(const RefineFilters &from, int count)
      : smooth(from.smooth, count, false), slope(from.slope, count, false), smooth_back(from.smooth, count, true),
        slope_back(from.slope, count, true), steps(from.steps) {}
};

constexpr int ACROSS = (STRIDE + LANES - 1) / LANES;  // vectors of a row

// Columns of two patches, or of one twice, multiplied by banded matrices. Whole vectors are written, each
// row after the one above.
template <int TAPS, bool SAME>
void filter_by(const Banded &one, const Banded &two, const float *in_one, const float *in_two, float *out_one,
               float *out_two) {
  for (int r = 0; r < SIDE; ++r) {
    Vec sum[ACROSS] = {}, other[ACROSS] = {};
    const float *from_one = in_one + one.first[r] * STRIDE, *from_two = in_two + one.first[r] * STRIDE;
    for (int k = 0; k < TAPS; ++k)
      for (int n = 0; n < ACROSS; ++n) {
        const Vec some = load(from_one + k * STRIDE + n * LANES);
        sum[n] = fused(one.taps[r][k], some, sum[n]);
        other[n] = fused(two.taps[r][k], SAME ? some : load(from_two + k * STRIDE + n * LANES), other[n]);
      }
    for (int n = 0; n < ACROSS; ++n) {
      store(out_one + r * STRIDE + n * LANES, sum[n]);
      store(out_two + r * STRIDE + n * LANES, other[n]);
    }
  }
}

void filter(const Banded &one, const Banded &two, const float *in_one, const float *in_two, float *out_one,
            float *out_two) {
  (one.count == 7 ? filter_by<7, false> : filter_by<MOST_TAPS, false>)(one, two, in_one, in_two, out_one, out_two);
}

void filter(const Banded &one, const Banded &two, const float *in, float *out_one, float *out_two) {
  (one.count == 7 ? filter_by<7, true> : filter_by<MOST_TAPS, true>)(one, two, in, in, out_one, out_two);
}

void transposed(const float *in, float *out) {
  for (int r = 0; r < STRIDE; r += 4)
    for (int c = 0; c < STRIDE; c += 4) {
      Quad q[4];
      for (int i = 0; i < 4; ++i) q[i] = load4(in + (r + i) * STRIDE + c);
      transpose(q);
      for (int i = 0; i < 4; ++i) store4(out + (c + i) * STRIDE + r, q[i]);
    }
}

double total(const Vec (&sum)[PARTS / LANES]) {
  float parts[PARTS];
  std::memcpy(parts, sum, sizeof parts);
  double result = 0;
  for (float part : parts) result += part;
  return result;
}

template <int LENGTH>
double dot(const float *a, const float *b) {
  Vec sum[PARTS / LANES] = {};
  for (int i = 0; i < LENGTH; i += PARTS)
    for (int n = 0; n < PARTS / LANES; ++n) sum[n] = fused(load(a + i + n * LANES), load(b + i + n * LANES), sum[n]);
  return total(sum);
}

// What one match needs on its way.
struct Work {
  float patch[ROOM] = {}, first[ROOM] = {}, second[ROOM] = {}, first_turned[ROOM] = {}, second_turned[ROOM] = {};
  float tmpl[BOTH] = {}, residual[BOTH] = {}, trial[BOTH] = {}, slopes[6][BOTH] = {};
  float kept_a[FIELD] = {}, kept_b[FIELD] = {};  // the patches of the first frame and of the second at first
  std::int32_t at[FIELD] = {};
  float u[FIELD] = {}, v[FIELD] = {}, sides[2 * FIELD] = {};
};

// Where samples are in the frame, and the roots of their weights, sample by sample and column by column.
struct Grid {
  float x[FIELD] = {}, y[FIELD] = {}, column_x[FIELD] = {}, column_y[FIELD] = {}, root[FIELD] = {}, inverse[FIELD] = {};
  Grid(float spacing, const float *window) {
    const auto place = [&](int i) { return spacing * (float)(std::min(i, SIDE - 1) - SIDE / 2); };
    for (int i = 0; i < SIDE; ++i)
      for (int j = 0; j < STRIDE; ++j) {
        const int n = i * STRIDE + j;
        x[n] = column_y[n] = place(j);
        y[n] = column_x[n] = place(i);
        if (j >= SIDE) continue;
        root[n] = window[j * SIDE + i];
        inverse[n] = 1 / root[n];
      }
  }
};

double sigma(const double *map) { return std::sqrt(std::abs(map[0] * map[4] - map[1] * map[3])); }

int level_of(const double *map, double spacing, int count) {
  const double apart = sigma(map) * spacing;
  int level = 0;
  while (level + 1 < count && apart >= (double)(1 << (level + 1))) ++level;
  return level;
}

// The patch around a frame, bilinear; beyond the image it goes on as at the edge. False for a frame
// that is no place in an image.
bool sample(const std::vector<RefineLevel> &levels, const double *map, double spacing, const Grid &grid, Work &work) {
  for (int i = 0; i < 6; ++i)
    if (!(std::abs(map[i]) < 1e6)) return false;
  const int octave = level_of(map, spacing, (int)levels.size());
  const RefineLevel &level = levels[octave];
  if (std::min(level.width, level.height) < 2) return false;
  const double per = 1.0 / (1 << octave), x0 = map[2] * per, y0 = map[5] * per;
  const double cx = std::floor(x0), cy = std::floor(y0);
  const float reach = (float)(spacing * (SIDE / 2));
  const float b00 = (float)(map[0] * per), b01 = (float)(map[1] * per), dx = (float)(x0 - cx);
  const float b10 = (float)(map[3] * per), b11 = (float)(map[4] * per), dy = (float)(y0 - cy);
  const Vec left = all((float)-cx), right = all((float)(level.width - 1 - cx));
  const Vec top = all((float)-cy), bottom = all((float)(level.height - 1 - cy));
  const Int last_x = all((std::int32_t)(level.width - 2 - cx));
  const Int last_y = all((std::int32_t)(level.height - 2 - cy));
  // Of most frames all samples lie within the level: nothing is then kept within it.
  const float far_x = (std::abs(b00) + std::abs(b01)) * reach + 1, far_y = (std::abs(b10) + std::abs(b11)) * reach + 1;
  // Nothing of a frame that is farther out than it reaches is in the image; and offsets stay small.
  if (cx + far_x < 0 || cy + far_y < 0 || cx - far_x > level.width || cy - far_y > level.height) return false;
  if (!(far_x < 1e5f && far_y < 1e5f)) return false;
  const bool inside = cx - far_x >= 0 && cy - far_y >= 0 && cx + far_x <= level.width - 2 && cy + far_y <= level.height - 2;
  const auto place = [&](auto all_inside) {
    for (int n = 0; n < SIDE * STRIDE; n += LANES) {
      Vec x = fused(b00, load(grid.x + n), fused(b01, load(grid.y + n), all(dx)));
      Vec y = fused(b10, load(grid.x + n), fused(b11, load(grid.y + n), all(dy)));
      if (!all_inside) {
        x = x < left ? left : x > right ? right : x;
        y = y < top ? top : y > bottom ? bottom : y;
      }
      Int ix = below(x), iy = below(y);
      if (!all_inside) {
        ix = ix > last_x ? last_x : ix;
        iy = iy > last_y ? last_y : iy;
      }
      store(work.u + n, x - __builtin_convertvector(ix, Vec));
      store(work.v + n, y - __builtin_convertvector(iy, Vec));
      const Int at = iy * level.width + ix;
      std::memcpy(work.at + n, &at, sizeof at);
    }
  };
  if (inside)
    place(std::true_type{});
  else
    place(std::false_type{});
  const float *above = level.pixels, *under = level.pixels + level.width;
  const i64 centre = (i64)cy * level.width + (i64)cx;
  // Between the rows above and below, for the columns left and right; then between those.
  for (int n = 0; n < SIDE * STRIDE; ++n) {
    const i64 at = centre + work.at[n];
    const Duo here = load2(above + at), there = load2(under + at);
    store2(work.sides + 2 * n, fused2(work.v[n], there - here, here));
  }
  for (int n = 0; n < SIDE * STRIDE; n += 4) {
    const Quad one = load4(work.sides + 2 * n), two = load4(work.sides + 2 * n + 4);
    const Quad left = SHUFFLED(one, two, 0, 2, 4, 6), right = SHUFFLED(one, two, 1, 3, 5, 7);
    store4(work.patch + n, fused4(load4(work.u + n), right - left, left));
  }
  return true;
}

// The windowed field of work.patch over its root mean square, to `field`; its mean square.
double make_field(const Filters &by, const Grid &grid, double nothing, Work &work, float *field) {
  filter(by.smooth, by.slope, work.patch, work.first, work.second);
  transposed(work.first, work.first_turned);
  transposed(work.second, work.second_turned);
  filter(by.slope, by.smooth, work.first_turned, work.second_turned, field, field + FIELD);
  Vec sum[PARTS / LANES] = {};
  for (int i = 0; i < BOTH; i += PARTS)
    for (int n = 0; n < PARTS / LANES; ++n) {
      const int at = i + n * LANES;
      const Vec value = load(field + at) * load(grid.root + at % FIELD);
      store(field + at, value);
      sum[n] = fused(value, value, sum[n]);
    }
  const double power = total(sum);
  const float scale = (float)(1 / std::sqrt(power + nothing));
  for (int i = 0; i < BOTH; i += LANES) store(field + i, load(field + i) * scale);
  return power;
}

// d/d delta of the template's field, windowed, from the windowed field.
void make_slopes(const Grid &grid, float spacing, Work &work) {
  const float half = 0.5f / spacing, whole = 1 / spacing;
  float *plain = work.patch, *down = work.first;
  for (int part = 0; part < 2; ++part) {
    for (int n = 0; n < FIELD; n += LANES)
      store(plain + n, load(work.tmpl + part * FIELD + n) * load(grid.inverse + n));
    // Columns are stored one after the other: y goes along a row, x from row to row.
    for (int n = LANES; n < SIDE * STRIDE; n += LANES) store(down + n, (load(plain + n + 1) - load(plain + n - 1)) * half);
    for (int n = 1; n < LANES; ++n) down[n] = (plain[n + 1] - plain[n - 1]) * half;
    for (int i = 0; i < SIDE; ++i) {
      const int first = i * STRIDE, last = first + SIDE - 1;
      down[first] = (plain[first + 1] - plain[first]) * whole;
      down[last] = (plain[last] - plain[last - 1]) * whole;
    }
    for (int n = 0; n < SIDE * STRIDE; n += 4) {
      const int above = n < STRIDE ? n : n - STRIDE, under = n + STRIDE < SIDE * STRIDE ? n + STRIDE : n;
      const float scale = under - above == STRIDE ? whole : half;
      const Quad root = load4(grid.root + n), x = load4(grid.column_x + n), y = load4(grid.column_y + n);
      const Quad across = (load4(plain + under) - load4(plain + above)) * scale * root, along = load4(down + n) * root;
      const Quad slopes[6] = {across * x, across * y, along * x, along * y, across, along};
      for (int p = 0; p < 6; ++p) store4(work.slopes[p] + part * FIELD + n, slopes[p]);
    }
  }
  for (int n = 0; n < FIELD; n += LANES) {
    const auto add = [&](int p, int at, int from) {
      store(work.slopes[p] + at + n, load(work.slopes[p] + at + n) + load(work.tmpl + from + n));
    };
    add(0, 0, 0);
    add(1, FIELD, 0);
    add(2, 0, FIELD);
    add(3, FIELD, FIELD);
  }
  // Fields are divided by their root mean square: a larger template is the same template.
  for (float (&slope)[BOTH] : work.slopes) {
    const float share = (float)dot<BOTH>(slope, work.tmpl);
    for (int n = 0; n < BOTH; n += LANES) store(slope + n, fused(-share, load(work.tmpl + n), load(slope + n)));
  }
}

// H x = g for a symmetric positive H (6, 6), by Cholesky; false where it is not positive.
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

// B delta^{-1}, delta = 1 + (s0 s1 s4; s2 s3 s5).
void move(const double *b, const double *s, double *out) {
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

class Refining {
 public:
  explicit Refining(const RefineJob &job)
      : job_(job), c_(job.constants), grid_((float)c_.spacing, job.window) {
    for (const RefineFilters &one : job.filters) by_.emplace_back(one, taps_of(one));
  }

  void match(i64 m) {
    const double *a = job_.a + 6 * m, *start = job_.b + 6 * m;
    double *b = job_.maps + 6 * m, *figures = job_.figures + 3 * m, *shifts = job_.shifts + 4 * m;
    std::copy(start, start + 6, b);
    std::fill(figures, figures + 3, 0.0);
    std::fill(shifts, shifts + 4, std::numeric_limits<double>::infinity());
    double power_a = 0, cost = 0, power_b = 0;
    if (!sample(job_.second, start, c_.spacing, grid_, work_)) return;
    std::memcpy(work_.kept_b, work_.patch, sizeof work_.kept_b);
    if (!sample(job_.first, a, c_.spacing, grid_, work_)) return;
    std::memcpy(work_.kept_a, work_.patch, sizeof work_.kept_a);
    for (std::size_t k = 0; k < by_.size(); ++k) {
      std::memcpy(work_.patch, work_.kept_a, sizeof work_.kept_a);
      power_a = make_field(by_[k], grid_, c_.nothing, work_, work_.tmpl);
      make_slopes(grid_, (float)c_.spacing, work_);
      if (!minimise(by_[k], b, cost, power_b)) return;
      if (k + 1 < by_.size() && !(cost < c_.hopeless)) return;
    }
    covariance(a, b, power_a, power_b, shifts);
    std::memcpy(work_.patch, work_.kept_b, sizeof work_.kept_b);
    compare(by_.back(), work_.trial, figures[0], power_b);
    figures[1] = cost;
    figures[2] = power_a;
  }

 private:
  // The residual of work_.patch, its cost, and the mean square of the field.
  void compare(const Filters &by, float *residual, double &cost, double &power) {
    power = make_field(by, grid_, c_.nothing, work_, residual);
    Vec sum[PARTS / LANES] = {};
    for (int i = 0; i < BOTH; i += PARTS)
      for (int n = 0; n < PARTS / LANES; ++n) {
        const int at = i + n * LANES;
        const Vec r = load(residual + at) - load(work_.tmpl + at);
        store(residual + at, r);
        sum[n] = fused(r, r, sum[n]);
      }
    cost = total(sum);
  }

  // Rows FIRST to END of the Hessian.
  template <int FIRST, int END>
  void products() {
    constexpr int COUNT = (END * (END + 1) - FIRST * (FIRST + 1)) / 2;
    Vec sums[COUNT][PARTS / LANES];
    for (int v = 0; v < PARTS / LANES; ++v) {
      Vec sum[COUNT] = {};
      for (int at = v * LANES; at < BOTH; at += PARTS) {
        Vec some[END];
        for (int p = 0; p < END; ++p) some[p] = load(work_.slopes[p] + at);
        for (int p = FIRST, n = 0; p < END; ++p)
          for (int q = 0; q <= p; ++q, ++n) sum[n] = fused(some[p], some[q], sum[n]);
      }
      for (int n = 0; n < COUNT; ++n) sums[n][v] = sum[n];
    }
    for (int p = FIRST, n = 0; p < END; ++p)
      for (int q = 0; q <= p; ++q, ++n) hessian_[p][q] = hessian_[q][p] = total(sums[n]);
  }

  bool minimise(const Filters &by, double *b, double &cost, double &power) {
    double trace = 0;
    products<0, 4>();
    products<4, 6>();
    for (int i = 0; i < 6; ++i) trace += hessian_[i][i];
    const double least = c_.relative * trace + c_.least;
    if (!sample(job_.second, b, c_.spacing, grid_, work_)) return false;
    compare(by, work_.residual, cost, power);
    double damping = c_.damping;
    for (int n = 0; n < by.steps; ++n) {
      double gradient[6], matrix[6][6], step[6], next[6], next_cost, next_power, longest = 0;
      // The Jacobian with respect to each parameter, six sums at once.
      Vec sum[6][PARTS / LANES] = {};
      for (int i = 0; i < BOTH; i += PARTS)
        for (int v = 0; v < PARTS / LANES; ++v) {
          const Vec r = load(work_.residual + i + v * LANES);
          for (int p = 0; p < 6; ++p) sum[p][v] = fused(load(work_.slopes[p] + i + v * LANES), r, sum[p][v]);
        }
      for (int p = 0; p < 6; ++p) gradient[p] = total(sum[p]);
      std::memcpy(matrix, hessian_, sizeof matrix);
      for (int p = 0; p < 6; ++p) matrix[p][p] += damping * (hessian_[p][p] + least);
      if (!solve(matrix, gradient, step)) break;
      for (double &s : step) {
        s = std::clamp(s, -c_.longest, c_.longest);
        longest = std::max(longest, std::abs(s));
      }
      move(b, step, next);
      if (!sample(job_.second, next, c_.spacing, grid_, work_)) break;
      compare(by, work_.trial, next_cost, next_power);
      if (next_cost < cost) {
        std::copy(next, next + 6, b);
        std::memcpy(work_.residual, work_.trial, sizeof work_.trial);
        cost = next_cost;
        power = next_power;
        damping /= c_.fall;
        if (longest < c_.settled) break;
      } else {
        damping = std::max(c_.rise * damping, c_.raised);
      }
    }
    return true;
  }

  // Correlations of noise between samples of a patch, and its variance over the mean square gradient.
  double noise(const std::vector<RefineLevel> &levels, const double *map, double level, double power, float *correlations) {
    const int octave = level_of(map, c_.spacing, (int)levels.size());
    const double apart = std::max(sigma(map) * c_.spacing / (1 << octave), c_.finest);
    const double *pixels = job_.correlations + 4 * octave;
    const auto spline = [](double x) {
      const double two = std::max(2 - std::abs(x), 0.0), one = std::max(1 - std::abs(x), 0.0);
      return two * two * two / 6 - 4 * one * one * one / 6;
    };
    for (int lag = 0; lag < REFINED_LAGS; ++lag) {
      double sum = pixels[0] * spline(lag * apart);
      for (int i = 1; i < 4; ++i) sum += pixels[i] * (spline(lag * apart - i) + spline(lag * apart + i));
      correlations[lag] = (float)sum;
    }
    return level * level * job_.variances[octave] / (power + c_.nothing);
  }

  // out = C in, C the matrix of correlations.
  static void correlate(const float *correlations, const float *in, float *out) {
    for (int r = 0; r < SIDE; ++r) {
      Vec sum[ACROSS] = {};
      for (int k = std::max(0, r - REFINED_LAGS + 1); k < std::min(SIDE, r + REFINED_LAGS); ++k)
        for (int n = 0; n < ACROSS; ++n)
          sum[n] = fused(correlations[std::abs(r - k)], load(in + k * STRIDE + n * LANES), sum[n]);
      for (int n = 0; n < ACROSS; ++n) store(out + r * STRIDE + n * LANES, sum[n]);
    }
  }

  void covariance(const double *a, const double *b, double power_a, double power_b, double *shifts) {
    double matrix[6][6], row[6];
    float kernel[2][ROOM] = {}, seen[ROOM] = {}, weights[BOTH];
    const Filters &by = by_.back();
    std::memcpy(matrix, hessian_, sizeof matrix);
    for (int i = 0; i < 6; ++i) matrix[i][i] += c_.least;
    for (int p = 0; p < 2; ++p) {
      double unit[6] = {};
      unit[4 + p] = 1;
      if (!solve(matrix, unit, row)) return;
      // How the shift depends on the residual, then on the patch.
      for (int i = 0; i < BOTH; i += LANES) {
        Vec sum = {};
        for (int q = 0; q < 6; ++q) sum = fused((float)row[q], load(work_.slopes[q] + i), sum);
        store(weights + i, sum * load(grid_.root + i % FIELD));
      }
      std::memset(work_.first, 0, sizeof work_.first);
      std::memset(work_.second, 0, sizeof work_.second);
      filter(by.slope_back, by.smooth_back, weights, weights + FIELD, work_.first, work_.second);
      transposed(work_.first, work_.first_turned);
      transposed(work_.second, work_.second_turned);
      filter(by.smooth_back, by.slope_back, work_.first_turned, work_.second_turned, kernel[p], work_.first);
      for (int i = 0; i < SIDE * STRIDE; i += LANES) store(kernel[p] + i, load(kernel[p] + i) + load(work_.first + i));
      for (int r = 0; r < SIDE; ++r) std::fill(kernel[p] + r * STRIDE + SIDE, kernel[p] + (r + 1) * STRIDE, 0.0f);
      std::fill(kernel[p] + SIDE * STRIDE, kernel[p] + ROOM, 0.0f);
    }
    std::fill(shifts, shifts + 4, 0.0);
    for (int image = 0; image < 2; ++image) {
      float correlations[REFINED_LAGS];
      const double share = image ? noise(job_.second, b, job_.noise[1], power_b, correlations)
                                 : noise(job_.first, a, job_.noise[0], power_a, correlations);
      for (int p = 0; p < 2; ++p) {
        correlate(correlations, kernel[p], work_.first);
        std::fill(work_.first + SIDE * STRIDE, work_.first + ROOM, 0.0f);
        transposed(work_.first, work_.first_turned);
        correlate(correlations, work_.first_turned, work_.second);
        std::fill(work_.second + SIDE * STRIDE, work_.second + ROOM, 0.0f);
        transposed(work_.second, seen);
        for (int q = 0; q <= p; ++q) shifts[2 * p + q] += share * dot<FIELD>(kernel[q], seen);
      }
    }
    shifts[1] = shifts[2];
  }

  const RefineJob &job_;
  const RefineConstants c_;
  const Grid grid_;
  std::vector<Filters> by_;
  Work work_;
  double hessian_[6][6];
};

}  // namespace

#define JOINED_(name, kind) name##_##kind
#define JOINED(name, kind) JOINED_(name, kind)
void JOINED(refine, CALORIC_KIND)(const RefineJob &job) {
  const std::unique_ptr<Refining> refining(new Refining(job));  // too large for a thread's stack
  for (i64 m = 0; m < job.count; ++m) refining->match(m);
}

}  // namespace caloric
