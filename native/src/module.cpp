// The face towards Python: shapes are checked here, the lock is released, the kernels do the rest.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#if defined(CALORIC_ARM) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "kernels.hpp"

#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#endif

namespace nb = nanobind;
using namespace caloric;
using i64 = std::int64_t;

template <typename T, typename... Shape>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu, Shape...>;
template <typename T, typename... Shape>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu, Shape...>;
using Matrix = In<float, nb::ndim<2>>;
using Line = In<float, nb::ndim<1>>;

namespace {

const Kernels *kernels = &kernels_portable;
std::string kind = "portable";

void require(bool holds, const char *what) {
  if (!holds) throw std::invalid_argument(what);
}

std::vector<std::string> kinds() {
  std::vector<std::string> found;
#ifdef CALORIC_X86
#ifdef _WIN32
  // Of AVX-512 Windows names one part, and the build for it needs five.
  if (IsProcessorFeaturePresent(PF_AVX2_INSTRUCTIONS_AVAILABLE)) found.push_back("avx2");
#else
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) found.push_back("avx512");
  if (v3) found.push_back("avx2");
#endif
#endif
#ifdef CALORIC_ARM
  found.push_back("neon");  // which every processor of this kind has
#endif
  found.push_back("portable");
  return found;
}

void use(const std::string &wanted) {
  for (const std::string &one : kinds()) {
    if (one != wanted) continue;
#ifdef CALORIC_X86
    if (one == "avx512") kernels = &kernels_avx512;
    if (one == "avx2") kernels = &kernels_avx2;
#endif
#ifdef CALORIC_ARM
    if (one == "neon") kernels = &kernels_neon;
#endif
    if (one == "portable") kernels = &kernels_portable;
    kind = one;
    return;
  }
  throw std::invalid_argument("this machine has no " + wanted);
}

template <typename T, typename... Sizes>
nb::ndarray<nb::numpy, T> owned(std::vector<T> &&values, Sizes... sizes) {
  auto *kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void *p) noexcept { delete (std::vector<T> *)p; });
  return nb::ndarray<nb::numpy, T>(kept->data(), {(std::size_t)sizes...}, owner);
}

// An image whose rows may lie apart: a window on another.
using Window = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

void octave(Window base, bool enlarged, Out<float, nb::ndim<3>> layers, const std::vector<Line> &taps, i64 top,
            i64 bottom) {
  const i64 times = enlarged ? 2 : 1, height = times * base.shape(0), width = times * base.shape(1);
  require((i64)layers.shape(1) == height && (i64)layers.shape(2) == width, "layers: another shape than the base");
  require(layers.shape(0) == taps.size() && !taps.empty(), "taps: for each layer");
  require(0 <= top && top <= bottom && bottom <= height && width > 0, "rows beyond the image");
  require(base.stride(1) == 1 || base.shape(1) == 1, "base: pixels of a row must lie side by side");
  std::vector<float *> targets;
  std::vector<const float *> weights;
  std::vector<int> radii;
  for (std::size_t i = 0; i < taps.size(); ++i) {
    require(taps[i].shape(0) % 2 == 1, "taps: an odd number");
    targets.push_back(layers.data() + i * height * width);
    weights.push_back(taps[i].data());
    radii.push_back((int)taps[i].shape(0) / 2);
  }
  const float *from = base.data();
  const i64 stride = base.stride(0);
  nb::gil_scoped_release released;
  kernels->octave(from, stride, enlarged, targets.data(), height, width, weights.data(), radii.data(), (int)taps.size(), top,
                  bottom);
}

using Octave = In<float, nb::ndim<3>>;

std::vector<const float *> layers_of(const Octave &octave) {
  require(octave.shape(0) >= 4 && octave.shape(0) <= 16, "an octave has 4 to 16 layers");
  std::vector<const float *> layers;
  for (std::size_t i = 0; i < octave.shape(0); ++i)
    layers.push_back(octave.data() + i * octave.shape(1) * octave.shape(2));
  return layers;
}

auto candidates(Octave octave, float limit, i64 top, i64 bottom) {
  const auto layers = layers_of(octave);
  const i64 height = octave.shape(1), width = octave.shape(2);
  std::vector<i64> flat;
  {
    nb::gil_scoped_release released;
    std::vector<Candidate> found;
    kernels->candidates(layers.data(), (int)layers.size(), height, width, limit, top, bottom, found);
    for (const Candidate &c : found) flat.insert(flat.end(), {c.layer, c.row, c.column});
  }
  const i64 count = flat.size() / 3;
  return owned(std::move(flat), count, 3);
}

// D to second order around a pixel, as caloric.detector.extrema has it: value, gradient, and the Hessian's
// xx, yy, ss, xy, xs, ys.
struct Parabola {
  double value, g[3], h[6];
};

Parabola fit(const float *const *levels, i64 width, i64 layer, i64 row, i64 column) {
  const auto d = [&](i64 s, i64 y, i64 x) {
    const i64 at = (row + y) * width + column + x;
    return (double)(levels[layer + s + 1][at] - levels[layer + s][at]);
  };
  const double c = d(0, 0, 0);
  const double ahead[3] = {d(0, 0, 1), d(0, 1, 0), d(1, 0, 0)}, behind[3] = {d(0, 0, -1), d(0, -1, 0), d(-1, 0, 0)};
  Parabola p;
  p.value = c;
  for (int i = 0; i < 3; ++i) {
    p.g[i] = (ahead[i] - behind[i]) / 2;
    p.h[i] = ahead[i] + behind[i] - 2 * c;
  }
  p.h[3] = (d(0, 1, 1) - d(0, 1, -1) - d(0, -1, 1) + d(0, -1, -1)) / 4;
  p.h[4] = (d(1, 0, 1) - d(1, 0, -1) - d(-1, 0, 1) + d(-1, 0, -1)) / 4;
  p.h[5] = (d(1, 1, 0) - d(1, -1, 0) - d(-1, 1, 0) + d(-1, -1, 0)) / 4;
  return p;
}

// u = -H^{-1} g by cofactors; false where H is singular.
bool solve(const Parabola &p, double regular, double *u) {
  const double xx = p.h[0], yy = p.h[1], ss = p.h[2], xy = p.h[3], xs = p.h[4], ys = p.h[5];
  const double a = yy * ss - ys * ys, b = xs * ys - xy * ss, c = xy * ys - xs * yy;
  const double e = xx * ss - xs * xs, f = xs * xy - xx * ys, i = xx * yy - xy * xy;
  const double determinant = xx * a + xy * b + xs * c;
  if (!(std::abs(determinant) > regular)) return false;
  const double gx = -p.g[0] / determinant, gy = -p.g[1] / determinant, gs = -p.g[2] / determinant;
  u[0] = a * gx + b * gy + c * gs;
  u[1] = b * gx + e * gy + f * gs;
  u[2] = c * gx + f * gy + i * gs;
  return true;
}

// Whether an extremum is strong and no edge, as caloric.detector.extrema tells them.
bool passes(const Parabola &p, double peak, double scales, double contrast, double edge) {
  const double trace = p.h[0] + p.h[1], determinant = p.h[0] * p.h[1] - p.h[3] * p.h[3];
  return std::abs(peak) * scales >= contrast && trace * trace * edge < (edge + 1) * (edge + 1) * determinant &&
         determinant > 0;
}

// Sub-pixel extrema from candidates (layer, row, column) that are strong and no edges: rows of layer, row,
// column, offsets x, y and layer, and value. The constants are those of caloric.detector.extrema.
auto refine(Octave octave, In<i64, nb::shape<-1, 3>> at, int fits, double regular, double moved, double accepted,
            double scales, double contrast, double edge) {
  const auto layers = layers_of(octave);
  const i64 height = octave.shape(1), width = octave.shape(2), count = at.shape(0);
  const i64 *places = at.data();
  std::vector<double> found;
  {
    nb::gil_scoped_release released;
    for (i64 n = 0; n < count; ++n) {
      i64 place[3] = {places[3 * n], places[3 * n + 1], places[3 * n + 2]};
      const i64 end[3] = {(i64)layers.size() - 2, height - 1, width - 1};
      bool inside = true;
      for (int i = 0; i < 3; ++i) inside &= place[i] >= 1 && place[i] < end[i];
      if (!inside) continue;
      for (int k = 0; k < fits; ++k) {
        const Parabola p = fit(layers.data(), width, place[0], place[1], place[2]);
        double u[3];
        if (!solve(p, regular, u)) break;
        const auto step = [&](double offset, i64 index, i64 size) {
          return (i64)(offset > moved && index < size - 2) - (i64)(offset < -moved && index > 1);
        };
        const i64 right = step(u[0], place[2], width), down = step(u[1], place[1], height);
        if ((right || down) && k + 1 < fits) {
          place[1] += down;
          place[2] += right;
          continue;
        }
        if (std::abs(u[0]) < accepted && std::abs(u[1]) < accepted && std::abs(u[2]) < accepted) {
          const double peak = p.value + 0.5 * (p.g[0] * u[0] + p.g[1] * u[1] + p.g[2] * u[2]);
          if (!passes(p, peak, scales, contrast, edge)) break;
          for (i64 i : place) found.push_back((double)i);
          found.insert(found.end(), {u[0], u[1], u[2], peak});
        }
        break;
      }
    }
  }
  const i64 rows = found.size() / 7;
  return owned(std::move(found), rows, 7);
}

// A table as the kernels read it: its columns in groups, of each the rows that count.
struct Packed {
  Table table;
  std::vector<float> synthesis;

  Packed(const std::vector<Matrix> &factors, const std::vector<In<i64, nb::ndim<1>>> &columns,
         In<i64, nb::ndim<1>> partners, In<i64, nb::shape<-1, 3>> mirrored, const nb::object &synthesis_, int order) {
    require(!factors.empty() && order >= 0, "no factors");
    require(columns.size() == factors.size(), "columns: of each factor");
    for (std::size_t i = 0; i < factors.size(); ++i) table.factors.push_back(pack(factors[i], columns[i]));
    table.order = order;
    table.bins = 0;
    table.synthesis = nullptr;
    if (!synthesis_.is_none()) {
      const auto last = nb::cast<Matrix>(synthesis_);
      require((i64)last.shape(1) == 2 * order + 1, "synthesis: (bins, 2 order + 1)");
      synthesis.assign(last.data(), last.data() + last.size());
      table.synthesis = synthesis.data();
      table.bins = last.shape(0);
    }
    i64 rows = 0, width = 0;
    for (const Factor &factor : table.factors) rows += factor.height, width += factor.width;
    require(rows % (2 * order + 1) == 0, "factors: rows of all harmonics");
    if (table.synthesis)
      require(width == (2 * order + 1) * table.factors[0].width, "factors: columns of all harmonics");
    else
      require(table.factors.size() == 1, "one factor, or a synthesis");
    require((i64)partners.shape(0) == points(), "partners: one a point");
    table.partners.assign(partners.data(), partners.data() + partners.size());
    for (i64 p = 0; p < points(); ++p) {
      const i64 q = table.partners[p];
      require(q >= 0 && q < points() && table.partners[q] == p, "partners: each other's");
    }
    for (std::size_t i = 0; i < mirrored.shape(0); ++i) {
      const i64 *pair = mirrored.data() + 3 * i;
      require(std::min(pair[0], pair[1]) >= 0 && std::max(pair[0], pair[1]) < width, "mirrored: a column too many");
      table.mirrored.push_back({pair[0], pair[1], pair[2] != 0});
    }
  }

  i64 points() const {
    i64 rows = 0;
    for (const Factor &factor : table.factors) rows += factor.height;
    return rows / (2 * table.order + 1);
  }

  i64 entries() const { return table.factors[0].width * (table.synthesis ? table.bins : 1); }

  static Factor pack(const Matrix &from, const In<i64, nb::ndim<1>> &order) {
    Factor factor{{0}, {}, {}, {}, (i64)from.shape(0), (i64)from.shape(1)};
    require((i64)order.shape(0) == factor.width, "columns: each once");
    std::vector<bool> seen(factor.width);
    for (i64 c = 0; c < factor.width; ++c) {
      const i64 column = order.data()[c];
      require(column >= 0 && column < factor.width && !seen[column], "columns: each once");
      seen[column] = true;
      factor.columns.push_back((std::int32_t)column);
    }
    while (factor.columns.size() % COLUMNS) factor.columns.push_back((std::int32_t)factor.width);
    const i64 groups = factor.columns.size() / COLUMNS;
    for (i64 block = 0; block < factor.height; block += BLOCK)
      for (i64 group = 0; group < groups; ++group) {
        const std::int32_t *columns = factor.columns.data() + group * COLUMNS;
        for (i64 row = block; row < std::min(block + BLOCK, factor.height); ++row) {
          float values[COLUMNS] = {};
          bool counts = false;
          for (int c = 0; c < COLUMNS; ++c)
            if (columns[c] < factor.width) {
              values[c] = from.data()[row * factor.width + columns[c]];
              counts |= values[c] != 0;
            }
          if (!counts) continue;
          factor.rows.push_back((std::int32_t)row);
          factor.values.insert(factor.values.end(), values, values + COLUMNS);
        }
        factor.starts.push_back(factor.rows.size());
      }
    return factor;
  }
};

void describe(const nb::list &levels, i64 height, i64 width, In<double, nb::shape<-1, 2, 3>> maps,
              In<i64, nb::ndim<2>> which, In<float, nb::shape<2, -1>> offsets, Line factors,
              In<i64, nb::ndim<1>> runs, float power, const Packed &packed, Out<float, nb::ndim<2>> raw) {
  std::vector<Level> read;
  std::vector<Matrix> kept;
  for (nb::handle item : levels) {
    const auto level = nb::cast<nb::tuple>(item);
    kept.push_back(nb::cast<Matrix>(level[0]));
    const Matrix &pixels = kept.back();
    require(pixels.size() > 0, "an empty level");
    require(pixels.size() < (std::size_t)std::numeric_limits<std::int32_t>::max(), "a level of 2^31 pixels");
    read.push_back({pixels.data(), (int)pixels.shape(0), (int)pixels.shape(1), nb::cast<double>(level[1]),
                    nb::cast<double>(level[2]), nb::cast<i64>(level[3]), nb::cast<i64>(level[4])});
  }
  const i64 count = maps.shape(0), points = offsets.shape(1), parts = (i64)runs.shape(0) - 1;
  require(packed.points() == points, "the table is for another number of points");
  require((i64)factors.shape(0) == points, "factors: one a point");
  require((i64)which.shape(0) == count && (i64)which.shape(1) == parts, "levels: one a frame and run");
  require((i64)raw.shape(0) == count && (i64)raw.shape(1) == packed.entries(), "raw: (frames, entries)");
  require(parts >= 1 && runs.data()[0] == 0 && runs.data()[parts] == points, "runs: from 0 to all points");
  for (i64 i = 0; i < parts; ++i) require(runs.data()[i] <= runs.data()[i + 1], "runs: rising");
  for (std::size_t i = 0; i < which.size(); ++i)
    require(which.data()[i] >= 0 && which.data()[i] < (i64)read.size(), "a level that is not there");
  // Read in whole vectors, hence the room behind the last.
  std::vector<float> x(offsets.data(), offsets.data() + points), y(offsets.data() + points, offsets.data() + 2 * points);
  x.resize(points + kernels->lanes);
  y.resize(points + kernels->lanes);
  const i64 *partners = packed.table.partners.data();
  for (i64 run = 0; run < parts; ++run)
    for (i64 p = runs.data()[run]; p < runs.data()[run + 1]; ++p)
      require(partners[p] >= runs.data()[run] && partners[p] < runs.data()[run + 1], "partners: in one run");
  const Points where{x.data(), y.data(), factors.data(), partners, points, runs.data(), parts, power};
  const Frames frames{maps.data(), which.data(), count};
  float *out = raw.data();
  nb::gil_scoped_release released;
  kernels->describe(read, height, width, frames, where, packed.table, out);
}

i64 panel() { return 2 * kernels->lanes; }

// b (columns, depth), transposed, in panels (depth, panel) with zeros after the last column.
auto pack(Matrix b) {
  const i64 columns = b.shape(0), depth = b.shape(1), wide = panel(), panels = (columns + wide - 1) / wide;
  std::vector<float> packed(panels * depth * wide);
  for (i64 c = 0; c < columns; ++c)
    for (i64 k = 0; k < depth; ++k) packed[(c / wide * depth + k) * wide + c % wide] = b.data()[c * depth + k];
  return owned(std::move(packed), panels, depth, wide);
}

using Panels = In<float, nb::ndim<3>>;

void fits(const Panels &b, i64 depth, i64 columns) {
  require((i64)b.shape(2) == panel() && (i64)b.shape(1) == depth, "b: packed for another kind or depth");
  require((i64)b.shape(0) == (columns + panel() - 1) / panel(), "b: another number of columns");
}

void product(Matrix a, Panels b, Out<float, nb::ndim<2>> result) {
  const i64 rows = a.shape(0), depth = a.shape(1), columns = result.shape(1);
  fits(b, depth, columns);
  require((i64)result.shape(0) == rows, "result: a row for each of a");
  const float *left = a.data(), *right = b.data();
  float *out = result.data();
  nb::gil_scoped_release released;
  kernels->product(left, rows, depth, right, columns, out);
}

// Whether products of bytes are fast here.
bool byte_products() {
#if defined(CALORIC_ARM) && defined(__linux__)
  return kernels == &kernels_neon && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP);
#elif defined(CALORIC_ARM) && defined(__APPLE__)
  return kernels == &kernels_neon;
#else
  return false;
#endif
}

// Descriptors b (columns, depth) as bytes, or None where products of bytes are not fast.
nb::object screen(Matrix b) {
  if (!byte_products()) return nb::none();
  const i64 columns = b.shape(0), depth = b.shape(1), group = 8, padded = (depth + 15) / 16 * 16;
  const float *from = b.data();
  Bytes bytes;
  {
    nb::gil_scoped_release released;
    const i64 all = (columns + group - 1) / group * group;
    Bytes rows = kernels->bytes_of(from, columns, depth);
    bytes.packed.assign(all * padded, 0);
    for (i64 c = 0; c < columns; ++c)
      for (i64 k = 0; k < padded; ++k)
        bytes.packed[(c - c % group) * padded + (k / 4) * 4 * group + (c % group) * 4 + k % 4] =
            rows.packed[c * padded + k];
    bytes.scale = std::move(rows.scale);
    bytes.error = std::move(rows.error);
    bytes.scale.resize(all);
    bytes.error.resize(all);
    bytes.longest = rows.longest;
    bytes.depth = padded;
  }
  return nb::cast(std::move(bytes));
}

// `best_of_b` has the best scores so far, and then those with the rows of a.
void nearest(Matrix a, Line half_a, Panels b, Line half_b, const nb::object &xy, double radius,
             Out<i64, nb::ndim<1>> column, Out<float, nb::ndim<1>> first, Out<float, nb::ndim<1>> second,
             Out<float, nb::ndim<1>> best_of_b, const nb::object &screened) {
  const i64 rows = a.shape(0), depth = a.shape(1), columns = half_b.shape(0), padded = b.shape(0) * b.shape(2);
  fits(b, depth, columns);
  for (const i64 size : {(i64)half_a.shape(0), (i64)column.shape(0), (i64)first.shape(0), (i64)second.shape(0)})
    require(size == rows, "one a row of a");
  require((i64)best_of_b.shape(0) == columns && columns > 0, "one a column of b");
  In<double, nb::shape<-1, 2>> places;
  if (!xy.is_none()) {
    places = nb::cast<In<double, nb::shape<-1, 2>>>(xy);
    require((i64)places.shape(0) == columns, "xy: one a column of b");
  }
  const double *where = xy.is_none() ? nullptr : places.data();
  const float *left = a.data(), *length = half_a.data(), *right = b.data(), *given = half_b.data();
  const Best best{first.data(), second.data(), column.data()};
  float *tops = best_of_b.data();
  const Bytes *bytes = screened.is_none() ? nullptr : &nb::cast<const Bytes &>(screened);
  if (bytes)
    require(byte_products() && bytes->depth == (depth + 15) / 16 * 16 && (i64)bytes->scale.size() == padded,
            "screen: of other descriptors");
  nb::gil_scoped_release released;
  // A column that is not there is infinitely far.
  std::vector<float> half(given, given + columns), highest(tops, tops + columns);
  half.resize(padded, std::numeric_limits<float>::infinity());
  highest.resize(padded, -std::numeric_limits<float>::infinity());
  kernels->nearest(left, length, rows, depth, right, half.data(), columns, where, radius, best, highest.data(), bytes);
  std::copy(highest.begin(), highest.begin() + columns, tops);
}

std::vector<RefineLevel> refine_levels(const std::vector<Matrix> &images) {
  std::vector<RefineLevel> levels;
  for (const Matrix &image : images) {
    require(image.size() > 0 && image.size() < (std::size_t)std::numeric_limits<std::int32_t>::max(), "a level of 0 or 2^31 pixels");
    levels.push_back({image.data(), (int)image.shape(0), (int)image.shape(1)});
  }
  require(!levels.empty() && levels.size() < 31, "1 to 30 levels");
  return levels;
}

using Maps = In<double, nb::shape<-1, 2, 3>>;
using Square = In<float, nb::shape<REFINED_SIDE, REFINED_SIDE>>;

// See caloric.matching.refinement; `constants` in the order of RefineConstants.
void refine_matches(const std::vector<Matrix> &first, const std::vector<Matrix> &second, Maps a, Maps b, Square window,
                    const std::vector<std::pair<Square, Square>> &filters, const std::vector<int> &steps,
                    const std::vector<double> &constants,
                    In<double, nb::shape<2>> noise, In<double, nb::ndim<1>> variances,
                    In<double, nb::shape<-1, 4>> correlations, Out<double, nb::shape<-1, 2, 3>> maps,
                    Out<double, nb::shape<-1, 2, 2>> shifts, Out<double, nb::shape<-1, 3>> figures) {
  RefineJob job;
  job.first = refine_levels(first);
  job.second = refine_levels(second);
  require(!filters.empty() && steps.size() == filters.size(), "filters and steps: of each blur");
  for (std::size_t i = 0; i < filters.size(); ++i)
    job.filters.push_back({filters[i].first.data(), filters[i].second.data(), steps[i]});
  job.window = window.data();
  require(constants.size() == 12, "constants: twelve");
  const double *c = constants.data();
  job.constants = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11]};
  const std::size_t levels = std::max(first.size(), second.size());
  require(variances.shape(0) >= levels && correlations.shape(0) >= levels, "noise: of each level");
  job.noise = noise.data();
  job.variances = variances.data();
  job.correlations = correlations.data();
  const std::size_t count = a.shape(0);
  require(b.shape(0) == count && maps.shape(0) == count && shifts.shape(0) == count && figures.shape(0) == count,
          "one row a match");
  job.a = a.data();
  job.b = b.data();
  job.maps = maps.data();
  job.shifts = shifts.data();
  job.figures = figures.data();
  job.count = (i64)count;
  nb::gil_scoped_release released;
  kernels->refine(job);
}

}  // namespace

NB_MODULE(caloric_native, m) {
  use(kinds().front());
  m.attr("VERSION") = 7;  // of these functions: raised when one changes
  m.def("kinds", &kinds);
  m.def("kind", [] { return kind; });
  m.def("use", &use);
  // What is written to must be what was given, not a converted copy.
  m.def("octave", &octave, nb::arg("base"), nb::arg("enlarged"), nb::arg("layers").noconvert(), nb::arg("taps"),
        nb::arg("top"), nb::arg("bottom"));
  m.def("candidates", &candidates);
  m.def("refine", &refine, nb::arg("octave"), nb::arg("at"), nb::arg("fits"), nb::arg("regular"), nb::arg("moved"),
        nb::arg("accepted"), nb::arg("scales"), nb::arg("contrast"), nb::arg("edge"));
  m.def("describe", &describe, nb::arg("levels"), nb::arg("height"), nb::arg("width"), nb::arg("maps"),
        nb::arg("which"), nb::arg("offsets"), nb::arg("factors"), nb::arg("runs"), nb::arg("power"),
        nb::arg("table"), nb::arg("raw").noconvert());
  m.def("pack", &pack);
  m.def("product", &product, nb::arg("a"), nb::arg("b"), nb::arg("result").noconvert());
  m.def("nearest", &nearest, nb::arg("a"), nb::arg("half_a"), nb::arg("b"), nb::arg("half_b"), nb::arg("xy").none(),
        nb::arg("radius"), nb::arg("column").noconvert(), nb::arg("first").noconvert(),
        nb::arg("second").noconvert(), nb::arg("best_of_b").noconvert(), nb::arg("screen").none());
  nb::class_<Bytes>(m, "Bytes");
  m.def("screen", &screen);
  m.def("refine_matches", &refine_matches, nb::arg("first"), nb::arg("second"), nb::arg("a"), nb::arg("b"),
        nb::arg("window"), nb::arg("filters"), nb::arg("steps"), nb::arg("constants"), nb::arg("noise"), nb::arg("variances"),
        nb::arg("correlations"), nb::arg("maps").noconvert(), nb::arg("shifts").noconvert(),
        nb::arg("figures").noconvert());
  nb::class_<Packed>(m, "Table")
      .def(nb::init<const std::vector<Matrix> &, const std::vector<In<i64, nb::ndim<1>>> &, In<i64, nb::ndim<1>>,
                    In<i64, nb::shape<-1, 3>>, const nb::object &, int>(),
           nb::arg("factors"), nb::arg("columns"), nb::arg("partners"), nb::arg("mirrored"),
           nb::arg("synthesis").none(), nb::arg("order"));
}
