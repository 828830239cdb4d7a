// Types and functions of the five stages. The functions are compiled once per instruction set, each time in
// the namespace CALORIC_BUILD; a table of them is selected at run time. Arrays are row-major, images are float.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "fits.hpp"

namespace caloric {

using u64 = std::uint64_t;

// ---- Scale space

// The layers of an octave, each smoothed from the one before it and the first from the base.
struct SmoothingTask {
  const float *base;  // (height, width), or half of both if it is upsampled
  i64 base_stride;    // floats between the rows of the base
  bool upsample;
  i64 height, width;                // of the layers
  std::vector<float *> layers;      // (height, width) each
  std::vector<const float *> taps;  // (2 radius + 1,) each
  std::vector<int> radii;
};

// ---- Extrema

// The Gaussian images of an octave, at most MAX_IMAGES. D_i is the difference of images i + 1 and i.
constexpr int MAX_IMAGES = 16;
struct Octave {
  std::vector<const float *> images;  // (height, width) each
  i64 height, width;
};

struct Candidate {
  std::int32_t layer, row, column;
};

// Defined in caloric.detector.extrema.
struct ExtremumConstants {
  int max_fits;
  double min_determinant, move_threshold, max_offset, scales_per_octave, contrast, edge_ratio;
};

// A sub-pixel extremum: the position of the fit, the offset of the peak from it, and D at the peak.
struct Extremum {
  double layer, row, column, dx, dy, dlayer, value;
};

// ---- Descriptor

// An image of the scale space, or a window of one; pixel (i, j) is at (left + j, top + i) * step + origin.
struct Level {
  const float *pixels;
  int height, width;
  double step, origin;
  i64 left, top;
};

// A factor of a table. Columns are in groups of COLUMNS, rows in blocks of BLOCK, whose harmonics fit in the
// L1 cache. Of each group in each block only the rows that are not all zero are stored.
constexpr int COLUMNS = 4, BLOCK = 128;
struct Factor {
  std::vector<i64> starts;            // (blocks * groups + 1,): first entry of each group, block by block
  std::vector<std::int32_t> rows;     // (entries,)
  std::vector<float> values;          // (entries, COLUMNS)
  std::vector<std::int32_t> columns;  // (groups * COLUMNS,): original column indices; `width` is padding
  i64 height, width;                  // of the original matrix
};

// Packs a matrix (height, width), with its columns in the given order (width,).
Factor pack_factor(const float *matrix, i64 height, i64 width, const i64 *column_order);

// Two columns, numbered over all factors, of positions that are mirror images. The first holds half of their even
// part, the second half of their odd part. Reflection changes the sign of a sine.
struct MirroredColumns {
  i64 first, second;
  bool is_sine;
};

// The matrix that multiplies the harmonics of a density; see caloric.descriptor.tables.Table.
struct Table {
  std::vector<Factor> factors;
  std::vector<MirroredColumns> mirrored;
  std::vector<i64> partners;     // (points,): index of the mirror image of each point, or of the point itself
  std::vector<float> synthesis;  // (bins, 2 order + 1), or empty
  i64 bins;                      // 1 without synthesis
  int order;

  i64 points() const;
  i64 entries() const { return factors[0].width * bins; }
};

// The sampling points of a density in units of a frame's sigma, and the factor of each. A run is a range of
// points that are read from the same level; mirrored points are in the same run.
struct Points {
  const float *x, *y;  // (count + lanes,): whole vectors are read
  const float *factors;
  const i64 *partners;
  i64 count;
  const i64 *runs;  // (run_count + 1,): first point of each
  i64 run_count;
  float power;  // of the gradient magnitude
};

struct Frames {
  const double *maps;  // (count, 2, 3)
  const i64 *levels;   // (count, run_count): index of the level of each run
  i64 count;
};

// ---- Neighbors

// Descriptors a (rows, depth), and b (columns, depth), also in panels (depth, 2 lanes) with padding after the last
// column. Panels are not needed if b is quantized.
struct Descriptors {
  const float *a, *half_a;  // half_a (rows,): half the squared norms
  i64 rows, depth;
  const float *b, *panels, *half_b;  // half_b (padded columns,): infinite in the padding
  i64 columns;
};

// Allocates memory aligned to cache lines of 64 bytes.
template <class T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t LINE{64};
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U> &) {}
  T *allocate(std::size_t count) { return (T *)::operator new(count * sizeof(T), LINE); }
  void deallocate(T *p, std::size_t) { ::operator delete(p, LINE); }
  template <class U>
  bool operator==(const CacheLineAllocator<U> &) const {
    return true;
  }
  template <class U>
  bool operator!=(const CacheLineAllocator<U> &) const {
    return false;
  }
};
template <class T>
using Aligned = std::vector<T, CacheLineAllocator<T>>;

// Descriptors b quantized to int8 for one instruction set: see screening.cpp.
struct QuantizedColumns {
  Aligned<std::uint8_t> values;     // padded to whole groups of columns
  std::vector<float> scale, error;  // of each column
  float max_norm = 0;
  i64 depth = 0;  // padded
};

// Descriptors in bytes, prepared for one instruction set that multiplies bytes exactly: see screening.cpp.
struct ByteColumns {
  Aligned<std::uint8_t> values;           // padded to whole groups of columns
  Aligned<std::int32_t> squares, starts;  // of each column: squared norm, start of sums
  i64 columns = 0, depth = 0;             // the depth is padded
};
constexpr i64 MAX_BYTES_DEPTH = 256;  // floats represent squared distances exactly

constexpr i64 padded_depth(i64 depth) { return (depth + 15) / 16 * 16; }
constexpr i64 MAX_QUANTIZED_DEPTH = 8192;  // sums of products must not overflow

// Columns whose positions are within `radius` of the nearest cannot be the second nearest.
struct Exclusion {
  const double *xy;  // (columns, 2), or null
  double radius;

  double distance(i64 a, i64 b) const {
    return std::max(std::abs(xy[2 * a] - xy[2 * b]), std::abs(xy[2 * a + 1] - xy[2 * b + 1]));
  }
};

struct NearestResult {
  i64 *nearest;           // (rows,): column
  float *best, *second;   // (rows,): scores
  float *best_of_column;  // (padded columns,): updated
};

// ---- Refinement of matches; caloric.matching.refinement_steps has the formulas and the constants

constexpr int PATCH_SIDE = 21, NOISE_LAGS = 6;  // SIDE and LAGS there

struct RefinementConstants {
  double spacing, tolerance, max_step, damping, damping_decrease, damping_increase, min_increased_damping,
      relative_damping, max_start_cost, max_cost, power_epsilon, diagonal_epsilon, min_noise_spacing, residual_samples,
      correlated_cost;
};

// An image of a pyramid: pixel i of level n is pixel i 2^n of the original image.
struct PyramidLevel {
  const float *pixels;
  int height, width;
};

// The filters and the number of steps at one blur.
struct RefinementFilters {
  const float *smooth, *derivative;  // (PATCH_SIDE, PATCH_SIDE)
  int steps;
};

struct RefinementTask {
  std::vector<PyramidLevel> first, second;
  std::vector<RefinementFilters> filters;
  const float *window;         // (PATCH_SIDE, PATCH_SIDE): square roots of the weights
  const double *noise;         // (2,): noise level of each image
  const double *variances;     // (levels,)
  const double *correlations;  // (levels, 4)
  RefinementConstants constants;
  const double *a, *b;  // (count, 2, 3)
  double *maps;         // (count, 2, 3): refined b
  double *covariances;  // (count, 2, 2): of the shift by image noise, in sigma of the frame
  double *totals;       // (count, 2, 2): the same for all errors
  double *statistics;   // (count, 3): cost before and after, mean square gradient of the template
  i64 count;
};

// ---- Matches and their neighbors (the same for all builds)

class PointGrid;  // points.hpp

struct AgreementConstants {
  double tolerance, relative_tolerance, max_rotation, max_scale, same, chance, area;
};

// Writes the scores (count,) of matches of frames (count, 2, 3): see caloric.matching.agreement. `rows` are the matches
// of which the grid has the points in the first image; `neighbors` are the numbers of neighbors, ascending.
void score_agreement(const PointGrid &grid, const i64 *rows, const double *first, const double *second, i64 count,
                     const std::vector<i64> &neighbors, const AgreementConstants &constants, int threads,
                     double *scores);

// Inliers (., 2) in both images, and the other image: see caloric.matching.propagation.
struct PredictionTask {
  const double *p, *q;
  i64 neighbors;
  double reach, min_spread, max_misfit, max_stretch, margin, height, width;
};

// Writes the maps (count, 2, 3) of frames (count, 2, 3) in the other image, and which are good (count,). The grid has
// the points p of the task.
void predict_frames(const PointGrid &grid, const PredictionTask &task, const double *frames, i64 count, int threads,
                    double *maps, bool *good);

// Refined matches: frames before and after (count, 2, 3), covariances (count, 2, 2) of their positions and statistics
// (count, 3), as in caloric.matching.refinement.Outcome.
struct RefinedMatches {
  const double *before, *after, *shifts, *total_shifts, *statistics;
};

struct AcceptanceConstants {
  double max_shift, max_stretch, max_cost, flat, decrease;
};

// Writes the frames (count, 2, 3), which of them moved (count,), and the covariances (count, 2, 2) of their positions
// by image noise and by all errors.
void accept_refined(const RefinedMatches &matches, i64 count, const AcceptanceConstants &constants, int threads,
                    double *maps, bool *moved, double *covariances, double *totals);

struct ViewCellConstants {
  double xy_width, log_width, angle_width;
  i64 angles;
};

// Writes the cells (count, 6) of frames (count, 2, 3) of simulated views.
void find_view_cells(const double *maps, i64 count, const ViewCellConstants &constants, int threads, i64 *cells);

// Writes the index of the first of each distinct row of cells (count, columns), in this order; returns their number.
i64 find_first_of_cells(const i64 *cells, i64 count, i64 columns, i64 *first);

// ---- Builds

using SmoothOctave = void(const SmoothingTask &task, i64 top, i64 bottom);
using FindCandidates = std::vector<Candidate>(const Octave &octave, float threshold, i64 top, i64 bottom);
using RefineExtrema = std::vector<Extremum>(const Octave &octave, const i64 *candidates, i64 count,
                                            const ExtremumConstants &constants);
using Describe = void(const std::vector<Level> &levels, i64 height, i64 width, const Frames &frames,
                      const Points &points, const Table &table, float *raw);
using PackPanels = std::vector<float>(const float *b, i64 columns, i64 depth);
using Multiply = void(const float *a, i64 rows, i64 depth, const float *panels, i64 columns, float *result);
using FindNearest = void(const Descriptors &descriptors, const Exclusion &exclusion, const NearestResult &result);
using RefineMatches = void(const RefinementTask &task);
using QuantizeColumns = QuantizedColumns(const float *b, i64 columns, i64 depth);
using FindNearestScreened = bool(const Descriptors &descriptors, const QuantizedColumns &columns,
                                 const Exclusion &exclusion, const NearestResult &result);
using PrepareBytes = ByteColumns(const std::uint8_t *b, i64 columns, i64 depth);
using FindNearestBytes = void(const std::uint8_t *a, i64 rows, i64 depth, const ByteColumns &columns,
                              const Exclusion &exclusion, const NearestResult &result);

struct Kernels {
  SmoothOctave *smooth_octave;
  FindCandidates *find_candidates;
  RefineExtrema *refine_extrema;
  Describe *describe;
  PackPanels *pack_panels;
  Multiply *multiply;
  FindNearest *find_nearest;
  RefineMatches *refine_matches;
  WriteSquares *write_squares;
  FindNoise *find_noise;
  SumFit *sum_fit;
  WriteErrors *write_errors;
  i64 lanes;
};

// The search with int8 products. Null for instruction sets without fast ones. `find_nearest` returns false if the
// numbers are too small to bound rounding errors. The functions for bytes are also null for instruction sets that sum
// products in int16.
struct Screening {
  QuantizeColumns *quantize_columns;
  FindNearestScreened *find_nearest;
  PrepareBytes *prepare_bytes;
  FindNearestBytes *find_nearest_bytes;
};

#ifdef CALORIC_BUILD
namespace CALORIC_BUILD {
SmoothOctave smooth_octave;
FindCandidates find_candidates;
RefineExtrema refine_extrema;
Describe describe;
PackPanels pack_panels;
Multiply multiply;
FindNearest find_nearest;
RefineMatches refine_matches;
WriteSquares write_squares;
FindNoise find_noise;
SumFit sum_fit;
WriteErrors write_errors;
}  // namespace CALORIC_BUILD
#endif

#define CALORIC_DECLARE_BUILD(name) \
  namespace name {                  \
  extern const Kernels kernels;     \
  extern const Screening screening; \
  }
CALORIC_DECLARE_BUILD(portable)
CALORIC_DECLARE_BUILD(avx2)
CALORIC_DECLARE_BUILD(avx_vnni)  // only screening, as avx512_vnni and neon_dotprod
CALORIC_DECLARE_BUILD(avx512)
CALORIC_DECLARE_BUILD(avx512_vnni)
CALORIC_DECLARE_BUILD(amx)
CALORIC_DECLARE_BUILD(neon)
CALORIC_DECLARE_BUILD(neon_dotprod)
#undef CALORIC_DECLARE_BUILD

}  // namespace caloric
