// The nearest points of a plane, by a grid of cells; the same for all builds.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels.hpp"

namespace caloric {

// Points (count, 2) sorted by cell; those of a row of cells follow each other.
class PointGrid {
 public:
  PointGrid(const double *points, i64 count) {
    std::copy(points, points + 2, low_);
    std::copy(points, points + 2, high_);
    for (i64 i = 0; i < 2 * count; ++i) {
      low_[i % 2] = std::min(low_[i % 2], points[i]);
      high_[i % 2] = std::max(high_[i % 2], points[i]);
    }
    const double width = high_[0] - low_[0], height = high_[1] - low_[1], share = PER_CELL / (double)count;
    side_ = std::max(std::sqrt(width * height * share), std::max(width, height) * share);  // the second on a line
    if (!(side_ > 0)) side_ = 1;
    for (int k = 0; k < 2; ++k) cells_[k] = 1 + (i64)((high_[k] - low_[k]) / side_);
    margin_ = 1e-9 * side_ * (double)(cells_[0] + cells_[1]);
    starts_.assign(cells_[0] * cells_[1] + 1, 0);
    std::vector<i64> cell(count);
    for (i64 i = 0; i < count; ++i) {
      cell[i] = cell_along(points[2 * i + 1], 1) * cells_[0] + cell_along(points[2 * i], 0);
      ++starts_[cell[i] + 1];
    }
    largest_ = *std::max_element(starts_.begin(), starts_.end());
    for (std::size_t c = 1; c < starts_.size(); ++c) starts_[c] += starts_[c - 1];
    sorted_.resize(count);
    std::vector<i64> next(starts_.begin(), starts_.end() - 1);
    for (i64 i = 0; i < count; ++i) sorted_[next[cell[i]]++] = {points[2 * i], points[2 * i + 1], i};
  }

  i64 size() const { return (i64)sorted_.size(); }
  // How many searches for `count` points, or for any within a radius, take about 150 microseconds, longer than waking
  // a thread.
  static i64 searches(i64 count) { return std::max<i64>(1, 3000 / (count + 1)); }
  static constexpr i64 SEARCHES_WITHIN = 6000;
  // Whether there are dense clusters, in which a search would be slow.
  bool is_dense() const { return largest_ > MAX_PER_CELL; }

  // Writes squared distances and indices (count,) of the nearest points, in this order; of equal distances the smaller
  // index comes first.
  void find(const double *query, i64 count, double *squares, i64 *indices) const {
    i64 used = 0;
    const i64 center[2] = {cell_along(query[0], 0), cell_along(query[1], 1)};
    for (i64 ring = 0;; ++ring) {
      const i64 left = center[0] - ring, right = center[0] + ring, top = center[1] - ring, bottom = center[1] + ring;
      scan(top, left, right, query, count, used, squares, indices);
      if (ring > 0) scan(bottom, left, right, query, count, used, squares, indices);
      if (left >= 0 || right < cells_[0])
        for (i64 row = std::max<i64>(top + 1, 0); row <= std::min(bottom - 1, cells_[1] - 1); ++row) {
          scan(row, left, left, query, count, used, squares, indices);
          scan(row, right, right, query, count, used, squares, indices);
        }
      const double beyond = square_beyond(query, left, right, top, bottom);
      if (beyond == std::numeric_limits<double>::infinity()) return;
      if (used == count && squares[count - 1] < beyond) return;
    }
  }

  // Returns whether some point is at most `radius` from the query.
  bool has_within(const double *query, double radius) const {
    const double reach = radius + margin_;
    const i64 left = cell_along(query[0] - reach, 0), right = cell_along(query[0] + reach, 0);
    const i64 bottom = cell_along(query[1] + reach, 1);
    for (i64 row = cell_along(query[1] - reach, 1); row <= bottom; ++row) {
      const Point *end = start_of(row, right + 1);
      for (const Point *point = start_of(row, left); point < end; ++point) {
        const double x = point->x - query[0], y = point->y - query[1];
        if (std::sqrt(x * x + y * y) <= radius) return true;
      }
    }
    return false;
  }

 private:
  static constexpr double PER_CELL = 2;  // points, on average
  static constexpr i64 MAX_PER_CELL = 100;
  struct Point {
    double x, y;
    i64 index;
  };

  i64 cell_along(double value, int axis) const {
    const double position = (value - low_[axis]) / side_;
    return position <= 0 ? 0 : position >= (double)cells_[axis] ? cells_[axis] - 1 : (i64)position;
  }

  // Returns the first point of a cell; those of the next cells of its row follow.
  const Point *start_of(i64 row, i64 column) const { return sorted_.data() + starts_[row * cells_[0] + column]; }

  // Returns a lower bound of the squared distance from the query to the points that are not in these cells.
  double square_beyond(const double *query, i64 left, i64 right, i64 top, i64 bottom) const {
    const i64 first[2] = {left, top}, last[2] = {right, bottom};
    double square = std::numeric_limits<double>::infinity();
    for (int k = 0; k < 2; ++k) {
      const int other = 1 - k;
      const double outside = std::max({low_[other] - query[other], query[other] - high_[other], 0.0});
      const auto include = [&](double distance) {
        distance = std::max(distance - margin_, 0.0);
        square = std::min(square, distance * distance + outside * outside);
      };
      if (first[k] > 0) include(query[k] - (low_[k] + side_ * (double)first[k]));
      if (last[k] < cells_[k] - 1) include(low_[k] + side_ * (double)(last[k] + 1) - query[k]);
    }
    return square;
  }

  // Inserts the points of some cells of a row into the `used` nearest points so far.
  void scan(i64 row, i64 left, i64 right, const double *query, i64 count, i64 &used, double *squares,
            i64 *indices) const {
    left = std::max<i64>(left, 0);
    right = std::min(right, cells_[0] - 1);
    if (row < 0 || row >= cells_[1] || left > right) return;
    const Point *end = start_of(row, right + 1);
    for (const Point *point = start_of(row, left); point < end; ++point) {
      const double x = point->x - query[0], y = point->y - query[1], square = x * x + y * y;
      const auto is_nearer = [&](i64 i) {
        return square < squares[i] || (square == squares[i] && point->index < indices[i]);
      };
      if (used == count && !is_nearer(count - 1)) continue;
      i64 i = used == count ? count - 1 : used++;
      for (; i > 0 && is_nearer(i - 1); --i) {
        squares[i] = squares[i - 1];
        indices[i] = indices[i - 1];
      }
      squares[i] = square;
      indices[i] = point->index;
    }
  }

  double low_[2], high_[2], side_;
  double margin_;  // cells are rounded: a point may be outside of its cell by a small part of a side
  i64 cells_[2], largest_;
  std::vector<i64> starts_;
  std::vector<Point> sorted_;
};

}  // namespace caloric
