// Nearest neighbors of descriptors, and matrix products; compiled once per instruction set.
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

// Rows of a tile of a product, which is two vectors wide: as many as fit in registers.
#if defined(__AVX512F__)
constexpr int ROWS = 12;
#elif defined(__AVX2__)
constexpr int ROWS = 6;
#elif defined(CALORIC_NEON)
constexpr int ROWS = 10;
#else
constexpr int ROWS = 4;
#endif
constexpr i64 PANEL = 2 * LANES;  // columns
constexpr float INF = std::numeric_limits<float>::infinity();

// Computes sum[r, c] = sum_k a[r, k] b[k, c] for R rows of a (R, depth) and one panel b (depth, PANEL).
template <int R>
inline void multiply_tile(const float *a, const float *b, i64 depth, Vec (&sum)[R][2]) {
  Vec total[R][2] = {};  // stays in registers, unlike `sum`, whose address escapes
  for (i64 k = 0; k < depth; ++k) {
    const Vec left = load(b + k * PANEL), right = load(b + k * PANEL + LANES);
    for (int r = 0; r < R; ++r) {
      const float value = a[r * depth + k];
      total[r][0] = mul_add(value, left, total[r][0]);
      total[r][1] = mul_add(value, right, total[r][1]);
    }
  }
  std::memcpy(sum, total, sizeof total);
}

// The best two scores of each lane, and their columns.
struct TopTwo {
  Vec first = broadcast(-INF), second = broadcast(-INF);
  IntVec nearest = broadcast(-1), next = broadcast(-1);
  void add(Vec score, IntVec column) {
    const IntVec better = score > first, good = score > second;
    second = better ? first : good ? score : second;
    next = better ? nearest : good ? column : next;
    first = better ? score : first;
    nearest = better ? column : nearest;
  }
};

double distance(const double *xy, i64 a, i64 b) {
  return std::max(std::abs(xy[2 * a] - xy[2 * b]), std::abs(xy[2 * a + 1] - xy[2 * b + 1]));
}

// Writes the best column of row y, and the best score of a column that is not excluded by it. Of equal scores the
// first column is taken. Returns false if the two columns of some lane may hide a better second score.
bool reduce_lanes(const TopTwo &lanes, const Exclusion &exclusion, const NearestResult &result, i64 y) {
  int lane = 0;
  for (int l = 1; l < LANES; ++l)
    if (lanes.first[l] > lanes.first[lane] ||
        (lanes.first[l] == lanes.first[lane] && lanes.nearest[l] < lanes.nearest[lane]))
      lane = l;
  const i64 nearest = lanes.nearest[lane];
  const auto excluded = [&](i64 c) {
    if (c == nearest) return true;
    if (!exclusion.xy || c < 0) return false;
    return distance(exclusion.xy, c, nearest) <= exclusion.radius;
  };
  float second = -INF, hidden = -INF;
  for (int l = 0; l < LANES; ++l) {
    const bool first_excluded = excluded(lanes.nearest[l]), second_excluded = excluded(lanes.next[l]);
    if (!first_excluded) second = std::max(second, lanes.first[l]);
    if (!second_excluded) second = std::max(second, lanes.second[l]);
    if (first_excluded && second_excluded) hidden = std::max(hidden, lanes.second[l]);
  }
  result.nearest[y] = nearest;
  result.best[y] = lanes.first[lane];
  result.second[y] = second;
  return hidden <= second;
}

// Finds the second best score of row y from the scores of all columns.
void find_second(const Descriptors &d, const Exclusion &exclusion, const NearestResult &result, i64 y,
                 std::vector<float> &scores) {
  multiply(d.a + y * d.depth, 1, d.depth, d.b, d.columns, scores.data());
  float second = -INF;
  for (i64 c = 0; c < d.columns; ++c)
    if (distance(exclusion.xy, c, result.nearest[y]) > exclusion.radius)
      second = std::max(second, scores[c] - d.half_b[c] - d.half_a[y]);
  result.second[y] = second;
}

QuantizedRows quantize(const float *a, i64 rows, i64 depth) {
  QuantizedRows quantized;
  quantized.depth = padded_depth(depth);
  quantized.values.assign(rows * quantized.depth, 0);
  for (i64 y = 0; y < rows; ++y) {
    float largest = 0;
    double squared_error = 0, squared_norm = 0;
    for (i64 k = 0; k < depth; ++k) largest = std::max(largest, std::abs(a[y * depth + k]));
    const float scale = largest / 127;
    for (i64 k = 0; k < depth; ++k) {
      const float value = a[y * depth + k];
      const int q = scale > 0 ? (int)std::lrint(value / scale) : 0;
      quantized.values[y * quantized.depth + k] = (std::int8_t)std::max(-127, std::min(127, q));
      const double error = value - (double)scale * quantized.values[y * quantized.depth + k];
      squared_error += error * error;
      squared_norm += (double)value * value;
    }
    quantized.scale.push_back(scale);
    quantized.error.push_back((float)std::sqrt(squared_error));
    quantized.max_norm = std::max(quantized.max_norm, (float)std::sqrt(squared_norm));
  }
  return quantized;
}

#ifdef CALORIC_NEON
constexpr int SCREENED_ROWS = 8;  // screened at once
#ifdef __clang__
#define CALORIC_DOTPROD __attribute__((target("dotprod")))
#else
#define CALORIC_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

// Computes the products of a row with one panel, in the order of multiply_tile.
inline void multiply_row(const float *a, const float *b, i64 depth, Vec (&sum)[2]) {
  Vec left = {}, right = {};
  for (i64 k = 0; k < depth; ++k) {
    left = mul_add(a[k], load(b + k * PANEL), left);
    right = mul_add(a[k], load(b + k * PANEL + LANES), right);
  }
  sum[0] = left;
  sum[1] = right;
}

// Quantized rows or columns; `offset` is the error bound minus half the squared norm.
struct ScreenSide {
  const std::int8_t *values;
  const float *scale, *offset;
};

// Returns a bit for each of 8 rows that may have a product with one of 8 columns above `row_limits` (8, 4), a
// vector of lanes per row, or above `column_limits` (8,). Upper bounds are int8 products plus their errors.
CALORIC_DOTPROD unsigned screen(const ScreenSide &rows, const ScreenSide &columns, i64 depth, const float *row_limits,
                                const float *column_limits) {
  const std::int8_t *a = rows.values, *b = columns.values;
  int32x4_t total[SCREENED_ROWS][2];
  for (int r = 0; r < SCREENED_ROWS; ++r) total[r][0] = total[r][1] = vdupq_n_s32(0);
  for (i64 k = 0; k < depth; k += 16) {
    int8x16_t left[SCREENED_ROWS];
    for (int r = 0; r < SCREENED_ROWS; ++r) left[r] = vld1q_s8(a + r * depth + k);
#define CALORIC_STEP(lane)                                                                             \
  {                                                                                                    \
    const int8x16_t one = vld1q_s8(b + 8 * k + 32 * lane), two = vld1q_s8(b + 8 * k + 32 * lane + 16); \
    for (int r = 0; r < SCREENED_ROWS; ++r) {                                                          \
      total[r][0] = vdotq_laneq_s32(total[r][0], one, left[r], lane);                                  \
      total[r][1] = vdotq_laneq_s32(total[r][1], two, left[r], lane);                                  \
    }                                                                                                  \
  }
    CALORIC_STEP(0) CALORIC_STEP(1) CALORIC_STEP(2) CALORIC_STEP(3)
#undef CALORIC_STEP
  }
  const float32x4_t scale[2] = {vld1q_f32(columns.scale), vld1q_f32(columns.scale + 4)};
  const float32x4_t offset[2] = {vld1q_f32(columns.offset), vld1q_f32(columns.offset + 4)};
  const float32x4_t column_limit[2] = {vld1q_f32(column_limits), vld1q_f32(column_limits + 4)};
  unsigned flagged = 0;
  for (int r = 0; r < SCREENED_ROWS; ++r) {
    const float32x4_t row_limit = vld1q_f32(row_limits + 4 * r), row_offset = vdupq_n_f32(rows.offset[r]);
    uint32x4_t any = vdupq_n_u32(0);
    for (int side = 0; side < 2; ++side) {
      const float32x4_t product = vcvtq_f32_s32(total[r][side]), factor = vmulq_n_f32(scale[side], rows.scale[r]);
      const float32x4_t bound = vaddq_f32(vfmaq_f32(offset[side], product, factor), row_offset);
      any = vorrq_u32(any, vorrq_u32(vcgtq_f32(bound, row_limit), vcgtq_f32(bound, column_limit[side])));
    }
    flagged |= (vmaxvq_u32(any) != 0) << r;
  }
  return flagged;
}

// find_nearest where most pairs are rejected by an int8 bound. Returns false if the numbers are too small to bound
// the rounding errors.
bool find_nearest_screened(const Descriptors &d, const Exclusion &exclusion, const NearestResult &result) {
  constexpr i64 CHUNK = 64, SAMPLE = 16;  // rows at once; one panel of SAMPLE is scanned first
  const float *a = d.a, *half_a = d.half_a, *packed = d.b, *half_b = d.half_b;
  const i64 rows = d.rows, depth = d.depth, columns = d.columns;
  const QuantizedRows &right = *d.quantized_b;
  float *best_of_column = result.best_of_column;
  IntVec lane_index;
  for (int l = 0; l < LANES; ++l) lane_index[l] = l;
  QuantizedRows left = quantize(a, rows, depth);
  std::vector<std::int8_t> rescanned(SCREENED_ROWS * left.depth);
  float no_limits[PANEL];
  for (float &limit : no_limits) limit = INF;
  left.values.resize((rows + SCREENED_ROWS) * left.depth);  // the last group of rows is padded
  left.scale.resize(rows + SCREENED_ROWS);
  // A generous bound on the rounding errors of the sums.
  const float rounding = 1e-4f * left.max_norm * right.max_norm;
  if (!(rounding > 1e-30f)) return false;
  std::vector<float> column_offset(right.scale.size(), -INF), row_offset(rows + SCREENED_ROWS, -INF);
  for (std::size_t c = 0; c < column_offset.size(); ++c) column_offset[c] = right.error[c] * left.max_norm - half_b[c];
  for (i64 y = 0; y < rows; ++y) row_offset[y] = left.error[y] * 1.01f * right.max_norm + rounding - half_a[y];
  const auto quantized_columns = [&](i64 x) {
    return ScreenSide{right.values.data() + x * left.depth, right.scale.data() + x, column_offset.data() + x};
  };
  for (i64 start = 0; start < rows; start += CHUNK) {
    const i64 stop = std::min(rows, start + CHUNK);
    TopTwo top[CHUNK];
    float limits[CHUNK + SCREENED_ROWS][LANES];
    Vec lower_bounds[CHUNK];  // of the second best score of each lane
    const auto scan = [&](i64 x) {
      for (i64 y = start; y < stop; y += SCREENED_ROWS) {
        const ScreenSide quantized_rows{left.values.data() + y * left.depth, left.scale.data() + y,
                                        row_offset.data() + y};
        unsigned flagged =
            screen(quantized_rows, quantized_columns(x), left.depth, limits[y - start], best_of_column + x);
        for (; flagged; flagged &= flagged - 1) {
          const i64 r = y + __builtin_ctz(flagged);
          if (r >= stop) break;
          Vec sum[2];
          multiply_row(a + r * depth, packed + x * depth, depth, sum);
          for (int side = 0; side < 2; ++side) {
            const Vec score = sum[side] - load(half_b + x + side * LANES) - half_a[r];
            top[r - start].add(score, lane_index + (std::int32_t)(x + side * LANES));
            store(best_of_column + x + side * LANES, max(load(best_of_column + x + side * LANES), score));
          }
          store(limits[r - start], max(lower_bounds[r - start], top[r - start].second));
        }
      }
    };
    for (i64 y = 0; y < CHUNK; ++y) lower_bounds[y] = broadcast(-INF);
    std::fill(&limits[0][0], &limits[0][0] + sizeof limits / sizeof(float), -INF);
    for (i64 x = 0; x < columns; x += SAMPLE * PANEL) scan(x);
    for (i64 y = 0; y < stop - start; ++y) {
      // Slightly lower, so that the second scan finds the scores of the first again.
      lower_bounds[y] = top[y].second - rounding;
      store(limits[y], lower_bounds[y]);
      top[y] = TopTwo();
    }
    for (i64 x = 0; x < columns; x += PANEL) scan(x);
    i64 incomplete[CHUNK], count = 0;
    for (i64 y = start; y < stop; ++y)
      if (!reduce_lanes(top[y - start], exclusion, result, y)) incomplete[count++] = y;
    // If excluded columns may hide the second best score, scan all columns again.
    for (i64 group = 0; group < count; group += SCREENED_ROWS) {
      const i64 group_rows = std::min<i64>(SCREENED_ROWS, count - group);
      float scale[SCREENED_ROWS] = {}, offset[SCREENED_ROWS];
      for (i64 r = 0; r < SCREENED_ROWS; ++r) {
        const i64 y = incomplete[group + std::min(r, group_rows - 1)];
        std::memcpy(rescanned.data() + r * left.depth, left.values.data() + y * left.depth, left.depth);
        scale[r] = left.scale[y];
        offset[r] = r < group_rows ? row_offset[y] : -INF;
        store(limits[r], broadcast(result.second[y]));
      }
      for (i64 x = 0; x < columns; x += PANEL) {
        unsigned flagged =
            screen({rescanned.data(), scale, offset}, quantized_columns(x), left.depth, limits[0], no_limits);
        for (; flagged; flagged &= flagged - 1) {
          const i64 r = __builtin_ctz(flagged), y = incomplete[group + r];
          Vec sum[2];
          multiply_row(a + y * depth, packed + x * depth, depth, sum);
          for (i64 c = x; c < std::min(columns, x + PANEL); ++c) {
            const float score = sum[(c - x) / LANES][(c - x) % LANES] - half_b[c] - half_a[y];
            if (distance(exclusion.xy, c, result.nearest[y]) > exclusion.radius)
              result.second[y] = std::max(result.second[y], score);
          }
          store(limits[r], broadcast(result.second[y]));
        }
      }
    }
  }
  return true;
}
#endif

}  // namespace

// Returns b (columns, depth), transposed, in panels (depth, PANEL) with zeros after the last column.
std::vector<float> pack_panels(const float *b, i64 columns, i64 depth) {
  std::vector<float> panels((columns + PANEL - 1) / PANEL * depth * PANEL);
  for (i64 c = 0; c < columns; ++c)
    for (i64 k = 0; k < depth; ++k) panels[(c / PANEL * depth + k) * PANEL + c % PANEL] = b[c * depth + k];
  return panels;
}

// Computes result (rows, columns) = a (rows, depth) b, with b packed in panels.
void multiply(const float *a, i64 rows, i64 depth, const float *panels, i64 columns, float *result) {
  for (i64 x = 0; x < columns; x += PANEL) {
    const float *panel = panels + x * depth;
    for (i64 y = 0; y < rows; y += ROWS) {
      const i64 count = std::min<i64>(ROWS, rows - y);
      Vec sum[ROWS][2];
      if (count == ROWS) {
        multiply_tile<ROWS>(a + y * depth, panel, depth, sum);
      } else {
        for (i64 r = 0; r < count; ++r) {
          Vec row[1][2];
          multiply_tile<1>(a + (y + r) * depth, panel, depth, row);
          sum[r][0] = row[0][0];
          sum[r][1] = row[0][1];
        }
      }
      for (i64 r = 0; r < count; ++r) {
        store(result + (y + r) * columns + x, sum[r][0], columns - x);
        if (x + LANES < columns) store(result + (y + r) * columns + x + LANES, sum[r][1], columns - x - LANES);
      }
    }
  }
}

// Returns b (columns, depth) quantized, interleaved in groups of 8 columns and padded to whole groups.
QuantizedRows quantize_columns(const float *b, i64 columns, i64 depth) {
  constexpr i64 GROUP = 8;
  const i64 padded_columns = (columns + GROUP - 1) / GROUP * GROUP;
  QuantizedRows quantized = quantize(b, columns, depth);
  const i64 padded = quantized.depth;
  std::vector<std::int8_t> interleaved(padded_columns * padded, 0);
  for (i64 c = 0; c < columns; ++c)
    for (i64 k = 0; k < padded; ++k)
      interleaved[(c - c % GROUP) * padded + (k / 4) * 4 * GROUP + (c % GROUP) * 4 + k % 4] =
          quantized.values[c * padded + k];
  quantized.values = std::move(interleaved);
  quantized.scale.resize(padded_columns);
  quantized.error.resize(padded_columns);
  return quantized;
}

// Computes the scores a.b - |a|^2/2 - |b|^2/2 of all pairs without storing them: of each row the best column and
// the best two scores, of each column the best score. With quantized descriptors only the scores that can matter
// are computed; the result is the same.
void find_nearest(const Descriptors &d, const Exclusion &exclusion, const NearestResult &result) {
#ifdef CALORIC_NEON
  if (d.quantized_b && find_nearest_screened(d, exclusion, result)) return;
#endif
  constexpr i64 CHUNK = 8 * ROWS;
  const float *a = d.a, *half_a = d.half_a, *packed = d.b, *half_b = d.half_b;
  const i64 rows = d.rows, depth = d.depth, columns = d.columns;
  IntVec lane_index;
  for (int l = 0; l < LANES; ++l) lane_index[l] = l;
  std::vector<float> scores(columns + PANEL);
  for (i64 start = 0; start < rows; start += CHUNK) {
    const i64 stop = std::min(rows, start + CHUNK);
    TopTwo top[CHUNK];
    for (i64 x = 0; x < columns; x += PANEL) {
      const Vec half[2] = {load(half_b + x), load(half_b + x + LANES)};
      Vec column_best[2] = {load(result.best_of_column + x), load(result.best_of_column + x + LANES)};
      const auto add = [&](i64 y, Vec(&sum)[2]) {
        for (int side = 0; side < 2; ++side) {
          const Vec score = sum[side] - half[side] - half_a[y];
          top[y - start].add(score, lane_index + (std::int32_t)(x + side * LANES));
          column_best[side] = max(column_best[side], score);
        }
      };
      i64 y = start;
      for (; y + ROWS <= stop; y += ROWS) {
        Vec sum[ROWS][2];
        multiply_tile<ROWS>(a + y * depth, packed + x * depth, depth, sum);
        for (int r = 0; r < ROWS; ++r) add(y + r, sum[r]);
      }
      for (; y < stop; ++y) {
        Vec sum[1][2];
        multiply_tile<1>(a + y * depth, packed + x * depth, depth, sum);
        add(y, sum[0]);
      }
      store(result.best_of_column + x, column_best[0]);
      store(result.best_of_column + x + LANES, column_best[1]);
    }
    for (i64 y = start; y < stop; ++y)
      if (!reduce_lanes(top[y - start], exclusion, result, y)) find_second(d, exclusion, result, y, scores);
  }
}

}  // namespace caloric::CALORIC_BUILD
