// Python bindings: check shapes, release the GIL, and call the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include "dispatch.hpp"
#include "estimation.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "points.hpp"

namespace nb = nanobind;
using namespace caloric;

namespace {

template <typename T, typename... Shape>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu, Shape...>;
template <typename T, typename... Shape>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu, Shape...>;
using Matrix = In<float, nb::ndim<2>>;
using Vector = In<float, nb::ndim<1>>;
using Indices = In<i64, nb::ndim<1>>;
using Maps = In<double, nb::shape<-1, 2, 3>>;
using Window = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;  // rows may be strided
using Images = In<float, nb::ndim<3>>;
using Panels = In<float, nb::ndim<3>>;
using Square = In<float, nb::shape<PATCH_SIDE, PATCH_SIDE>>;

constexpr i64 MAX_PIXELS = std::numeric_limits<std::int32_t>::max();

void require(bool condition, const char *message) {
  if (!condition) throw std::invalid_argument(message);
}

// Reads the fields of a struct from a dict. A missing or unknown name is an error.
class NamedConstants {
 public:
  explicit NamedConstants(const nb::dict &values) : values_(values) {}

  template <typename T>
  NamedConstants &read(const char *name, T &field) {
    if (!values_.contains(name)) fail(name, "is missing");
    if (!nb::try_cast(values_[name], field)) fail(name, "must be a number");
    names_.insert(name);
    return *this;
  }

  void require_no_others() const {
    for (nb::handle key : values_.keys()) {
      const std::string name = nb::cast<std::string>(nb::str(key));
      if (!names_.count(name)) fail(name, "is unknown");
    }
  }

 private:
  [[noreturn]] static void fail(const std::string &name, const char *problem) {
    throw std::invalid_argument("constants: '" + name + "' " + problem);
  }
  const nb::dict &values_;
  std::set<std::string> names_;
};

// Returns values as a NumPy array that owns them, without a copy.
template <typename T, typename... Sizes>
nb::ndarray<nb::numpy, T> to_array(std::vector<T> &&values, Sizes... sizes) {
  auto *owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void *p) noexcept { delete (std::vector<T> *)p; });
  return nb::ndarray<nb::numpy, T>(owned->data(), {(std::size_t)sizes...}, owner);
}

// ---- Scale space

void octave(Window base, bool upsample, Out<float, nb::ndim<3>> layers, const std::vector<Vector> &taps, i64 top,
            i64 bottom) {
  const i64 factor = upsample ? 2 : 1;
  SmoothingTask task{};
  task.base = base.data();
  task.base_stride = base.stride(0);
  task.upsample = upsample;
  task.height = factor * (i64)base.shape(0);
  task.width = factor * (i64)base.shape(1);
  require((i64)layers.shape(1) == task.height && (i64)layers.shape(2) == task.width,
          "layers: shape does not match the base");
  require(layers.shape(0) == taps.size() && !taps.empty(), "taps: expected one array per layer");
  require(0 <= top && top <= bottom && bottom <= task.height && task.width > 0,
          "top, bottom: row range is outside of the image");
  require(base.stride(1) == 1 || base.shape(1) == 1, "base: the pixels of a row must be contiguous");
  for (std::size_t i = 0; i < taps.size(); ++i) {
    require(taps[i].shape(0) % 2 == 1, "taps: length must be odd");
    task.layers.push_back(layers.data() + (i64)i * task.height * task.width);
    task.taps.push_back(taps[i].data());
    task.radii.push_back((int)taps[i].shape(0) / 2);
  }
  nb::gil_scoped_release released;
  kernels().smooth_octave(task, top, bottom);
}

// ---- Extrema

Octave to_octave(const Images &images) {
  require(images.shape(0) >= 4 && images.shape(0) <= MAX_IMAGES, "octave: expected 4 to 16 images");
  Octave octave{{}, (i64)images.shape(1), (i64)images.shape(2)};
  for (std::size_t i = 0; i < images.shape(0); ++i)
    octave.images.push_back(images.data() + (i64)i * octave.height * octave.width);
  return octave;
}

// Returns candidates (n, 3): layer, row, column.
auto candidates(Images images, float threshold, i64 top, i64 bottom) {
  const Octave octave = to_octave(images);
  std::vector<i64> flat;
  {
    nb::gil_scoped_release released;
    for (const Candidate &c : kernels().find_candidates(octave, threshold, top, bottom))
      flat.insert(flat.end(), {c.layer, c.row, c.column});
  }
  const std::size_t count = flat.size() / 3;
  return to_array(std::move(flat), count, 3);
}

// Returns sub-pixel extrema (n, 7): layer, row, column; the offset as x, y, layer; the value.
auto refine_extrema(Images images, In<i64, nb::shape<-1, 3>> candidates, const nb::dict &constants) {
  const Octave octave = to_octave(images);
  ExtremumConstants c{};
  NamedConstants(constants)
      .read("max_fits", c.max_fits)
      .read("min_determinant", c.min_determinant)
      .read("move_threshold", c.move_threshold)
      .read("max_offset", c.max_offset)
      .read("scales_per_octave", c.scales_per_octave)
      .read("contrast", c.contrast)
      .read("edge_ratio", c.edge_ratio)
      .require_no_others();
  const i64 *indices = candidates.data(), count = (i64)candidates.shape(0);
  std::vector<double> flat;
  {
    nb::gil_scoped_release released;
    for (const Extremum &e : kernels().refine_extrema(octave, indices, count, c))
      flat.insert(flat.end(), {e.layer, e.row, e.column, e.dx, e.dy, e.dlayer, e.value});
  }
  const std::size_t rows = flat.size() / 7;
  return to_array(std::move(flat), rows, 7);
}

// ---- Descriptor

void check_permutation(const Indices &columns, i64 width) {
  std::vector<bool> used(width);
  bool is_permutation = (i64)columns.shape(0) == width;
  for (i64 i = 0; is_permutation && i < width; ++i) {
    const i64 column = columns.data()[i];
    is_permutation = column >= 0 && column < width && !used[column];
    if (is_permutation) used[column] = true;
  }
  require(is_permutation, "columns: expected a permutation of the columns of the factor");
}

void make_table(Table *table, const std::vector<Matrix> &factors, const std::vector<Indices> &columns, Indices partners,
                In<i64, nb::shape<-1, 3>> mirrored, const nb::object &synthesis, int order) {
  require(!factors.empty() && order >= 0, "factors, order: expected at least one factor and an order of at least 0");
  require(columns.size() == factors.size(), "columns: expected one array per factor");
  Table result{};
  result.order = order;
  result.bins = 1;
  i64 rows = 0, width = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    check_permutation(columns[i], (i64)factors[i].shape(1));
    result.factors.push_back(
        pack_factor(factors[i].data(), (i64)factors[i].shape(0), (i64)factors[i].shape(1), columns[i].data()));
    rows += (i64)factors[i].shape(0);
    width += (i64)factors[i].shape(1);
  }
  require(rows % (2 * order + 1) == 0, "factors: number of rows is not a multiple of the number of harmonics");
  if (synthesis.is_none()) {
    require(factors.size() == 1, "factors: expected exactly one without synthesis");
  } else {
    const auto matrix = nb::cast<Matrix>(synthesis);
    require((i64)matrix.shape(1) == 2 * order + 1 && matrix.shape(0) > 0, "synthesis: expected (bins, 2 order + 1)");
    require(width == (2 * order + 1) * result.factors[0].width,
            "factors: number of columns does not match the number of harmonics");
    result.synthesis.assign(matrix.data(), matrix.data() + matrix.size());
    result.bins = (i64)matrix.shape(0);
  }
  const i64 points = result.points();
  require((i64)partners.shape(0) == points, "partners: expected one per point");
  result.partners.assign(partners.data(), partners.data() + partners.size());
  for (i64 p = 0; p < points; ++p) {
    const i64 q = result.partners[p];
    require(q >= 0 && q < points && result.partners[q] == p, "partners: must be mutual");
  }
  for (std::size_t i = 0; i < mirrored.shape(0); ++i) {
    const i64 *pair = mirrored.data() + 3 * i;
    require(std::min(pair[0], pair[1]) >= 0 && std::max(pair[0], pair[1]) < width,
            "mirrored: column index out of range");
    result.mirrored.push_back({pair[0], pair[1], pair[2] != 0});
  }
  new (table) Table(std::move(result));
}

void describe(const nb::list &levels, std::pair<i64, i64> size, Maps maps, In<i64, nb::ndim<2>> level_indices,
              In<float, nb::shape<2, -1>> offsets, Vector factors, Indices runs, float power, const Table &table,
              Out<float, nb::ndim<2>> raw) {
  std::vector<Level> images;
  std::vector<Matrix> arrays;
  for (nb::handle item : levels) {
    const auto level = nb::cast<nb::tuple>(item);
    arrays.push_back(nb::cast<Matrix>(level[0]));
    const Matrix &pixels = arrays.back();
    require(pixels.size() > 0 && (i64)pixels.size() < MAX_PIXELS, "levels: expected 1 to 2^31 - 2 pixels");
    images.push_back({pixels.data(), (int)pixels.shape(0), (int)pixels.shape(1), nb::cast<double>(level[1]),
                      nb::cast<double>(level[2]), nb::cast<i64>(level[3]), nb::cast<i64>(level[4])});
  }
  const i64 count = (i64)maps.shape(0), points = (i64)offsets.shape(1), run_count = (i64)runs.shape(0) - 1;
  require(table.points() == points, "offsets: number of points does not match the table");
  require((i64)factors.shape(0) == points, "factors: expected one per point");
  require((i64)level_indices.shape(0) == count && (i64)level_indices.shape(1) == run_count,
          "level_indices: expected (frames, runs)");
  require((i64)raw.shape(0) == count && (i64)raw.shape(1) == table.entries(), "raw: expected (frames, entries)");
  require(run_count >= 1 && runs.data()[0] == 0 && runs.data()[run_count] == points,
          "runs: must start at 0 and end at the number of points");
  for (i64 i = 0; i < run_count; ++i) require(runs.data()[i] <= runs.data()[i + 1], "runs: must be ascending");
  for (std::size_t i = 0; i < level_indices.size(); ++i)
    require(level_indices.data()[i] >= 0 && level_indices.data()[i] < (i64)images.size(),
            "level_indices: level index out of range");
  const i64 *partners = table.partners.data();
  for (i64 run = 0; run < run_count; ++run)
    for (i64 p = runs.data()[run]; p < runs.data()[run + 1]; ++p)
      require(partners[p] >= runs.data()[run] && partners[p] < runs.data()[run + 1],
              "runs: mirrored points must be in the same run");
  std::vector<float> x(offsets.data(), offsets.data() + points);
  std::vector<float> y(offsets.data() + points, offsets.data() + 2 * points);
  x.resize(points + kernels().lanes);
  y.resize(points + kernels().lanes);
  const Points sampling{x.data(), y.data(), factors.data(), partners, points, runs.data(), run_count, power};
  const Frames frames{maps.data(), level_indices.data(), count};
  float *out = raw.data();
  nb::gil_scoped_release released;
  kernels().describe(images, size.first, size.second, frames, sampling, table, out);
}

// ---- Neighbors

i64 panel_width() { return 2 * kernels().lanes; }

// Returns b (columns, depth) as panels (panels, depth, panel width).
auto pack(Matrix b) {
  const i64 columns = (i64)b.shape(0), depth = (i64)b.shape(1), width = panel_width();
  return to_array(kernels().pack_panels(b.data(), columns, depth), (columns + width - 1) / width, depth, width);
}

void check_panels(const Panels &b, i64 depth, i64 columns) {
  const i64 width = panel_width();
  require((i64)b.shape(2) == width, "b: packed for another build");
  require((i64)b.shape(1) == depth, "b: depth does not match a");
  require((i64)b.shape(0) == (columns + width - 1) / width, "b: number of columns does not match the result");
}

void product(Matrix a, Panels b, Out<float, nb::ndim<2>> result) {
  const i64 rows = (i64)a.shape(0), depth = (i64)a.shape(1), columns = (i64)result.shape(1);
  check_panels(b, depth, columns);
  require((i64)result.shape(0) == rows, "result: number of rows does not match a");
  const float *left = a.data(), *right = b.data();
  float *out = result.data();
  nb::gil_scoped_release released;
  kernels().multiply(left, rows, depth, right, columns, out);
}

// Descriptors in which neighbors are searched: b (columns, depth), prepared for one build.
struct Columns {
  Matrix b;
  std::vector<float> half;  // half the squared norms, infinite in the padding
  std::vector<float> panels;
  QuantizedColumns quantized;
  const Kernels *kernels = &caloric::kernels();
  const Screening *screening = nullptr;  // null if the int8 bound is not used
};

void make_columns(Columns *result, Matrix b, Vector half, bool screened) {
  const i64 columns = (i64)b.shape(0), depth = (i64)b.shape(1), width = panel_width();
  require(columns > 0 && (i64)half.shape(0) == columns, "half: expected one per row of b, and at least one");
  Columns made;
  made.b = b;
  made.half.assign(half.data(), half.data() + columns);
  // Padding columns are infinitely far from every row.
  made.half.resize((columns + width - 1) / width * width, std::numeric_limits<float>::infinity());
  {
    nb::gil_scoped_release released;
    if (screened && screening().find_nearest && depth <= MAX_QUANTIZED_DEPTH) {
      made.screening = &screening();
      made.quantized = made.screening->quantize_columns(b.data(), columns, depth);
    } else {
      made.panels = kernels().pack_panels(b.data(), columns, depth);
    }
  }
  new (result) Columns(std::move(made));
}

// Checks the outputs of a search, and returns the positions of the columns, of which some are excluded.
In<double, nb::shape<-1, 2>> checked_search(i64 rows, i64 count, const nb::object &xy,
                                            const Out<i64, nb::ndim<1>> &column, const Out<float, nb::ndim<1>> &best,
                                            const Out<float, nb::ndim<1>> &second,
                                            const Out<float, nb::ndim<1>> &best_of_column) {
  for (const std::size_t size : {column.shape(0), best.shape(0), second.shape(0)})
    require((i64)size == rows, "column, best, second: expected one per row of a");
  require((i64)best_of_column.shape(0) == count, "best_of_column: expected one per column");
  In<double, nb::shape<-1, 2>> positions;
  if (!xy.is_none()) {
    positions = nb::cast<In<double, nb::shape<-1, 2>>>(xy);
    require((i64)positions.shape(0) == count, "xy: expected one per column");
  }
  return positions;
}

// Updates `best_of_column`, the best score of each column so far.
void nearest(Matrix a, Vector half_a, const Columns &columns, const nb::object &xy, double radius,
             Out<i64, nb::ndim<1>> column, Out<float, nb::ndim<1>> best, Out<float, nb::ndim<1>> second,
             Out<float, nb::ndim<1>> best_of_column) {
  const i64 rows = (i64)a.shape(0), depth = (i64)a.shape(1), count = (i64)columns.b.shape(0);
  require(columns.kernels == &kernels() && (!columns.screening || columns.screening == &screening()),
          "columns: prepared for another build");
  require((i64)columns.b.shape(1) == depth, "columns: depth does not match a");
  require((i64)half_a.shape(0) == rows, "half_a: expected one per row of a");
  const auto positions = checked_search(rows, count, xy, column, best, second, best_of_column);
  const Exclusion exclusion{xy.is_none() ? nullptr : positions.data(), radius};
  Descriptors descriptors{
      a.data(), half_a.data(), rows, depth, columns.b.data(), columns.panels.data(), columns.half.data(), count};
  NearestResult result{column.data(), best.data(), second.data(), best_of_column.data()};
  nb::gil_scoped_release released;
  const Screening *screening = columns.screening;
  if (screening && screening->find_nearest(descriptors, columns.quantized, exclusion, result)) return;
  std::vector<float> panels;
  if (screening) {
    panels = kernels().pack_panels(columns.b.data(), count, depth);
    descriptors.panels = panels.data();
  }
  std::vector<float> padded_best(result.best_of_column, result.best_of_column + count);
  padded_best.resize(columns.half.size(), -std::numeric_limits<float>::infinity());
  float *const best_of_b = result.best_of_column;
  result.best_of_column = padded_best.data();
  kernels().find_nearest(descriptors, exclusion, result);
  std::copy(padded_best.begin(), padded_best.begin() + count, best_of_b);
}

// Descriptors in bytes in which neighbors are searched, prepared for one build.
struct Bytes {
  ByteColumns columns;
  i64 depth;
  const Screening *screening = &caloric::screening();
};

using ByteMatrix = In<std::uint8_t, nb::ndim<2>>;

bool searches_bytes(i64 depth) { return screening().prepare_bytes && depth > 0 && depth <= MAX_BYTES_DEPTH; }

void make_bytes(Bytes *result, ByteMatrix b) {
  const i64 columns = (i64)b.shape(0), depth = (i64)b.shape(1);
  require(columns > 0 && searches_bytes(depth), "b: not searched in bytes");
  nb::gil_scoped_release released;
  new (result) Bytes{screening().prepare_bytes(b.data(), columns, depth), depth};
}

// Does the same as `nearest` for descriptors in bytes.
void nearest_bytes(ByteMatrix a, const Bytes &columns, const nb::object &xy, double radius,
                   Out<i64, nb::ndim<1>> column, Out<float, nb::ndim<1>> best, Out<float, nb::ndim<1>> second,
                   Out<float, nb::ndim<1>> best_of_column) {
  const i64 rows = (i64)a.shape(0), depth = (i64)a.shape(1);
  require(columns.screening == &screening(), "columns: prepared for another build");
  require(columns.depth == depth, "columns: depth does not match a");
  const auto positions = checked_search(rows, columns.columns.columns, xy, column, best, second, best_of_column);
  const Exclusion exclusion{xy.is_none() ? nullptr : positions.data(), radius};
  const NearestResult result{column.data(), best.data(), second.data(), best_of_column.data()};
  nb::gil_scoped_release released;
  columns.screening->find_nearest_bytes(a.data(), rows, depth, columns.columns, exclusion, result);
}

// ---- Refinement of matches

std::vector<PyramidLevel> to_pyramid(const std::vector<Matrix> &images) {
  std::vector<PyramidLevel> levels;
  for (const Matrix &image : images) {
    require(image.size() > 0 && (i64)image.size() < MAX_PIXELS, "images: expected 1 to 2^31 - 2 pixels");
    levels.push_back({image.data(), (int)image.shape(0), (int)image.shape(1)});
  }
  require(!levels.empty() && levels.size() < 31, "images: expected 1 to 30 levels");
  return levels;
}

void refine_matches(const std::vector<Matrix> &first, const std::vector<Matrix> &second, Maps a, Maps b, Square window,
                    const std::vector<std::pair<Square, Square>> &filters, const std::vector<int> &steps,
                    const nb::dict &constants, In<double, nb::shape<2>> noise, In<double, nb::ndim<1>> variances,
                    In<double, nb::shape<-1, 4>> correlations, Out<double, nb::shape<-1, 2, 3>> maps,
                    Out<double, nb::shape<-1, 2, 2>> covariances, Out<double, nb::shape<-1, 2, 2>> totals,
                    Out<double, nb::shape<-1, 3>> statistics) {
  RefinementTask task{};
  task.first = to_pyramid(first);
  task.second = to_pyramid(second);
  require(!filters.empty() && steps.size() == filters.size(), "filters, steps: expected one per blur");
  for (std::size_t i = 0; i < filters.size(); ++i)
    task.filters.push_back({filters[i].first.data(), filters[i].second.data(), steps[i]});
  RefinementConstants &c = task.constants;
  NamedConstants(constants)
      .read("spacing", c.spacing)
      .read("tolerance", c.tolerance)
      .read("max_step", c.max_step)
      .read("damping", c.damping)
      .read("damping_decrease", c.damping_decrease)
      .read("damping_increase", c.damping_increase)
      .read("min_increased_damping", c.min_increased_damping)
      .read("relative_damping", c.relative_damping)
      .read("max_start_cost", c.max_start_cost)
      .read("max_cost", c.max_cost)
      .read("power_epsilon", c.power_epsilon)
      .read("diagonal_epsilon", c.diagonal_epsilon)
      .read("min_noise_spacing", c.min_noise_spacing)
      .read("residual_samples", c.residual_samples)
      .read("correlated_cost", c.correlated_cost)
      .require_no_others();
  const std::size_t levels = std::max(first.size(), second.size()), count = a.shape(0);
  require(variances.shape(0) >= levels && correlations.shape(0) >= levels,
          "variances, correlations: expected one per level");
  require(b.shape(0) == count && maps.shape(0) == count && covariances.shape(0) == count && totals.shape(0) == count &&
              statistics.shape(0) == count,
          "b, maps, covariances, totals, statistics: expected one per match");
  task.window = window.data();
  task.noise = noise.data();
  task.variances = variances.data();
  task.correlations = correlations.data();
  task.a = a.data();
  task.b = b.data();
  task.maps = maps.data();
  task.covariances = covariances.data();
  task.totals = totals.data();
  task.statistics = statistics.data();
  task.count = (i64)count;
  nb::gil_scoped_release released;
  kernels().refine_matches(task);
}

// ---- Two-view geometry

using Points2 = In<double, nb::shape<-1, 2>>;
using Matrix3 = In<double, nb::shape<3, 3>>;

// Returns Sampson's distances (n,) of matches x and y, or infinity.
auto sampson_distances(Points2 x, Points2 y, Matrix3 matrix, bool planar) {
  require(x.shape(0) == y.shape(0), "y: expected as many points as in x");
  const i64 count = (i64)x.shape(0);
  const i64 stride = (count + DOUBLES - 1) / DOUBLES * DOUBLES;
  std::vector<double> values(4 * stride);
  for (i64 i = 0; i < 2 * count; ++i) {
    values[i % 2 * stride + i / 2] = x.data()[i];
    values[(2 + i % 2) * stride + i / 2] = y.data()[i];
  }
  FitTask task{planar, {}, values.data(), nullptr, count, stride, 1};
  std::copy(matrix.data(), matrix.data() + ENTRIES, task.matrix.begin());
  std::vector<double> errors(2 * count), distances(count);
  {
    nb::gil_scoped_release released;
    kernels().write_errors(task, errors.data());
    for (i64 i = 0; i < count; ++i) {
      distances[i] = std::hypot(errors[2 * i], errors[2 * i + 1]);
      if (!std::isfinite(distances[i])) distances[i] = std::numeric_limits<double>::infinity();
    }
  }
  return to_array(std::move(distances), count);
}

// Coordinates of points or frames.
template <typename Array>
void require_finite(const Array &values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    require(std::abs(values.data()[i]) < 1e150, "expected finite coordinates below 1e150");
}

NoiseConstants to_noise(const nb::dict &constants) {
  NoiseConstants noise{};
  NamedConstants(constants)
      .read("min_sigma", noise.min_sigma)
      .read("max_sigma", noise.max_sigma)
      .read("peak", noise.peak)
      .read("dimensions", noise.dimensions)
      .read("parameters", noise.parameters)
      .read("width", noise.width)
      .read("tail", noise.tail)
      .read("min_share", noise.min_share)
      .read("max_share", noise.max_share)
      .require_no_others();
  require(noise.min_sigma > 1e-9 && noise.max_sigma >= noise.min_sigma && noise.max_sigma < 1e9 &&
              noise.peak > 0,
          "noise: expected positive deviations in ascending order");
  return noise;
}

using Logarithms = In<float, nb::ndim<2>>;
using NoiseTuple = std::tuple<nb::dict, int, In<double, nb::shape<-1, 2>>, Logarithms>;

// Constants, the first bin, values of the noise (count, 2), and logarithms (bins, count).
NoiseModel to_noise_model(const NoiseTuple &values) {
  const auto &[constants, first_bin, noises, logarithms] = values;
  const std::size_t bins = logarithms.shape(0), count = logarithms.shape(1);
  require(noises.shape(0) == count && count % FLOATS == 0, "noise: expected as many values as columns");
  require(bins > 1 && bins <= 512, "noise: expected 2 to 512 bins");
  return {to_noise(constants), {logarithms.data(), (const Noise *)noises.data(), first_bin, (int)bins, (int)count}};
}

SearchConstants to_search(const nb::dict &constants) {
  SearchConstants search{};
  NamedConstants(constants)
      .read("confidence", search.confidence)
      .read("quality", search.quality)
      .read("subset_share", search.subset_share)
      .read("improved_share", search.improved_share)
      .read("close", search.close)
      .read("kept", search.kept)
      .read("ridge", search.ridge)
      .read("tolerance", search.tolerance)
      .read("max_step", search.max_step)
      .read("correlation", search.correlation)
      .read("samples", search.samples)
      .read("min_samples", search.min_samples)
      .read("pools", search.pools)
      .read("subset", search.subset)
      .read("fitted", search.fitted)
      .read("rounds", search.rounds)
      .read("chosen", search.chosen)
      .read("level_steps", search.level_steps)
      .read("cells", search.cells)
      .read("steps", search.steps)
      .read("seed", search.seed)
      .require_no_others();
  require(search.pools > 0 && search.pools < 60 && search.cells > 0 && search.cells < 1000,
          "search: expected 1 to 59 pools, and 1 to 999 cells");
  return search;
}

// Writes the matrix of the most likely model and its covariance (9, 9); returns sigma, share and likelihood.
std::tuple<double, double, double> estimate(
    Points2 x, Points2 y, In<double, nb::ndim<1>> variances, std::optional<Maps> first,
    std::optional<Maps> second, double scale, double reach, int model,
    std::optional<In<double, nb::shape<4, 3, 3>>> cameras, const NoiseTuple &noise, const NoiseTuple &plane,
    const nb::dict &search, std::pair<int, int> sizes, std::optional<Matrix3> start, Out<double, nb::shape<3, 3>> matrix,
    Out<double, nb::shape<9, 9>> covariance) {
  EstimationTask task{};
  const i64 count = (i64)x.shape(0);
  require(count > 0 && (i64)y.shape(0) == count && (i64)variances.shape(0) == count,
          "x, y, variances: expected one per match");
  require(first.has_value() == second.has_value(), "first, second: expected both or none");
  require(!first || ((i64)first->shape(0) == count && (i64)second->shape(0) == count),
          "first, second: expected one per match");
  require(model >= 0 && model <= 3 && (model == 3) == cameras.has_value(), "model, cameras: expected both for 3");
  require(sizes.first > 0 && sizes.first <= 8 && sizes.second > 0 && sizes.second <= 8, "sizes: expected 1 to 8");
  require_finite(x);
  require_finite(y);
  task.matches = {x.data(), y.data(), variances.data(), first ? first->data() : nullptr,
                  second ? second->data() : nullptr, count, scale, reach};
  Cameras calibrations{};
  if (cameras) {  // of both images, then their inverses
    Entries *const parts[] = {&calibrations.a, &calibrations.b, &calibrations.inverse_a, &calibrations.inverse_b};
    for (int i = 0; i < 4; ++i) std::copy(cameras->data() + 9 * i, cameras->data() + 9 * i + 9, parts[i]->begin());
    task.cameras = &calibrations;
  }
  task.kind = (Kind)model;
  task.noise = to_noise_model(noise);
  task.plane = to_noise_model(plane);
  task.search = to_search(search);
  task.point_size = sizes.first;
  task.frame_size = sizes.second;
  Entries started{};
  if (start) {
    std::copy(start->data(), start->data() + ENTRIES, started.begin());
    task.start = &started;
  }
  double *m = matrix.data(), *c = covariance.data();
  nb::gil_scoped_release released;
  const EstimatedModel result = estimate_model(task, c);
  std::copy(result.matrix.begin(), result.matrix.end(), m);
  return {result.noise.sigma, result.noise.share, result.likelihood};
}

void make_grid(PointGrid *grid, Points2 points) {
  require(points.shape(0) > 0, "points: expected at least one");
  require_finite(points);
  new (grid) PointGrid(points.data(), (i64)points.shape(0));
}

// Writes squared distances and indices (n, count).
void nearest_points(const PointGrid &grid, Points2 queries, int threads, Out<double, nb::ndim<2>> squares,
                    Out<i64, nb::ndim<2>> indices) {
  const i64 rows = (i64)queries.shape(0), count = (i64)squares.shape(1);
  require(count > 0 && count <= grid.size(), "squares: expected one column per point, or fewer");
  require((i64)squares.shape(0) == rows && (i64)indices.shape(0) == rows && (i64)indices.shape(1) == count,
          "squares, indices: expected one row per query");
  require_finite(queries);
  const double *q = queries.data();
  double *s = squares.data();
  i64 *k = indices.data();
  nb::gil_scoped_release released;
  in_parallel(rows, PointGrid::searches(count), threads, [&](i64 first, i64 last) {
    for (i64 i = first; i < last; ++i) grid.find(q + 2 * i, count, s + count * i, k + count * i);
  });
}

void points_within(const PointGrid &grid, Points2 queries, double radius, int threads, Out<bool, nb::ndim<1>> within) {
  const i64 rows = (i64)queries.shape(0);
  require((i64)within.shape(0) == rows, "within: expected one per query");
  require(radius >= 0 && std::isfinite(radius), "radius: expected a finite number that is not negative");
  require_finite(queries);
  const double *q = queries.data();
  bool *result = within.data();
  nb::gil_scoped_release released;
  in_parallel(rows, PointGrid::SEARCHES_WITHIN, threads, [&](i64 first, i64 last) {
    for (i64 i = first; i < last; ++i) result[i] = grid.has_within(q + 2 * i, radius);
  });
}

void agreement(const PointGrid &grid, Indices rows, Maps a, Maps b, const std::vector<i64> &neighbors,
               const nb::dict &constants, int threads, Out<double, nb::ndim<1>> scores) {
  const i64 count = (i64)a.shape(0);
  require((i64)b.shape(0) == count && (i64)scores.shape(0) == count, "b, scores: expected one per match");
  require((i64)rows.shape(0) == grid.size(), "rows: expected one per point of the grid");
  for (std::size_t i = 0; i < rows.size(); ++i)
    require(rows.data()[i] >= 0 && rows.data()[i] < count, "rows: index out of range");
  require(!neighbors.empty() && neighbors[0] > 0 && std::is_sorted(neighbors.begin(), neighbors.end()),
          "neighbors: expected positive numbers in ascending order");
  require_finite(a);
  AgreementConstants c{};
  NamedConstants(constants)
      .read("tolerance", c.tolerance)
      .read("relative_tolerance", c.relative_tolerance)
      .read("max_rotation", c.max_rotation)
      .read("max_scale", c.max_scale)
      .read("same", c.same)
      .read("chance", c.chance)
      .read("area", c.area)
      .require_no_others();
  const double *first = a.data(), *second = b.data();
  const i64 *of_points = rows.data();
  double *result = scores.data();
  nb::gil_scoped_release released;
  score_agreement(grid, of_points, first, second, count, neighbors, c, threads, result);
}

void predict(const PointGrid &grid, Points2 p, Points2 q, Maps frames, std::pair<double, double> size, i64 neighbors,
             const nb::dict &constants, int threads, Out<double, nb::shape<-1, 2, 3>> maps,
             Out<bool, nb::ndim<1>> good) {
  const i64 count = (i64)frames.shape(0);
  require((i64)p.shape(0) == grid.size() && p.shape(0) == q.shape(0), "p, q: expected one per point of the grid");
  require(neighbors >= 2 && neighbors <= grid.size(), "neighbors: expected 2 or more, at most one per point");
  require((i64)maps.shape(0) == count && (i64)good.shape(0) == count, "maps, good: expected one per frame");
  require_finite(frames);
  PredictionTask task{};
  NamedConstants(constants)
      .read("reach", task.reach)
      .read("min_spread", task.min_spread)
      .read("max_misfit", task.max_misfit)
      .read("max_stretch", task.max_stretch)
      .read("margin", task.margin)
      .require_no_others();
  task.p = p.data();
  task.q = q.data();
  task.neighbors = neighbors;
  task.height = size.first;
  task.width = size.second;
  const double *first = frames.data();
  double *out = maps.data();
  bool *flags = good.data();
  nb::gil_scoped_release released;
  predict_frames(grid, task, first, count, threads, out, flags);
}

void accept(Maps before, Maps after, In<double, nb::shape<-1, 2, 2>> shifts,
            In<double, nb::shape<-1, 2, 2>> total_shifts, In<double, nb::shape<-1, 3>> statistics,
            const nb::dict &constants, int threads, Out<double, nb::shape<-1, 2, 3>> maps, Out<bool, nb::ndim<1>> moved,
            Out<double, nb::shape<-1, 2, 2>> covariances, Out<double, nb::shape<-1, 2, 2>> totals) {
  const i64 count = (i64)before.shape(0);
  for (const std::size_t size : {after.shape(0), shifts.shape(0), total_shifts.shape(0), statistics.shape(0),
                                 maps.shape(0), moved.shape(0), covariances.shape(0), totals.shape(0)})
    require((i64)size == count, "expected one row per match");
  AcceptanceConstants c{};
  NamedConstants(constants)
      .read("max_shift", c.max_shift)
      .read("max_stretch", c.max_stretch)
      .read("max_cost", c.max_cost)
      .read("flat", c.flat)
      .read("decrease", c.decrease)
      .require_no_others();
  const RefinedMatches matches{before.data(), after.data(), shifts.data(), total_shifts.data(), statistics.data()};
  double *m = maps.data(), *noise = covariances.data(), *total = totals.data();
  bool *flags = moved.data();
  nb::gil_scoped_release released;
  accept_refined(matches, count, c, threads, m, flags, noise, total);
}

void view_cells(Maps maps, const nb::dict &constants, int threads, Out<i64, nb::shape<-1, 6>> cells) {
  const i64 count = (i64)maps.shape(0);
  require((i64)cells.shape(0) == count, "cells: expected one row per frame");
  ViewCellConstants c{};
  NamedConstants(constants)
      .read("xy_width", c.xy_width)
      .read("log_width", c.log_width)
      .read("angle_width", c.angle_width)
      .read("angles", c.angles)
      .require_no_others();
  require(c.xy_width > 0 && c.log_width > 0 && c.angle_width > 0 && c.angles > 0, "constants: expected positive ones");
  require_finite(maps);
  const double *first = maps.data();
  i64 *result = cells.data();
  nb::gil_scoped_release released;
  find_view_cells(first, count, c, threads, result);
}

// Returns the index of the first of each distinct row of cells (n, k).
auto first_of_cells(In<i64, nb::ndim<2>> cells) {
  const i64 count = (i64)cells.shape(0), columns = (i64)cells.shape(1);
  const i64 *values = cells.data();
  std::vector<i64> first(count);
  {
    nb::gil_scoped_release released;
    first.resize(find_first_of_cells(values, count, columns, first.data()));
  }
  const std::size_t number = first.size();
  return to_array(std::move(first), number);
}

}  // namespace

NB_MODULE(caloric_native, m) {
  m.attr("VERSION") = 18;  // of this interface; must equal VERSION in caloric.runtime.native
  m.attr("PATCH_SIDE") = PATCH_SIDE;
  m.attr("NOISE_LAGS") = NOISE_LAGS;
  m.def("kinds", &available_builds);
  m.def("kind", &build_name);
  m.def("use", &select_build);
  // Results are written to the given arrays: noconvert() rejects arrays that would have to be copied.
  m.def("octave", &octave, nb::arg("base"), nb::arg("upsample"), nb::arg("layers").noconvert(), nb::arg("taps"),
        nb::arg("top"), nb::arg("bottom"));
  m.def("candidates", &candidates, nb::arg("octave"), nb::arg("threshold"), nb::arg("top"), nb::arg("bottom"));
  m.def("refine_extrema", &refine_extrema, nb::arg("octave"), nb::arg("candidates"), nb::arg("constants"));
  nb::class_<Table>(m, "Table")
      .def("__init__", &make_table, nb::arg("factors"), nb::arg("columns"), nb::kw_only(), nb::arg("partners"),
           nb::arg("mirrored"), nb::arg("synthesis").none(), nb::arg("order"));
  m.def("describe", &describe, nb::kw_only(), nb::arg("levels"), nb::arg("size"), nb::arg("maps"),
        nb::arg("level_indices"), nb::arg("offsets"), nb::arg("factors"), nb::arg("runs"), nb::arg("power"),
        nb::arg("table"), nb::arg("raw").noconvert());
  m.def("sampson_distances", &sampson_distances, nb::arg("x"), nb::arg("y"), nb::arg("matrix"), nb::arg("planar"));
  m.def("estimate", &estimate, nb::kw_only(), nb::arg("x"), nb::arg("y"), nb::arg("variances"), nb::arg("first").none(),
        nb::arg("second").none(), nb::arg("scale"), nb::arg("reach"), nb::arg("model"), nb::arg("cameras").none(),
        nb::arg("noise"),
        nb::arg("plane"), nb::arg("search"), nb::arg("sizes"), nb::arg("start").none(), nb::arg("matrix").noconvert(),
        nb::arg("covariance").noconvert());
  nb::class_<PointGrid>(m, "PointGrid")
      .def("__init__", &make_grid, nb::arg("points"))
      .def_prop_ro("is_dense", &PointGrid::is_dense)
      .def("nearest", &nearest_points, nb::arg("queries"), nb::arg("threads"), nb::arg("squares").noconvert(),
           nb::arg("indices").noconvert())
      .def("within", &points_within, nb::arg("queries"), nb::arg("radius"), nb::arg("threads"),
           nb::arg("within").noconvert());
  m.def("agreement", &agreement, nb::kw_only(), nb::arg("grid"), nb::arg("rows"), nb::arg("a"), nb::arg("b"),
        nb::arg("neighbors"), nb::arg("constants"), nb::arg("threads"), nb::arg("scores").noconvert());
  m.def("predict", &predict, nb::kw_only(), nb::arg("grid"), nb::arg("p"), nb::arg("q"), nb::arg("frames"),
        nb::arg("size"), nb::arg("neighbors"), nb::arg("constants"), nb::arg("threads"), nb::arg("maps").noconvert(),
        nb::arg("good").noconvert());
  m.def("accept", &accept, nb::kw_only(), nb::arg("before"), nb::arg("after"), nb::arg("shifts"),
        nb::arg("total_shifts"), nb::arg("statistics"), nb::arg("constants"), nb::arg("threads"),
        nb::arg("maps").noconvert(), nb::arg("moved").noconvert(), nb::arg("covariances").noconvert(),
        nb::arg("totals").noconvert());
  m.def("view_cells", &view_cells, nb::kw_only(), nb::arg("maps"), nb::arg("constants"), nb::arg("threads"),
        nb::arg("cells").noconvert());
  m.def("first_of_cells", &first_of_cells, nb::arg("cells"));
  m.def("pack", &pack, nb::arg("b"));
  m.def("product", &product, nb::arg("a"), nb::arg("b"), nb::arg("result").noconvert());
  nb::class_<Columns>(m, "Columns")
      .def("__init__", &make_columns, nb::arg("b"), nb::arg("half"), nb::arg("screened") = true)
      .def_prop_ro("screened", [](const Columns &columns) { return columns.screening != nullptr; });
  m.def("nearest", &nearest, nb::kw_only(), nb::arg("a"), nb::arg("half_a"), nb::arg("columns"), nb::arg("xy").none(),
        nb::arg("radius"), nb::arg("column").noconvert(), nb::arg("best").noconvert(), nb::arg("second").noconvert(),
        nb::arg("best_of_column").noconvert());
  m.def("searches_bytes", &searches_bytes, nb::arg("depth"));
  nb::class_<Bytes>(m, "Bytes").def("__init__", &make_bytes, nb::arg("b"));
  m.def("nearest_bytes", &nearest_bytes, nb::kw_only(), nb::arg("a"), nb::arg("columns"), nb::arg("xy").none(),
        nb::arg("radius"), nb::arg("column").noconvert(), nb::arg("best").noconvert(), nb::arg("second").noconvert(),
        nb::arg("best_of_column").noconvert());
  m.def("refine_matches", &refine_matches, nb::kw_only(), nb::arg("first"), nb::arg("second"), nb::arg("a"),
        nb::arg("b"), nb::arg("window"), nb::arg("filters"), nb::arg("steps"), nb::arg("constants"), nb::arg("noise"),
        nb::arg("variances"), nb::arg("correlations"), nb::arg("maps").noconvert(), nb::arg("covariances").noconvert(),
        nb::arg("totals").noconvert(), nb::arg("statistics").noconvert());
}
