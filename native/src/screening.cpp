// Exact nearest neighbors where most pairs are rejected by a bound from int8 products; compiled once per
// instruction set that has such products.
//
// A row is scale * q plus an error of norm e, with integers q. The product of two rows a and b is therefore at most
// scale_a scale_b (q_a . q_b) + e_a |b| + e_b |a|. Pairs whose bound exceeds the second best score of the row or the
// best score of the column found so far are multiplied in float; those that still matter in the end are multiplied in
// the order of `multiply`, so that the result is that of find_nearest to the last bit. Descriptors in bytes are
// integers themselves: their products are exact, so that no pair is multiplied again.
#include "kernels.hpp"
#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

#if defined(__AVX512BW__) || defined(__AVX2__) || (defined(CALORIC_NEON) && defined(__ARM_FEATURE_DOTPROD))
#define CALORIC_INT8
#endif

#ifdef CALORIC_INT8

typedef std::int32_t Int32;

inline IntVec min(IntVec a, IntVec b) { return a < b ? a : b; }
template <class Element>
inline IntVec load_integers(const Element *p) {
  IntVec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// ---- Products of int8. A tile is ROWS rows of a by one group of GROUP columns of b. The bytes of a group are
// interleaved, 4 of each column at a time.
//
// The sums of a column start at a given number. Vector instructions of x86 multiply unsigned by signed bytes: columns
// are stored plus 128, and sums start lower by 128 sum(q_a). Without VNNI products are summed in int16: first two
// neighboring ones, then every second of these sums over a part of the depth. This limits the sum of neighboring
// entries of a row, and the norms of such entries. AMX multiplies matrices of signed bytes, with 16 rows of 64 bytes.

#if defined(__AMX_INT8__) || defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(CALORIC_NEON)
#define CALORIC_EXACT_BYTES
constexpr bool SUMS_INT16 = false;
#else
constexpr bool SUMS_INT16 = true;
#endif
constexpr float LARGEST = 127;
constexpr float MAX_PAIR = 128;  // sum of two entries of a row: times bytes up to 255 it is below 2^15
constexpr float MAX_NORM = 181;  // products of such norms are below 2^15
constexpr i64 PART = 64;         // bytes that are summed in int16

#if defined(CALORIC_NEON)
constexpr int ROWS = 8, VECTORS = 2, ZERO = 0;
#elif defined(__AMX_INT8__)
constexpr int ROWS = 32, VECTORS = 32 / LANES, ZERO = 0;
#elif defined(__AVX512F__)
constexpr int ROWS = 6, VECTORS = 4, ZERO = 128;
#else
constexpr int ROWS = 6, VECTORS = 2, ZERO = 128;
#endif
constexpr i64 GROUP = VECTORS * LANES;

// Returns the number of bytes per row: a multiple of what is multiplied at once.
#if defined(__AMX_INT8__)
constexpr i64 bytes_per_row(i64 depth) { return (depth + 63) / 64 * 64; }
#else
constexpr i64 bytes_per_row(i64 depth) { return padded_depth(depth); }
#endif

// Returns the number of parts of a row whose sums have their own start.
constexpr i64 parts_per_row(i64 depth) { return SUMS_INT16 ? (depth + PART - 1) / PART : 1; }

#if defined(CALORIC_NEON)
inline void multiply_tile(const std::int8_t *a, const Int32 *, const std::uint8_t *b, const Int32 *b_start, i64 depth,
                          IntVec (&result)[ROWS][VECTORS]) {
  int32x4_t total[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r) std::memcpy(total[r], b_start, sizeof total[r]);
  for (i64 k = 0; k < depth; k += 16) {
    int8x16_t left[ROWS];
    for (int r = 0; r < ROWS; ++r) left[r] = vld1q_s8(a + r * depth + k);
    unroll<4>([&](auto step) {
      constexpr int LANE = decltype(step)::value;
      int8x16_t right[VECTORS];
      for (int v = 0; v < VECTORS; ++v) right[v] = vld1q_s8((const std::int8_t *)b + GROUP * (k + 4 * LANE) + 16 * v);
      for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v) total[r][v] = vdotq_laneq_s32(total[r][v], right[v], left[r], LANE);
    });
  }
  std::memcpy(result, total, sizeof total);
}

inline Vec to_float(IntVec v) { return (Vec)vcvtq_f32_s32((int32x4_t)v); }
typedef uint8x8_t Flags;  // a byte per column
template <class V>
inline Flags greater(const V (&a)[VECTORS], const V (&b)[VECTORS]) {
  const auto narrowed = [&](int v) { return vmovn_u32((uint32x4_t)(a[v] > b[v])); };
  return vmovn_u16(vcombine_u16(narrowed(0), narrowed(1)));
}
inline std::uint64_t to_bits(Flags flags) { return vget_lane_u64(vreinterpret_u64_u8(flags), 0) & 0x0101010101010101; }
constexpr int BITS_PER_COLUMN = 8;
#else

#if defined(__AVX512F__)
inline IntVec spread(Int32 value) { return (IntVec)_mm512_set1_epi32(value); }
inline Vec to_float(IntVec v) { return (Vec)_mm512_cvtepi32_ps((__m512i)v); }
inline std::uint64_t greater_bits(Vec a, Vec b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ); }
inline std::uint64_t greater_bits(IntVec a, IntVec b) { return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b); }
#if defined(__AVX512VNNI__)
inline IntVec dot(IntVec sum, IntVec columns, IntVec row) {
  return (IntVec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)columns, (__m512i)row);
}
inline IntVec finish(IntVec sum) { return sum; }
#else
inline IntVec dot(IntVec sum, IntVec columns, IntVec row) {
  return (IntVec)_mm512_add_epi16((__m512i)sum, _mm512_maddubs_epi16((__m512i)columns, (__m512i)row));
}
inline IntVec finish(IntVec sum) { return (IntVec)_mm512_madd_epi16((__m512i)sum, _mm512_set1_epi16(1)); }
#endif
#else
inline IntVec spread(Int32 value) { return (IntVec)_mm256_set1_epi32(value); }
inline Vec to_float(IntVec v) { return (Vec)_mm256_cvtepi32_ps((__m256i)v); }
inline std::uint64_t greater_bits(Vec a, Vec b) {
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ));
}
inline std::uint64_t greater_bits(IntVec a, IntVec b) {
  return _mm256_movemask_ps((__m256)_mm256_cmpgt_epi32((__m256i)a, (__m256i)b));
}
#if defined(__AVXVNNI__)
inline IntVec dot(IntVec sum, IntVec columns, IntVec row) {
  return (IntVec)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)columns, (__m256i)row);
}
inline IntVec finish(IntVec sum) { return sum; }
#else
inline IntVec dot(IntVec sum, IntVec columns, IntVec row) {
  return (IntVec)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)columns, (__m256i)row));
}
inline IntVec finish(IntVec sum) { return (IntVec)_mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1)); }
#endif
#endif

#if defined(__AMX_INT8__)
// Configures the tiles of this thread: all have 16 rows of 64 bytes.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles &) = delete;
  Tiles &operator=(const Tiles &) = delete;
};

inline void multiply_tile(const std::int8_t *a, const Int32 *, const std::uint8_t *b, const Int32 *b_start, i64 depth,
                          IntVec (&result)[ROWS][VECTORS]) {
  _tile_loadd(0, b_start, 0);  // all rows are the same
  _tile_loadd(1, b_start + 16, 0);
  _tile_loadd(2, b_start, 0);
  _tile_loadd(3, b_start + 16, 0);
  for (i64 k = 0; k < depth; k += 64) {
    _tile_loadd(4, a + k, depth);
    _tile_loadd(5, a + 16 * depth + k, depth);
    _tile_loadd(6, b + GROUP * k, 4 * GROUP);
    _tile_loadd(7, b + GROUP * k + 64, 4 * GROUP);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  auto *products = (std::uint8_t *)result;
  _tile_stored(0, products, 4 * GROUP);
  _tile_stored(1, products + 64, 4 * GROUP);
  _tile_stored(2, products + 16 * 4 * GROUP, 4 * GROUP);
  _tile_stored(3, products + 16 * 4 * GROUP + 64, 4 * GROUP);
}
#else
inline void multiply_tile(const std::int8_t *a, const Int32 *a_start, const std::uint8_t *b, const Int32 *b_start,
                          i64 depth, IntVec (&result)[ROWS][VECTORS]) {
  const i64 parts = parts_per_row(depth);
  for (i64 part = 0; part < parts; ++part) {
    IntVec total[ROWS][VECTORS];
    unroll<ROWS>([&](auto r) {
      const IntVec start = spread(a_start[r * parts + part]);
      unroll<VECTORS>([&](auto v) { total[r][v] = SUMS_INT16 ? start : start + load_integers(b_start + v * LANES); });
    });
    const i64 end = SUMS_INT16 ? std::min(depth, (part + 1) * PART) : depth;
#if defined(__GNUC__) && !defined(__clang__) // Clang unrolls it by itself
#pragma GCC unroll 2
#endif
    for (i64 k = part * PART; k < end; k += 4) {
      IntVec right[VECTORS];
      unroll<VECTORS>([&](auto v) { right[v] = load_integers(b + GROUP * k + v * sizeof(IntVec)); });
      unroll<ROWS>([&](auto r) {
        Int32 four;
        std::memcpy(&four, a + r * depth + k, 4);
        const IntVec left = spread(four);
        unroll<VECTORS>([&](auto v) { total[r][v] = dot(total[r][v], right[v], left); });
      });
    }
    unroll<ROWS>([&](auto r) {
      unroll<VECTORS>([&](auto v) {
        const IntVec sum = finish(total[r][v]);
        if (!SUMS_INT16)
          result[r][v] = sum;
        else
          result[r][v] = sum + (part == 0 ? load_integers(b_start + v * LANES) : result[r][v]);
      });
    });
  }
}
#endif

typedef std::uint64_t Flags;  // a bit per column
template <class V>
inline Flags greater(const V (&a)[VECTORS], const V (&b)[VECTORS]) {
  Flags flags = 0;
  for (int v = 0; v < VECTORS; ++v) flags |= greater_bits(a[v], b[v]) << (v * LANES);
  return flags;
}
inline std::uint64_t to_bits(Flags flags) { return flags; }

constexpr int BITS_PER_COLUMN = 1;
#endif

// ---- Quantization

struct QuantizedRow {
  float scale, error, norm;
};

// Returns entries of a row (depth,) from k on, zero after the last; faster than a partial load for most of them.
inline Vec load_row(const float *row, i64 k, i64 depth) {
  if (k + LANES <= depth) return load(row + k);
  return k < depth ? load(row + k, depth - k) : Vec{};
}

// Returns the largest factor of a row (depth,) with which no sum of int16 overflows. Rounding adds up to 1/2 to each
// entry, unless they are integers. Neighboring entries of columns may have any sum.
float largest_factor(const float *row, i64 depth, bool are_integers, bool is_column) {
  float pair = 0, square = 0;
  for (i64 part = 0; part < depth; part += PART) {
    float squares[2] = {};  // of every second pair of entries
    for (i64 k = part; k < std::min(depth, part + PART); k += 2) {
      const float a = std::abs(row[k]), b = k + 1 < depth ? std::abs(row[k + 1]) : 0;
      pair = std::max(pair, a + b);
      squares[k / 2 % 2] += a * a + b * b;
    }
    square = std::max({square, squares[0], squares[1]});
  }
  const float added = are_integers ? 0 : 0.5f;
  const float factor = (MAX_NORM - added * std::sqrt(PART / 2.0f)) / (1.001f * std::sqrt(square));
  return is_column ? factor : std::min(factor, (MAX_PAIR - 2 * added) / (1.00001f * pair));
}

// Writes the integers q (bytes per row,) of a row or a column (depth,).
QuantizedRow quantize(const float *row, i64 depth, bool is_column, std::int8_t *q) {
  Vec peak = {}, squares = {}, fractions = {};
  for (i64 k = 0; k < depth; k += LANES) {
    const Vec value = load_row(row, k, depth);
    peak = max(peak, abs_difference(value, Vec{}));
    squares = mul_add(value, value, squares);
    fractions = fractions + abs_difference(value, __builtin_convertvector(floor_to_int(value), Vec));
  }
  float largest_entry = 0, square = 0, fraction = 0;
  for (int l = 0; l < LANES; ++l) {
    largest_entry = std::max(largest_entry, peak[l]);
    fraction += fractions[l];
    square += squares[l];
  }
  const i64 padded = bytes_per_row(depth);
  const float norm = 1.001f * std::sqrt(square);
  if (!(largest_entry > 1e-30f)) {
    std::memset(q, 0, padded);
    return {0, norm, norm};
  }
  // Integers, as those of descriptors in bytes, need no rounding if they are small enough.
  float factor = LARGEST / largest_entry;
  const bool are_integers = fraction == 0 && factor >= 1;
  if (are_integers) factor = 1;
  if (SUMS_INT16) {
    const float limit = largest_factor(row, depth, are_integers, is_column);
    if (limit < factor) factor = are_integers ? largest_factor(row, depth, false, is_column) : limit;
  }
  const float scale = 1 / factor;
  Vec errors = {};
  for (i64 k = 0; k < padded; k += LANES) {
    const Vec value = load_row(row, k, depth);
    const IntVec integer = floor_to_int(mul_add(factor, value, broadcast(0.5f)));
    const Vec error = mul_add(-scale, __builtin_convertvector(integer, Vec), value);
    errors = mul_add(error, error, errors);
    Int32 integers[LANES];
    std::memcpy(integers, &integer, sizeof integers);
    for (int l = 0; l < LANES; ++l) q[k + l] = (std::int8_t)integers[l];
  }
  float squared_error = 0;
  for (int l = 0; l < LANES; ++l) squared_error += errors[l];
  return {scale, 1.001f * std::sqrt(squared_error), norm};
}

// Writes the start of the sums of products with integers q (depth,), for each part of the depth.
void write_starts(const std::int8_t *q, i64 depth, Int32 *starts) {
  for (i64 part = 0; part < parts_per_row(depth); ++part) {
    std::uint32_t sums[2] = {};
    const i64 end = SUMS_INT16 ? std::min(depth, (part + 1) * PART) : depth;
    for (i64 k = part * PART; k < end; k += 4) {
      sums[0] -= ZERO * (q[k] + q[k + 1]);
      sums[1] -= ZERO * (q[k + 2] + q[k + 3]);
    }
    starts[part] = (Int32)(SUMS_INT16 ? (sums[0] & 0xffff) | sums[1] << 16 : sums[0] + sums[1]);
  }
}

// ---- Search

// The product of two rows, up to rounding.
inline float multiply_rows(const float *a, const float *b, i64 depth) {
  Vec total[4] = {};
  i64 k = 0;
  for (; k + 4 * LANES <= depth; k += 4 * LANES)
    for (int i = 0; i < 4; ++i) total[i] = mul_add(load(a + k + i * LANES), load(b + k + i * LANES), total[i]);
  for (; k + LANES <= depth; k += LANES) total[0] = mul_add(load(a + k), load(b + k), total[0]);
  if (k < depth) total[1] = mul_add(load(a + k, depth - k), load(b + k, depth - k), total[1]);
  return sum_lanes((total[0] + total[1]) + (total[2] + total[3]));
}

// A pair that may have one of the best scores of its row or its column; `score` is an upper bound at first.
struct Candidate {
  std::int32_t row, column;
  float score;
};

// The best score found in a row, or a lower bound on it, and its column; a lower bound on the second best score.
struct RowState {
  float first = -INF, second = -INF;
  i64 nearest = -1;
};

// The candidates of a search, and the limits that the score of another one must exceed.
class Selection {
 protected:
  Selection(i64 rows, const Exclusion &exclusion, const NearestResult &result)
      : exclusion_(exclusion), result_(result), states_(rows) {}

  // Updates the limits by a lower bound on the score of a pair.
  void update(i64 y, i64 c, float score) {
    column_limits_[c] = std::max(column_limits_[c], score - 2 * rounding_);
    RowState &row = states_[y];
    if (score <= row.second) return;
    // At least one of two columns that are far from each other is not excluded, whatever the nearest column is.
    if (row.nearest >= 0 && is_far(c, row.nearest)) row.second = std::max(row.second, std::min(score, row.first));
    if (score > row.first) {
      row.first = score;
      row.nearest = c;
    }
  }

  bool is_far(i64 a, i64 b) const {
    return a != b && (!exclusion_.xy || exclusion_.distance(a, b) > 2.0001 * exclusion_.radius);
  }

  void drop_irrelevant_candidates() {
    const auto is_irrelevant = [&](const Candidate &p) {
      return p.score < states_[p.row].second - 2 * rounding_ && p.score < column_limits_[p.column];
    };
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), is_irrelevant), candidates_.end());
  }

  // Writes the result, from the scores of the candidates.
  void write_result() {
    for (std::size_t y = 0; y < states_.size(); ++y) {
      result_.nearest[y] = -1;
      result_.best[y] = result_.second[y] = -INF;
    }
    for (const Candidate &p : candidates_) {
      float &best = result_.best[p.row], &best_of_column = result_.best_of_column[p.column];
      i64 &nearest = result_.nearest[p.row];
      best_of_column = std::max(best_of_column, p.score);
      if (p.score > best || (p.score == best && p.column < nearest)) {
        best = p.score;
        nearest = p.column;
      }
    }
    for (const Candidate &p : candidates_) {
      const i64 nearest = result_.nearest[p.row];
      if (p.column == nearest || (exclusion_.xy && exclusion_.distance(p.column, nearest) <= exclusion_.radius))
        continue;
      result_.second[p.row] = std::max(result_.second[p.row], p.score);
    }
  }

  const Exclusion &exclusion_;
  const NearestResult &result_;
  float rounding_ = 0;  // largest difference of two scores of the same pair
  std::vector<RowState> states_;
  std::vector<float> column_limits_;
  std::vector<Candidate> candidates_;
};

class Search : Selection {
 public:
  Search(const Descriptors &d, const QuantizedColumns &columns, const Exclusion &exclusion, const NearestResult &result)
      : Selection(d.rows, exclusion, result), d_(d), columns_(columns) {}

  bool run() {
    if (!quantize_rows()) return false;
#if defined(__AMX_INT8__)
    const Tiles tiles;
#endif
    for (i64 x = 0; x < d_.columns; x += GROUP)
      for (i64 y = 0; y < d_.rows; y += ROWS) screen(y, x);
    multiply_candidates();
    multiply_in_order();
    write_result();
    return true;
  }

 private:
  // Returns false if the numbers are too small to bound the rounding errors.
  bool quantize_rows() {
    const i64 rows = d_.rows, depth = columns_.depth, padded_rows = (rows + ROWS - 1) / ROWS * ROWS;
    q_.assign(padded_rows * depth, 0);
    scale_.assign(padded_rows, 0);
    start_.assign(padded_rows * parts_per_row(depth), 0);
    error_.assign(padded_rows, 0);
    float max_norm = 0, max_half = 0;
    for (i64 y = 0; y < rows; ++y) {
      std::int8_t *q = q_.data() + y * depth;
      const QuantizedRow row = quantize(d_.a + y * d_.depth, d_.depth, false, q);
      scale_[y] = row.scale;
      error_[y] = row.error;
      max_norm = std::max(max_norm, row.norm);
      max_half = std::max(max_half, d_.half_a[y]);
      write_starts(q, depth, start_.data() + y * parts_per_row(depth));
    }
    for (i64 c = 0; c < d_.columns; ++c) max_half = std::max(max_half, d_.half_b[c]);
    // Scores of the same pair differ by at most this, in whatever order products are summed.
    rounding_ = 1.3e-7f * ((d_.depth + 16) * max_norm * columns_.max_norm + 8 * max_half);
    if (!(rounding_ > 1e-30f)) return false;
    offset_.assign(padded_rows, -INF);
    limits_.assign(padded_rows, INF);
    for (i64 y = 0; y < rows; ++y) {
      error_[y] = error_[y] * 1.05f * columns_.max_norm + 2 * rounding_;
      offset_[y] = error_[y] - d_.half_a[y];
      limits_[y] = -INF;
    }
    const std::size_t padded_columns = columns_.scale.size();
    column_start_.assign(padded_columns, 0);
    column_error_.assign(padded_columns, 0);
    column_offset_.assign(padded_columns, -INF);
    column_limits_.assign(padded_columns, INF);
    for (i64 c = 0; c < d_.columns; ++c) {
      column_error_[c] = columns_.error[c] * max_norm;
      column_offset_[c] = column_error_[c] - d_.half_b[c];
      column_limits_[c] = result_.best_of_column[c] - 2 * rounding_;
    }
    return true;
  }

  // Notes the pairs of ROWS rows and GROUP columns whose bound exceeds a limit.
  void screen(i64 y, i64 x) {
    IntVec products[ROWS][VECTORS];
    multiply_tile(q_.data() + y * columns_.depth, start_.data() + y * parts_per_row(columns_.depth),
                  columns_.values.data() + x * columns_.depth, column_start_.data() + x, columns_.depth, products);
    Vec scale[VECTORS], offset[VECTORS], column_limit[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
      scale[v] = load(columns_.scale.data() + x + v * LANES);
      offset[v] = load(column_offset_.data() + x + v * LANES);
      column_limit[v] = load(column_limits_.data() + x + v * LANES);
    }
    Vec bounds[ROWS][VECTORS];
    Flags flags[ROWS], any = {};
    unroll<ROWS>([&](auto r) {
      Vec limit[VECTORS];
      for (int v = 0; v < VECTORS; ++v) {
        bounds[r][v] = mul_add(to_float(products[r][v]), scale_[y + r] * scale[v], offset[v]);
        limit[v] = min(broadcast(limits_[y + r]), column_limit[v] - offset_[y + r]);
      }
      flags[r] = greater(bounds[r], limit);
      any |= flags[r];
    });
    if (!to_bits(any)) return;
    for (int r = 0; r < ROWS; ++r)
      for (std::uint64_t bits = to_bits(flags[r]); bits; bits &= bits - 1) {
        const int column = __builtin_ctzll(bits) / BITS_PER_COLUMN;
        const float bound = ((const float *)bounds[r])[column];
        // Earlier pairs of the tile may have raised the limits.
        const float limit = std::min(limits_[y + r], column_limits_[x + column] - offset_[y + r]);
        if (bound > limit) note(y + r, x + column, bound);
      }
  }

  void note(i64 y, i64 c, float bound) {
    const float upper = bound + offset_[y], lower = upper - 2 * (error_[y] + column_error_[c]);
    candidates_.push_back({(std::int32_t)y, (std::int32_t)c, upper});
    update(y, c, lower);
    limits_[y] = states_[y].second - 2 * rounding_ - offset_[y];
  }

  // Replaces bounds by scores, up to rounding.
  void multiply_candidates() {
    drop_irrelevant_candidates();
    for (RowState &row : states_) row = {-INF, row.second, -1};
    for (Candidate &p : candidates_) {
      const float product = multiply_rows(d_.a + p.row * d_.depth, d_.b + p.column * d_.depth, d_.depth);
      p.score = product - d_.half_b[p.column] - d_.half_a[p.row];
      update(p.row, p.column, p.score);
    }
    drop_irrelevant_candidates();
  }

  // Computes the scores of the remaining candidates in the order of `multiply`.
  void multiply_in_order() {
    constexpr std::size_t CHAINS = 4;  // sums at once
    for (std::size_t i = 0; i < candidates_.size(); i += CHAINS) {
      const float *a[CHAINS], *b[CHAINS];
      float sum[CHAINS] = {};
      for (std::size_t j = 0; j < CHAINS; ++j) {
        const Candidate &p = candidates_[std::min(i + j, candidates_.size() - 1)];
        a[j] = d_.a + p.row * d_.depth;
        b[j] = d_.b + p.column * d_.depth;
      }
      for (i64 k = 0; k < d_.depth; ++k)
        for (std::size_t j = 0; j < CHAINS; ++j) sum[j] = mul_add1(a[j][k], b[j][k], sum[j]);
      for (std::size_t j = 0; j < CHAINS && i + j < candidates_.size(); ++j) {
        Candidate &p = candidates_[i + j];
        p.score = sum[j] - d_.half_b[p.column] - d_.half_a[p.row];
      }
    }
  }

  const Descriptors &d_;
  const QuantizedColumns &columns_;
  // Of the rows: integers, their scale and the start of their sums; the bound on the error of their products, this
  // minus half the squared norm, and the limit of bounds without that.
  Aligned<std::int8_t> q_;
  std::vector<float> scale_;
  std::vector<Int32> start_, column_start_;
  std::vector<float> error_, offset_, limits_;
  std::vector<float> column_error_, column_offset_;
};

// Writes the integers q of column c to its group.
void write_column(const std::vector<std::int8_t> &q, i64 c, std::uint8_t *values) {
  const i64 padded = (i64)q.size();
  std::uint8_t *group = values + c / GROUP * GROUP * padded + c % GROUP * 4;
  for (i64 k = 0; k < padded; k += 4)
    for (int i = 0; i < 4; ++i) group[k * GROUP + i] = (std::uint8_t)(q[k + i] + ZERO);
}

QuantizedColumns quantize_columns(const float *b, i64 columns, i64 depth) {
  QuantizedColumns result;
  const i64 padded = bytes_per_row(depth), padded_columns = (columns + GROUP - 1) / GROUP * GROUP;
  result.depth = padded;
  result.values.assign(padded_columns * padded, ZERO);
  result.scale.assign(padded_columns, 0);
  result.error.assign(padded_columns, 0);
  std::vector<std::int8_t> q(padded);
  for (i64 c = 0; c < columns; ++c) {
    const QuantizedRow row = quantize(b + c * depth, depth, true, q.data());
    result.scale[c] = row.scale;
    result.error[c] = row.error;
    result.max_norm = std::max(result.max_norm, row.norm);
    write_column(q, c, result.values.data());
  }
  return result;
}

bool find_nearest_screened(const Descriptors &descriptors, const QuantizedColumns &columns, const Exclusion &exclusion,
                           const NearestResult &result) {
  return Search(descriptors, columns, exclusion, result).run();
}

#ifdef CALORIC_EXACT_BYTES

// ---- Descriptors in bytes: integers q from -128 to 127, which are the bytes less 128

constexpr Int32 FAR = 1 << 28;          // above all sums of products
constexpr i64 BLOCK_BYTES = 24 * 1024;  // of rows, which stay in the L1 cache

std::int8_t to_signed(std::uint8_t byte) { return (std::int8_t)(byte ^ 0x80); }

Int32 square_of_row(const std::int8_t *q, i64 depth) {
  Int32 sum = 0;
  for (i64 k = 0; k < depth; ++k) sum += q[k] * q[k];
  return sum;
}

ByteColumns prepare_bytes(const std::uint8_t *b, i64 columns, i64 depth) {
  ByteColumns result;
  const i64 padded = bytes_per_row(depth), padded_columns = (columns + GROUP - 1) / GROUP * GROUP;
  result.depth = padded;
  result.columns = columns;
  result.values.assign(padded_columns * padded, ZERO);
  result.squares.assign(padded_columns, 0);
  result.starts.assign(padded_columns, -2 * FAR);
  std::vector<std::int8_t> q(padded);
  for (i64 c = 0; c < columns; ++c) {
    std::transform(b + c * depth, b + (c + 1) * depth, q.begin(), to_signed);
    result.squares[c] = square_of_row(q.data(), depth);
    result.starts[c] = -(result.squares[c] / 2);
    write_column(q, c, result.values.data());
  }
  return result;
}

// The sum of products of a pair starts at -|b|^2 / 2, rounded up. Twice the score of the pair is twice this sum less
// |a|^2, and less 1 if |b|^2 is odd. All are integers that floats represent exactly.
class ByteSearch : Selection {
 public:
  ByteSearch(const std::uint8_t *a, i64 rows, i64 depth, const ByteColumns &columns, const Exclusion &exclusion,
             const NearestResult &result)
      : Selection(rows, exclusion, result), columns_(columns) {
    const i64 padded_rows = (rows + ROWS - 1) / ROWS * ROWS, parts = parts_per_row(columns.depth);
    q_.assign(padded_rows * columns.depth, 0);
    start_.assign(padded_rows * parts, 0);
    squares_.assign(rows, 0);
    bound_.assign(padded_rows, FAR);
    half_.assign(padded_rows, 2 * FAR);
    for (i64 y = 0; y < rows; ++y) {
      std::int8_t *q = q_.data() + y * columns.depth;
      std::transform(a + y * depth, a + (y + 1) * depth, q, to_signed);
      write_starts(q, columns.depth, start_.data() + y * parts);
      squares_[y] = square_of_row(q, depth);
      bound_[y] = -FAR;
      half_[y] = squares_[y] / 2;
    }
    column_limits_.assign(result.best_of_column, result.best_of_column + columns.columns);
    column_bound_.assign(columns.starts.size(), FAR);
    for (i64 c = 0; c < columns.columns; ++c) column_bound_[c] = floored(column_limits_[c]);
  }

  void run() {
#if defined(__AMX_INT8__)
    const Tiles tiles;
#endif
    const i64 rows = (i64)states_.size(), block = std::max<i64>(1, BLOCK_BYTES / (ROWS * columns_.depth)) * ROWS;
    for (i64 top = 0; top < rows; top += block)
      for (i64 x = 0; x < columns_.columns; x += GROUP) {
        const i64 bottom = std::min(top + block, rows);
        // Products of matrices take long: the next ones are computed while a tile is screened.
        alignas(64) Sums sums[2];
        multiply(top, x, sums[0]);
        for (i64 y = top, number = 0; y < bottom; y += ROWS, ++number) {
          if (y + ROWS < bottom) multiply(y + ROWS, x, sums[(number + 1) % 2]);
          screen(y, x, sums[number % 2]);
        }
      }
    drop_irrelevant_candidates();
    write_result();
  }

 private:
  static Int32 floored(float limit) { return (Int32)std::floor(std::max(limit, (float)-FAR)); }

  using Sums = IntVec[ROWS][VECTORS];

  void multiply(i64 y, i64 x, Sums &sums) const {
    multiply_tile(q_.data() + y * columns_.depth, start_.data() + y * parts_per_row(columns_.depth),
                  columns_.values.data() + x * columns_.depth, columns_.starts.data() + x, columns_.depth, sums);
  }

  // Notes the pairs of ROWS rows and GROUP columns whose score exceeds a limit.
  void screen(i64 y, i64 x, const Sums &sums) {
    IntVec column_bound[VECTORS];
    for (int v = 0; v < VECTORS; ++v) column_bound[v] = load_integers(column_bound_.data() + x + v * LANES);
    Flags flags[ROWS], any = {};
    unroll<ROWS>([&](auto r) {
      IntVec limit[VECTORS];
      const IntVec bound = broadcast(bound_[y + r]), half = broadcast(half_[y + r]);
      for (int v = 0; v < VECTORS; ++v) limit[v] = min(bound, column_bound[v] + half);
      flags[r] = greater(sums[r], limit);
      any |= flags[r];
    });
    if (!to_bits(any)) return;
    for (int r = 0; r < ROWS; ++r)
      for (std::uint64_t bits = to_bits(flags[r]); bits; bits &= bits - 1) {
        const int column = __builtin_ctzll(bits) / BITS_PER_COLUMN;
        note(y + r, x + column, ((const Int32 *)sums[r])[column]);
      }
  }

  void note(i64 y, i64 c, Int32 sum) {
    const float score = 0.5f * (2 * sum - squares_[y] - (columns_.squares[c] & 1));
    // The limits are rounded, and earlier pairs of the tile may have raised them.
    if (score <= states_[y].second && score <= column_limits_[c]) return;
    candidates_.push_back({(std::int32_t)y, (std::int32_t)c, score});
    update(y, c, score);
    bound_[y] = floored(states_[y].second + 0.5f * squares_[y]);
    column_bound_[c] = floored(column_limits_[c]);
  }

  const ByteColumns &columns_;
  // Of the rows: q, the start of their sums, |q|^2, the limit of their sums, and |q|^2 / 2 rounded down. A pair
  // can improve its column only if its sum exceeds the bound of the column plus half_.
  Aligned<std::int8_t> q_;
  std::vector<Int32> start_, squares_, bound_, half_, column_bound_;
};

void find_nearest_bytes(const std::uint8_t *a, i64 rows, i64 depth, const ByteColumns &columns,
                        const Exclusion &exclusion, const NearestResult &result) {
  ByteSearch(a, rows, depth, columns, exclusion, result).run();
}
#endif
#endif

}  // namespace

#ifdef CALORIC_INT8
const Screening screening = {quantize_columns, find_nearest_screened,
#ifdef CALORIC_EXACT_BYTES
                             prepare_bytes, find_nearest_bytes};
#else
                             nullptr, nullptr};
#endif
#else
const Screening screening = {};
#endif

}  // namespace caloric::CALORIC_BUILD
