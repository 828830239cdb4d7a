// Which refined matches are accepted; caloric.matching.refinement has the conditions.
#include <cmath>
#include <limits>

#include "matrices.hpp"
#include "parallel.hpp"

namespace caloric {
namespace {

bool is_near(const double *before, const double *after, const AcceptanceConstants &constants) {
  const Matrix2 first = Matrix2::of_frame(before), change = first.inverse() * Matrix2::of_frame(after);
  double sum, difference;
  change.singular_values(sum, difference);
  const double shift = std::hypot(after[2] - before[2], after[5] - before[5]);
  return shift <= constants.max_shift * std::sqrt(std::abs(first.determinant())) &&
         (sum + difference) / 2 <= constants.max_stretch && (sum - difference) / 2 >= 1 / constants.max_stretch;
}

// Writes the covariance of a position, given in units of a frame; returns whether it is finite.
bool map_covariance(const double *shift, const Matrix2 &linear, double *result) {
  const Matrix2 m = linear * Matrix2{shift[0], shift[1], shift[2], shift[3]} * linear.transposed();
  result[0] = m.a;
  result[1] = m.b;
  result[2] = m.c;
  result[3] = m.d;
  return std::isfinite(m.a + m.b + m.c + m.d);
}

}  // namespace

void accept_refined(const RefinedMatches &matches, i64 count, const AcceptanceConstants &constants, int threads,
                    double *maps, bool *moved, double *covariances, double *totals) {
  in_parallel(count, 1000, threads, [&](i64 first, i64 last) {
    for (i64 i = first; i < last; ++i) {
      const double *before = matches.before + 6 * i, *after = matches.after + 6 * i;
      const double *statistics = matches.statistics + 3 * i;
      const Matrix2 linear = Matrix2::of_frame(after);
      const bool has_noise = map_covariance(matches.shifts + 4 * i, linear, covariances + 4 * i);
      const bool has_total = map_covariance(matches.total_shifts + 4 * i, linear, totals + 4 * i);
      moved[i] = has_noise && has_total && statistics[2] > constants.flat &&
                 statistics[1] < constants.decrease * statistics[0] && statistics[1] < constants.max_cost &&
                 is_near(before, after, constants);
      std::copy_n(moved[i] ? after : before, 6, maps + 6 * i);
      if (moved[i]) continue;
      for (double *covariance : {covariances + 4 * i, totals + 4 * i})
        for (int k = 0; k < 4; ++k) covariance[k] = k % 3 == 0 ? std::numeric_limits<double>::infinity() : 0;
    }
  });
}

}  // namespace caloric
