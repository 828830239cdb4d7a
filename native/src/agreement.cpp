// The agreement of matches with their neighbors; caloric.matching.agreement has the formulas.
#include <cmath>

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

// Writes the scores of matches from `first` to before `last`.
void score_some(const PointGrid &grid, const i64 *rows, const LocalMatches &matches, i64 first, i64 last,
                const std::vector<i64> &neighbors, const AgreementConstants &constants, double *scores) {
  const i64 number = std::min(neighbors.back() + 1, grid.size());  // a match may be its own nearest
  std::vector<double> squares(number);
  std::vector<i64> indices(number);
  std::vector<double> log_factorials(number + 1);
  for (i64 k = 2; k <= number; ++k) log_factorials[k] = log_factorials[k - 1] + std::log((double)k);
  for (i64 match = first; match < last; ++match) {
    const double *p = matches.p + 2 * match, *q = matches.q + 2 * match, *map = matches.maps + 4 * match;
    grid.find(p, number, squares.data(), indices.data());
    i64 agreeing = 0, seen = 0;
    double expected = 0, best = 0;
    for (const i64 limit : neighbors) {
      for (; seen < std::min(limit + 1, number); ++seen) {
        const double distance = std::sqrt(squares[seen]);
        if (!(distance > constants.same)) continue;
        const i64 other = rows[indices[seen]];
        const double x = matches.p[2 * other] - p[0], y = matches.p[2 * other + 1] - p[1];
        const double right = map[0] * x + map[1] * y - matches.q[2 * other] + q[0];
        const double down = map[2] * x + map[3] * y - matches.q[2 * other + 1] + q[1];
        const double tolerance =
            matches.scales[match] * (constants.tolerance + constants.relative_tolerance * distance);
        const double square = tolerance * tolerance;
        double turn = std::abs(matches.rotations[other] - matches.rotations[match]);
        turn = std::min(turn, 2 * PI - turn);
        const double stretch = std::abs(matches.log_scales[other] - matches.log_scales[match]);
        agreeing +=
            right * right + down * down < square && turn < constants.max_rotation && stretch < constants.max_scale;
        expected += constants.chance * std::min(PI * square / constants.area, 1.0);
      }
      best = std::max(best, surprise(agreeing, expected, log_factorials));
    }
    scores[match] = best;
  }
}

}  // namespace

void score_agreement(const PointGrid &grid, const i64 *rows, const LocalMatches &matches, i64 count,
                     const std::vector<i64> &neighbors, const AgreementConstants &constants, int threads,
                     double *scores) {
  in_parallel(count, PointGrid::searches(neighbors.back()), threads,
              [&](i64 first, i64 last) { score_some(grid, rows, matches, first, last, neighbors, constants, scores); });
}

}  // namespace caloric
