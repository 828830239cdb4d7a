// The first occurrence of each distinct row of integers; the cells of frames of simulated views.
#include "parallel.hpp"

namespace caloric {
namespace {

u64 hash_row(const i64 *row, i64 columns) {
  u64 hash = 0;
  for (i64 k = 0; k < columns; ++k) {
    // The finalizer of splitmix64 (Steele, Lea and Flood, 2014)
    hash = (hash ^ (u64)row[k]) + 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
    hash ^= hash >> 31;
  }
  return hash;
}

// Writes the cell (6,) of a frame; caloric.image.views has the formulas.
void write_cell(const double *map, const ViewCellConstants &constants, i64 *cell) {
  const double a = map[0], b = map[1], c = map[3], d = map[4];
  const double plus = std::hypot(a + d, c - b), minus = std::hypot(a - d, b + c);
  const double direction = std::atan2(c - b, a + d), axes = std::atan2(b + c, a - d);
  const double area = std::max(std::abs(a * d - b * c), 1e-300);
  const double scale = std::nearbyint(std::log(std::sqrt(area)) / constants.log_width);
  const double stretch = std::log(std::max(plus + minus, 1e-300) / std::max(std::abs(plus - minus), 1e-300));
  const double width = constants.xy_width * std::exp(constants.log_width * scale);
  const double length = stretch / (2 * constants.log_width);
  const i64 turn = (i64)std::nearbyint(direction / constants.angle_width);
  cell[0] = (i64)std::nearbyint(map[2] / width);
  cell[1] = (i64)std::nearbyint(map[5] / width);
  cell[2] = (i64)scale;
  cell[3] = (i64)std::nearbyint(length * std::cos(direction + axes));
  cell[4] = (i64)std::nearbyint(length * std::sin(direction + axes));
  cell[5] = turn < 0 ? turn + constants.angles : turn % constants.angles;
}

}  // namespace

void find_view_cells(const double *maps, i64 count, const ViewCellConstants &constants, int threads, i64 *cells) {
  in_parallel(count, 500, threads, [&](i64 first, i64 last) {
    for (i64 i = first; i < last; ++i) write_cell(maps + 6 * i, constants, cells + 6 * i);
  });
}

i64 find_first_of_cells(const i64 *cells, i64 count, i64 columns, i64 *first) {
  std::size_t size = 16;
  while (size < 2 * (std::size_t)count) size *= 2;
  std::vector<i64> rows(size, -1);  // by hash; the next free entry if several rows have the same
  i64 number = 0;
  for (i64 i = 0; i < count; ++i) {
    const i64 *row = cells + columns * i;
    std::size_t entry = hash_row(row, columns) & (size - 1);
    while (rows[entry] >= 0 && !std::equal(row, row + columns, cells + columns * rows[entry]))
      entry = (entry + 1) & (size - 1);
    if (rows[entry] >= 0) continue;
    rows[entry] = i;
    first[number++] = i;
  }
  return number;
}

}  // namespace caloric
