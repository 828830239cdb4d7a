// Frames predicted in another image by the inliers around them; caloric.matching.propagation has the formulas.
#include <cmath>

#include "matrices.hpp"
#include "parallel.hpp"
#include "points.hpp"

namespace caloric {
namespace {

// Fits y = linear x (2, 2) to coordinates (2, count), weighted; returns whether it is good.
bool fit_local_map(const PredictionTask &task, const double *x, const double *y, const double *weights,
                   double *linear) {
  const i64 count = task.neighbors;
  const double *u = x, *v = x + count;
  double a = 0, b = 0, c = 0;
  for (i64 i = 0; i < count; ++i) {
    a += weights[i] * u[i] * u[i];
    b += weights[i] * u[i] * v[i];
    c += weights[i] * v[i] * v[i];
  }
  const double narrowest = (a + c) / 2 - std::hypot((a - c) / 2, b);  // eigenvalue of the moments [[a, b], [b, c]]
  if (!(narrowest > task.min_spread * task.min_spread)) return false;
  const double divisor = a * c - b * b;
  double misfit = 0;
  for (int k = 0; k < 2; ++k) {
    const double *target = y + k * count;
    double first = 0, second = 0, squares = 0;
    for (i64 i = 0; i < count; ++i) {
      first += weights[i] * u[i] * target[i];
      second += weights[i] * v[i] * target[i];
    }
    const double right = (first * c - second * b) / divisor, down = (second * a - first * b) / divisor;
    for (i64 i = 0; i < count; ++i) {
      const double error = target[i] - right * u[i] - down * v[i];
      squares += error * error;
    }
    misfit += squares / (double)count;
    linear[2 * k] = right;
    linear[2 * k + 1] = down;
  }
  if (!(misfit < task.max_misfit * task.max_misfit)) return false;
  const Matrix2 map{linear[0], linear[1], linear[2], linear[3]};
  double sum, difference;
  map.singular_values(sum, difference);
  return map.determinant() > 0 && (sum - difference) * task.max_stretch > sum + difference;
}

void predict_some(const PointGrid &grid, const PredictionTask &task, const double *frames, i64 begin, i64 end,
                  double *maps, bool *good) {
  const i64 number = task.neighbors;
  std::vector<double> squares(number), weights(number), x(2 * number), y(2 * number);
  std::vector<i64> near(number);
  for (i64 i = begin; i < end; ++i) {
    const double *frame = frames + 6 * i, position[2] = {frame[2], frame[5]};
    grid.find(position, number, squares.data(), near.data());
    good[i] = std::sqrt(squares[number / 2 - 1]) < task.reach;
    if (!good[i]) continue;
    double center[2] = {0, 0}, middle[2] = {0, 0}, mean = 0, total = 0, linear[4];
    for (i64 j = 0; j < number; ++j) {
      for (int k = 0; k < 2; ++k) {
        center[k] += task.p[2 * near[j] + k] / (double)number;
        middle[k] += task.q[2 * near[j] + k] / (double)number;
      }
      mean += std::sqrt(squares[j]) / (double)number;
    }
    for (i64 j = 0; j < number; ++j) {
      for (int k = 0; k < 2; ++k) {
        x[k * number + j] = task.p[2 * near[j] + k] - center[k];
        y[k * number + j] = task.q[2 * near[j] + k] - middle[k];
      }
      weights[j] = 1 / (std::sqrt(squares[j]) + mean);  // closer inliers count more
      total += weights[j];
    }
    for (double &weight : weights) weight /= total;
    good[i] = fit_local_map(task, x.data(), y.data(), weights.data(), linear);
    if (!good[i]) continue;
    double *map = maps + 6 * i;
    for (int k = 0; k < 2; ++k) {
      const double right = linear[2 * k], down = linear[2 * k + 1];
      for (int j = 0; j < 2; ++j) map[3 * k + j] = right * frame[j] + down * frame[3 + j];
      map[3 * k + 2] = middle[k] + right * (position[0] - center[0]) + down * (position[1] - center[1]);
    }
    good[i] = map[2] >= task.margin && map[2] <= task.width - 1 - task.margin && map[5] >= task.margin &&
              map[5] <= task.height - 1 - task.margin;
  }
}

}  // namespace

void predict_frames(const PointGrid &grid, const PredictionTask &task, const double *frames, i64 count, int threads,
                    double *maps, bool *good) {
  in_parallel(count, PointGrid::searches(task.neighbors), threads,
              [&](i64 first, i64 last) { predict_some(grid, task, frames, first, last, maps, good); });
}

}  // namespace caloric
