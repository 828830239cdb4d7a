// What each kind of processor has its own build of. Shapes are row-major; all images are float.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace caloric {

// An image (height, width) of the scale space, or a window on one; pixel (i, j) lies at
// (left + j, top + i) * step + origin.
struct Level {
  const float *pixels;
  int height, width;
  double step, origin;
  std::int64_t left, top;
};

// Columns of a table in groups of COLUMNS, rows in blocks of BLOCK, whose harmonics stay in the first
// cache; of each group in each block the rows that are not all zero.
constexpr int COLUMNS = 4, BLOCK = 128;
struct Factor {
  std::vector<std::int64_t> starts;   // (blocks * groups + 1): where each begins, block by block
  std::vector<std::int32_t> rows;     // (entries,)
  std::vector<float> values;          // (entries, COLUMNS)
  std::vector<std::int32_t> columns;  // (groups * COLUMNS): where each belongs; `width` for those that fill up
  std::int64_t height, width;         // of the table as it came
};

// Two columns of all factors that belong to places which mirror each other: the first holds half of what
// is alike in them, the second half of what is opposite. A sine turns round in the mirror.
struct Mirrored {
  std::int64_t first, second;
  bool turns;
};

// What multiplies the harmonics of a density; see caloric.descriptor.pooling.Table.
struct Table {
  std::vector<Factor> factors;
  std::vector<Mirrored> mirrored;
  std::vector<std::int64_t> partners;  // (points,): the one that mirrors each, or itself
  const float *synthesis;              // (bins, 2 * order + 1), or null
  std::int64_t bins;
  int order;
};

// Where a density is measured, in sigma of a frame, and what multiplies the power of the gradient
// there; runs of points share a level. Partners are in one run.
struct Points {
  const float *x, *y, *factors;
  const std::int64_t *partners;
  std::int64_t count;
  const std::int64_t *runs;  // (number of runs + 1): where each begins
  std::int64_t number_of_runs;
  float power;
};

// A set of frames: maps (n, 2, 3), and of each and each run the level it is read from.
struct Frames {
  const double *maps;
  const std::int64_t *levels;
  std::int64_t count;
};

struct Candidate {
  std::int32_t layer, row, column;
};

// The two nearest of a row of a: scores, and the column of the first.
struct Best {
  float *first, *second;
  std::int64_t *nearest;
};

// Rows of numbers as bytes q, of which a row is scale q with an error of length `error`: a product of two
// rows is known from their bytes to within error_a |b| + error_b |a|. Most products are far from the
// largest, and are told apart from it by bytes, at a quarter of the work. Rows are padded to a multiple of
// 16 numbers; `packed` has those of a one after the other, those of b in groups of 8, of each 4 bytes at a time.
struct Bytes {
  std::vector<std::int8_t> packed;
  std::vector<float> scale, error;
  float longest = 0;  // of all rows
  std::int64_t depth = 0;
};

// Refinement of matches: caloric.matching.refinement has the formulas and the constants.
constexpr int REFINED_SIDE = 21, REFINED_LAGS = 6;

struct RefineConstants {
  double spacing, settled, longest, damping, fall, rise, raised, relative, hopeless, nothing, least, finest;
};

// An image at 1, 1/2, 1/4, ... of its size: pixel i of a level is pixel i 2^level of it.
struct RefineLevel {
  const float *pixels;
  int height, width;
};

struct RefineFilters {
  const float *smooth, *slope;  // (SIDE, SIDE)
  int steps;
};

struct RefineJob {
  std::vector<RefineLevel> first, second;
  std::vector<RefineFilters> filters;            // of each blur
  const float *window;                           // (SIDE, SIDE): roots of the weights
  const double *noise, *variances, *correlations;  // of the images (2,), of levels (n,) and (n, 4)
  RefineConstants constants;
  const double *a, *b;               // (count, 2, 3)
  double *maps, *shifts, *figures;   // (count, 2, 3), (count, 2, 2), (count, 3)
  std::int64_t count;
};

void refine_portable(const RefineJob &job);
void refine_avx2(const RefineJob &job);
void refine_avx512(const RefineJob &job);
void refine_neon(const RefineJob &job);

struct Kernels {
  void (*octave)(const float *base, std::int64_t stride, bool enlarged, float *const *layers, std::int64_t height,
                 std::int64_t width, const float *const *taps, const int *radii, int count, std::int64_t top,
                 std::int64_t bottom);
  void (*candidates)(const float *const *levels, int count, std::int64_t height, std::int64_t width,
                     float limit, std::int64_t top, std::int64_t bottom, std::vector<Candidate> &found);
  void (*describe)(const std::vector<Level> &levels, std::int64_t height, std::int64_t width,
                   const Frames &frames, const Points &points, const Table &table, float *raw);
  void (*product)(const float *a, std::int64_t rows, std::int64_t depth, const float *b,
                  std::int64_t columns, float *result);
  void (*nearest)(const float *a, const float *half_a, std::int64_t rows, std::int64_t depth,
                  const float *packed_b, const float *half_b, std::int64_t columns, const double *xy,
                  double radius, const Best &best, float *best_of_b, const Bytes *bytes);
  Bytes (*bytes_of)(const float *a, std::int64_t rows, std::int64_t depth);
  void (*refine)(const RefineJob &job);
  int lanes;
};

extern const Kernels kernels_portable, kernels_avx2, kernels_avx512, kernels_neon;

}  // namespace caloric
