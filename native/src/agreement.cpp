// The agreement of matches with their neighbors; caloric.matching.agreement has the formulas.
#include <cmath>

#include "matrices.hpp"
#include "parallel.hpp"
#include "points.hpp"

namespace caloric {
namespace {

constexpr double PI = 3.14159265358979323846;

// -log10 of the probability of at least `count` events if `mean` are expected.
double surprise(i64 count, double mean, const std::vector<double> &log_factorials) {
  if (count == 0) return 0;
  mean = std::max(mean, 1e-12);
  // Of the first term of the Poisson distribution; the others matter unless the mean is small.
  double logarithm = (double)count * std::log(mean) - mean - log_factorials[count];
  if (mean >= 0.1 * (double)(count + 1)) {
    double sum = 1, term = 1;
    for (i64 i = count + 1; term > 1e-17 * sum; ++i) sum += term *= mean / (double)i;
    logarithm += std::log(sum);
  }
  return -logarithm / std::log(10.0);
}

// A match: its points in both images and its local affine map, with the scale and the rotation of the map.
struct LocalMatch {
  double p[2], q[2];
  Matrix2 map;
  double scale, log_scale, rotation;
};

LocalMatch local_match(const double *first, const double *second) {
  const Matrix2 map = Matrix2::of_frame(second) * Matrix2::of_frame(first).inverse();
  const double log_scale = 0.5 * std::log(std::max(std::abs(map.determinant()), 1e-12));
  // The rotation of the polar decomposition.
  const double rotation = std::atan2(map.c - map.b, map.a + map.d);
  return {{first[2], first[5]}, {second[2], second[5]}, map, std::exp(log_scale), log_scale, rotation};
}

// Writes the scores of matches from `first` to before `last`.
void score_some(const PointGrid &grid, const i64 *rows, const std::vector<LocalMatch> &matches, i64 first, i64 last,
                const std::vector<i64> &neighbors, const AgreementConstants &constants, double *scores) {
  const i64 number = std::min(neighbors.back() + 1, grid.size());  // a match may be its own nearest
  std::vector<double> squares(number);
  std::vector<i64> indices(number);
  std::vector<double> log_factorials(number + 1);
  for (i64 k = 2; k <= number; ++k) log_factorials[k] = log_factorials[k - 1] + std::log((double)k);
  for (i64 i = first; i < last; ++i) {
    const LocalMatch &match = matches[i];
    grid.find(match.p, number, squares.data(), indices.data());
    i64 agreeing = 0, seen = 0;
    double expected = 0, best = 0;
    for (const i64 limit : neighbors) {
      for (; seen < std::min(limit + 1, number); ++seen) {
        const double distance = std::sqrt(squares[seen]);
        if (!(distance > constants.same)) continue;
        const LocalMatch &other = matches[rows[indices[seen]]];
        const double x = other.p[0] - match.p[0], y = other.p[1] - match.p[1];
        const double right = match.map.a * x + match.map.b * y - other.q[0] + match.q[0];
        const double down = match.map.c * x + match.map.d * y - other.q[1] + match.q[1];
        const double tolerance = match.scale * (constants.tolerance + constants.relative_tolerance * distance);
        const double square = tolerance * tolerance;
        double turn = std::abs(other.rotation - match.rotation);
        turn = std::min(turn, 2 * PI - turn);
        const double stretch = std::abs(other.log_scale - match.log_scale);
        agreeing +=
            right * right + down * down < square && turn < constants.max_rotation && stretch < constants.max_scale;
        expected += constants.chance * std::min(PI * square / constants.area, 1.0);
      }
      best = std::max(best, surprise(agreeing, expected, log_factorials));
    }
    scores[i] = best;
  }
}

}  // namespace

void score_agreement(const PointGrid &grid, const i64 *rows, const double *first, const double *second, i64 count,
                     const std::vector<i64> &neighbors, const AgreementConstants &constants, int threads,
                     double *scores) {
  std::vector<LocalMatch> matches(count);
  in_parallel(count, 1000, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) matches[i] = local_match(first + 6 * i, second + 6 * i);
  });
  in_parallel(count, PointGrid::searches(neighbors.back()), threads,
              [&](i64 begin, i64 end) { score_some(grid, rows, matches, begin, end, neighbors, constants, scores); });
}

}  // namespace caloric
