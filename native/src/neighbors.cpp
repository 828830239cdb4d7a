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
    return c >= 0 && exclusion.xy && exclusion.distance(c, nearest) <= exclusion.radius;
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
  multiply(d.a + y * d.depth, 1, d.depth, d.panels, d.columns, scores.data());
  float second = -INF;
  for (i64 c = 0; c < d.columns; ++c)
    if (exclusion.distance(c, result.nearest[y]) > exclusion.radius)
      second = std::max(second, scores[c] - d.half_b[c] - d.half_a[y]);
  result.second[y] = second;
}

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

// Computes the scores a.b - |a|^2/2 - |b|^2/2 of all pairs without storing them: of each row the best column and
// the best two scores, of each column the best score.
void find_nearest(const Descriptors &d, const Exclusion &exclusion, const NearestResult &result) {
  constexpr i64 CHUNK = 8 * ROWS;
  const float *a = d.a, *half_a = d.half_a, *packed = d.panels, *half_b = d.half_b;
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
