// The likelihood of residuals; the same for all builds.
#include <cmath>
#include <cstring>
#include <limits>

#include "estimation.hpp"

namespace caloric {
namespace {

constexpr double SHARES[] = {0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95};

// Half octaves of squares: the exponent and the first bit of the mantissa.
int bin_of(float square) {
  std::int32_t bits;
  std::memcpy(&bits, &square, sizeof bits);
  return bits >> 22;
}

double start_of(int bin) {
  const std::int32_t bits = bin << 22;
  float square;
  std::memcpy(&square, &bits, sizeof square);
  return square;
}

// exp(x) for x <= 0, to 1e-9 of its value; the same on all platforms.
inline double fast_exp(double x) {
  constexpr double LOG2E = 1.4426950408889634, LN2 = 0.6931471805599453, MAGIC = 6755399441055744.0;
  x = x > -700 ? x : -700;
  const double shifted = x * LOG2E + MAGIC;
  std::int64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const double r = x - (shifted - MAGIC) * LN2;
  const double p =
      1 + r * (1 + r * (1. / 2 + r * (1. / 6 + r * (1. / 24 + r * (1. / 120 + r * (1. / 720 + r * (1. / 5040)))))));
  bits = (bits + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

}  // namespace

Likelihood::Likelihood(const NoiseConstants &constants) : constants_(constants) {
  const double low = constants.min_sigma / 4, high = 6 * constants.max_sigma;
  first_bin_ = bin_of((float)(low * low));
  bins_ = bin_of((float)(high * high)) - first_bin_ + 2;
  const double norm = constants.dimensions == 2 ? constants.width * constants.width : constants.width;
  std::vector<double> ratios(bins_);
  for (double next = constants.min_sigma;; next *= constants.sigma_step) {
    const double sigma = std::min(next, constants.max_sigma), variance = sigma * sigma;
    const double peak = constants.peak / (constants.dimensions == 2 ? variance : sigma);
    for (int b = 0; b < bins_; ++b) {
      const double middle = (start_of(first_bin_ + b) + start_of(first_bin_ + b + 1)) / 2;
      const double square = (b == 0 ? 0 : middle) / variance;
      const double wide = constants.tail / norm * std::exp(-square / (2 * constants.width * constants.width));
      ratios[b] = b == bins_ - 1 ? 0 : peak * ((1 - constants.tail) * std::exp(-square / 2) + wide);
    }
    for (const double share : SHARES) {
      noises_.push_back({sigma, share});
      for (const double ratio : ratios) table_.push_back((float)std::log(1 - share + share * ratio));
    }
    if (next >= constants.max_sigma) break;
  }
}

double Likelihood::highest(const float *squares, i64 count, Noise &noise) const {
  std::vector<i64> counts(bins_);
  for (i64 m = 0; m < count; ++m) {
    // Infinite and undefined squares are in the last bin.
    const int bin = squares[m] >= 0 ? bin_of(squares[m]) - first_bin_ : bins_ - 1;
    ++counts[bin < 0 ? 0 : bin >= bins_ ? bins_ - 1 : bin];
  }
  const std::vector<float> numbers(counts.begin(), counts.end());
  double highest = 0;
  for (std::size_t k = 0; k < noises_.size(); ++k) {
    const float *row = table_.data() + k * bins_;
    float sums[4] = {};
    int b = 0;
    for (; b + 4 <= bins_; b += 4)
      for (int i = 0; i < 4; ++i) sums[i] += numbers[b + i] * row[b + i];
    for (; b < bins_; ++b) sums[0] += numbers[b] * row[b];
    const double sum = (double)sums[0] + sums[1] + sums[2] + sums[3];
    if (sum > highest) {
      highest = sum;
      noise = noises_[k];
    }
  }
  return highest;
}

double Likelihood::maximize(const double *squares, const double *variances, const double *factors, i64 count,
                            double mixed, Noise &noise, double *weights) const {
  const double variance = noise.sigma * noise.sigma, square_width = constants_.width * constants_.width;
  const double norm = constants_.dimensions == 2 ? square_width : constants_.width;
  const double narrow_share = noise.share * (1 - constants_.tail), wide_share = noise.share * constants_.tail / norm;
  const double whole_variance = 1 + constants_.tail * (square_width - 1);
  double sum = 0, correct = 0, all = 0, likelihood = 0;
  for (i64 m = 0; m < count; ++m) {
    const double total = variance + variances[m], square = squares[m] < 1e300 ? squares[m] / total : 1e300;
    const double peak = constants_.peak / (constants_.dimensions == 2 ? total : std::sqrt(total));
    const double narrow = narrow_share * peak * fast_exp(-square / 2);
    const double wide = wide_share * peak * fast_exp(-square / (2 * square_width));
    const double density = 1 - noise.share + narrow + wide, probability = (narrow + wide) / density;
    const double weight = (narrow + wide / square_width) / density;
    const double f = factors ? factors[m] : 1;
    weights[m] = f * ((1 - mixed) * weight + mixed * probability / whole_variance) / total;
    correct += f * probability;
    sum += weight > 0 ? f * weight * square * variance : 0;
    all += f;
    likelihood += f * std::log(density);
  }
  // At least a quarter of the coordinates remain, so that few matches have a finite variance.
  const double coordinates = constants_.dimensions * correct;
  const double sigma = std::sqrt(sum / (std::max(coordinates - constants_.parameters, coordinates / 4) + 1e-300));
  noise.sigma = std::min(std::max(sigma, constants_.min_sigma), constants_.max_sigma);
  noise.share = std::min(std::max(correct / (all + 1e-300), constants_.min_share), constants_.max_share);
  return likelihood;
}

}  // namespace caloric
