// Patches around frames and their gradient fields, for the refinement of matches.
//
// A patch has SIDE rows of SIDE samples. Rows are STRIDE floats apart; a patch is padded to FIELD floats. Gradient
// fields are stored column by column, the x component before the y component. The padding between SIDE and STRIDE
// is computed too, and has weight 0. Sums have 16 parts in every build.
#pragma once
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

constexpr int SIDE = PATCH_SIDE, STRIDE = 24, FIELD = 512, BOTH = 2 * FIELD, MAX_TAPS = 9, PARTS = 16;
constexpr int PADDED_PATCH = STRIDE * STRIDE + 2 * LANES;  // a transposed patch, and padding for whole vectors
constexpr int ROW_VECTORS = (STRIDE + LANES - 1) / LANES;

// A banded matrix (SIDE, SIDE): of each row `count` entries, 7 or MAX_TAPS, from column `first`.
struct BandedMatrix {
  int count, first[SIDE];
  float taps[SIDE][MAX_TAPS];
  BandedMatrix(const float *matrix, int count, bool transposed) : count(count) {
    for (int r = 0; r < SIDE; ++r) {
      first[r] = std::clamp(r - count / 2, 0, SIDE - count);
      for (int k = 0; k < count; ++k)
        taps[r][k] = transposed ? matrix[(first[r] + k) * SIDE + r] : matrix[r * SIDE + first[r] + k];
    }
  }
};

struct Filters {
  BandedMatrix smooth, derivative, smooth_transposed, derivative_transposed;
  int steps;
  explicit Filters(const RefinementFilters &filters) : Filters(filters, band_width(filters)) {}

 private:
  Filters(const RefinementFilters &filters, int count)
      : smooth(filters.smooth, count, false),
        derivative(filters.derivative, count, false),
        smooth_transposed(filters.smooth, count, true),
        derivative_transposed(filters.derivative, count, true),
        steps(filters.steps) {}
  // The derivative has the wider band of the two.
  static int band_width(const RefinementFilters &filters) {
    const float *center = filters.derivative + SIDE / 2 * SIDE + SIDE / 2;
    return center[4] == 0 && center[-4] == 0 ? 7 : MAX_TAPS;
  }
};

// Multiplies the columns of two patches, which may be the same, by one banded matrix each. Rows are written from
// top to bottom in whole vectors.
template <int TAPS, bool SAME>
void filter_columns(const BandedMatrix &one, const BandedMatrix &two, const float *in_one, const float *in_two,
                    float *out_one, float *out_two) {
  for (int r = 0; r < SIDE; ++r) {
    Vec sum_one[ROW_VECTORS] = {}, sum_two[ROW_VECTORS] = {};
    const float *from_one = in_one + one.first[r] * STRIDE, *from_two = in_two + one.first[r] * STRIDE;
    for (int k = 0; k < TAPS; ++k)
      for (int n = 0; n < ROW_VECTORS; ++n) {
        const Vec values = load(from_one + k * STRIDE + n * LANES);
        sum_one[n] = mul_add(one.taps[r][k], values, sum_one[n]);
        sum_two[n] = mul_add(two.taps[r][k], SAME ? values : load(from_two + k * STRIDE + n * LANES), sum_two[n]);
      }
    for (int n = 0; n < ROW_VECTORS; ++n) {
      store(out_one + r * STRIDE + n * LANES, sum_one[n]);
      store(out_two + r * STRIDE + n * LANES, sum_two[n]);
    }
  }
}

void filter(const BandedMatrix &one, const BandedMatrix &two, const float *in_one, const float *in_two, float *out_one,
            float *out_two) {
  (one.count == 7 ? filter_columns<7, false> : filter_columns<MAX_TAPS, false>)(one, two, in_one, in_two, out_one,
                                                                                out_two);
}

void filter(const BandedMatrix &one, const BandedMatrix &two, const float *in, float *out_one, float *out_two) {
  (one.count == 7 ? filter_columns<7, true> : filter_columns<MAX_TAPS, true>)(one, two, in, in, out_one, out_two);
}

void transpose_patch(const float *in, float *out) {
  for (int r = 0; r < STRIDE; r += 4)
    for (int c = 0; c < STRIDE; c += 4) {
      Vec4 q[4];
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
    for (int n = 0; n < PARTS / LANES; ++n) sum[n] = mul_add(load(a + i + n * LANES), load(b + i + n * LANES), sum[n]);
  return total(sum);
}

// Working memory for one match.
struct alignas(64) Buffers {
  float patch[PADDED_PATCH] = {}, first[PADDED_PATCH] = {}, second[PADDED_PATCH] = {};
  float first_transposed[PADDED_PATCH] = {}, second_transposed[PADDED_PATCH] = {};
  float tmpl[BOTH] = {}, residual[BOTH] = {}, trial[BOTH] = {}, jacobian[6][BOTH] = {};
  float patch_a[FIELD] = {}, initial_patch_b[FIELD] = {};
  std::int32_t pixel[FIELD] = {};
  float u[FIELD] = {}, v[FIELD] = {}, columns[2 * FIELD] = {};
};

// Positions of the samples in the frame, in row-major and column-major order, and the square roots of their weights.
struct alignas(64) Grid {
  float x[FIELD] = {}, y[FIELD] = {}, column_x[FIELD] = {}, column_y[FIELD] = {};
  float root_weight[FIELD] = {}, inverse_root[FIELD] = {};
  Grid(float spacing, const float *window) {
    const auto position = [&](int i) { return spacing * (float)(std::min(i, SIDE - 1) - SIDE / 2); };
    for (int i = 0; i < SIDE; ++i)
      for (int j = 0; j < STRIDE; ++j) {
        const int n = i * STRIDE + j;
        x[n] = column_y[n] = position(j);
        y[n] = column_x[n] = position(i);
        if (j >= SIDE) continue;
        root_weight[n] = window[j * SIDE + i];
        inverse_root[n] = 1 / root_weight[n];
      }
  }
};

double sigma_of(const double *map) { return std::sqrt(std::abs(map[0] * map[4] - map[1] * map[3])); }

// The coarsest level in which samples are at least one pixel apart.
int level_of(const double *map, double spacing, int level_count) {
  const double distance = sigma_of(map) * spacing;
  int level = 0;
  while (level + 1 < level_count && distance >= (double)(1 << (level + 1))) ++level;
  return level;
}

// Samples the patch around a frame bilinearly into buffers.patch. Borders are replicated. Returns false if the
// frame is outside of the image or its numbers are out of range.
bool sample(const std::vector<PyramidLevel> &levels, const double *map, double spacing, const Grid &grid,
            Buffers &buffers) {
  for (int i = 0; i < 6; ++i)
    if (!(std::abs(map[i]) < 1e6)) return false;
  const int index = level_of(map, spacing, (int)levels.size());
  const PyramidLevel &level = levels[index];
  if (std::min(level.width, level.height) < 2) return false;
  const double scale = 1.0 / (1 << index), x0 = map[2] * scale, y0 = map[5] * scale;
  const double cx = std::floor(x0), cy = std::floor(y0);
  const float extent = (float)(spacing * (SIDE / 2));
  const float b00 = (float)(map[0] * scale), b01 = (float)(map[1] * scale), dx = (float)(x0 - cx);
  const float b10 = (float)(map[3] * scale), b11 = (float)(map[4] * scale), dy = (float)(y0 - cy);
  const Vec left = broadcast((float)-cx), right = broadcast((float)(level.width - 1 - cx));
  const Vec top = broadcast((float)-cy), bottom = broadcast((float)(level.height - 1 - cy));
  const IntVec last_x = broadcast((std::int32_t)(level.width - 2 - cx));
  const IntVec last_y = broadcast((std::int32_t)(level.height - 2 - cy));
  const float reach_x = (std::abs(b00) + std::abs(b01)) * extent + 1;
  const float reach_y = (std::abs(b10) + std::abs(b11)) * extent + 1;
  if (cx + reach_x < 0 || cy + reach_y < 0 || cx - reach_x > level.width || cy - reach_y > level.height) return false;
  if (!(reach_x < 1e5f && reach_y < 1e5f)) return false;
  // The samples of most frames are all inside the level and need no clamping.
  const bool inside =
      cx - reach_x >= 0 && cy - reach_y >= 0 && cx + reach_x <= level.width - 2 && cy + reach_y <= level.height - 2;
  const auto locate = [&](auto all_inside) {
    for (int n = 0; n < SIDE * STRIDE; n += LANES) {
      Vec x = mul_add(b00, load(grid.x + n), mul_add(b01, load(grid.y + n), broadcast(dx)));
      Vec y = mul_add(b10, load(grid.x + n), mul_add(b11, load(grid.y + n), broadcast(dy)));
      if (!all_inside) {
        x = x < left ? left : x > right ? right : x;
        y = y < top ? top : y > bottom ? bottom : y;
      }
      IntVec ix = floor_to_int(x), iy = floor_to_int(y);
      if (!all_inside) {
        ix = ix > last_x ? last_x : ix;
        iy = iy > last_y ? last_y : iy;
      }
      store(buffers.u + n, x - __builtin_convertvector(ix, Vec));
      store(buffers.v + n, y - __builtin_convertvector(iy, Vec));
      const IntVec pixel = iy * level.width + ix;
      std::memcpy(buffers.pixel + n, &pixel, sizeof pixel);
    }
  };
  if (inside)
    locate(std::true_type{});
  else
    locate(std::false_type{});
  const float *upper_row = level.pixels, *lower_row = level.pixels + level.width;
  const i64 center = (i64)cy * level.width + (i64)cx;
  // Interpolate vertically in the columns to the left and right of a sample, then horizontally.
  for (int n = 0; n < SIDE * STRIDE; ++n) {
    const i64 pixel = center + buffers.pixel[n];
    const Vec2 upper = load2(upper_row + pixel), lower = load2(lower_row + pixel);
    store2(buffers.columns + 2 * n, mul_add2(buffers.v[n], lower - upper, upper));
  }
  for (int n = 0; n < SIDE * STRIDE; n += 4) {
    const Vec4 one = load4(buffers.columns + 2 * n), two = load4(buffers.columns + 2 * n + 4);
    const Vec4 left = SHUFFLE(one, two, 0, 2, 4, 6), right = SHUFFLE(one, two, 1, 3, 5, 7);
    store4(buffers.patch + n, mul_add4(load4(buffers.u + n), right - left, left));
  }
  return true;
}

// Computes the windowed gradient field of buffers.patch divided by its root mean square. Returns the mean square.
double compute_field(const Filters &filters, const Grid &grid, double epsilon, Buffers &buffers, float *field) {
  filter(filters.smooth, filters.derivative, buffers.patch, buffers.first, buffers.second);
  transpose_patch(buffers.first, buffers.first_transposed);
  transpose_patch(buffers.second, buffers.second_transposed);
  filter(filters.derivative, filters.smooth, buffers.first_transposed, buffers.second_transposed, field, field + FIELD);
  Vec sum[PARTS / LANES] = {};
  for (int i = 0; i < BOTH; i += PARTS)
    for (int n = 0; n < PARTS / LANES; ++n) {
      const int k = i + n * LANES;
      const Vec value = load(field + k) * load(grid.root_weight + k % FIELD);
      store(field + k, value);
      sum[n] = mul_add(value, value, sum[n]);
    }
  const double power = total(sum);
  const float scale = (float)(1 / std::sqrt(power + epsilon));
  for (int i = 0; i < BOTH; i += LANES) store(field + i, load(field + i) * scale);
  return power;
}

// Computes the derivatives of the template's windowed field with respect to the parameters of delta.
void compute_jacobian(const Grid &grid, float spacing, Buffers &buffers) {
  const float central = 0.5f / spacing, one_sided = 1 / spacing;
  float *field = buffers.patch, *derivative_y = buffers.first;
  for (int part = 0; part < 2; ++part) {
    for (int n = 0; n < FIELD; n += LANES)
      store(field + n, load(buffers.tmpl + part * FIELD + n) * load(grid.inverse_root + n));
    // Fields are stored column by column: y varies within a row of the array, x from row to row.
    for (int n = LANES; n < SIDE * STRIDE; n += LANES)
      store(derivative_y + n, (load(field + n + 1) - load(field + n - 1)) * central);
    for (int n = 1; n < LANES; ++n) derivative_y[n] = (field[n + 1] - field[n - 1]) * central;
    for (int i = 0; i < SIDE; ++i) {
      const int first = i * STRIDE, last = first + SIDE - 1;
      derivative_y[first] = (field[first + 1] - field[first]) * one_sided;
      derivative_y[last] = (field[last] - field[last - 1]) * one_sided;
    }
    for (int n = 0; n < SIDE * STRIDE; n += 4) {
      const int previous = n < STRIDE ? n : n - STRIDE, next = n + STRIDE < SIDE * STRIDE ? n + STRIDE : n;
      const float scale = next - previous == STRIDE ? one_sided : central;
      const Vec4 root = load4(grid.root_weight + n), x = load4(grid.column_x + n), y = load4(grid.column_y + n);
      const Vec4 dx = (load4(field + next) - load4(field + previous)) * scale * root;
      const Vec4 dy = load4(derivative_y + n) * root;
      const Vec4 derivatives[6] = {dx * x, dx * y, dy * x, dy * y, dx, dy};
      for (int p = 0; p < 6; ++p) store4(buffers.jacobian[p] + part * FIELD + n, derivatives[p]);
    }
  }
  for (int n = 0; n < FIELD; n += LANES) {
    const auto add = [&](int p, int to, int from) {
      store(buffers.jacobian[p] + to + n, load(buffers.jacobian[p] + to + n) + load(buffers.tmpl + from + n));
    };
    add(0, 0, 0);
    add(1, FIELD, 0);
    add(2, 0, FIELD);
    add(3, FIELD, FIELD);
  }
  // Fields have unit mean square: remove the component along the template.
  for (float (&derivative)[BOTH] : buffers.jacobian) {
    const float component = (float)dot<BOTH>(derivative, buffers.tmpl);
    for (int n = 0; n < BOTH; n += LANES)
      store(derivative + n, mul_add(-component, load(buffers.tmpl + n), load(derivative + n)));
  }
}

}  // namespace
}  // namespace caloric::CALORIC_BUILD
