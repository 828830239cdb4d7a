// Residuals of two-view models and their likelihood. caloric.matching.models and likelihood have the formulas.
#pragma once
#include <array>
#include <cstdint>

namespace caloric {

using i64 = std::int64_t;
constexpr int ENTRIES = 9;  // of a matrix, and the largest number of parameters
using Entries = std::array<double, ENTRIES>;

// Residuals of correct matches have two normal parts, one with the deviation sigma, and one for the share `tail` of
// them with a deviation larger by the factor `width`; those of others are uniform. `peak` is the ratio of the densities
// for a residual and a deviation of 0 and 1. The `parameters` of a model reduce the degrees of freedom of residuals.
struct NoiseConstants {
  double min_sigma, max_sigma, peak, width, tail, min_share, max_share;
  int dimensions, parameters;
};

struct Noise {
  double sigma, share;
};

// Logarithms (bins, count) of the likelihood of squared residuals, for some values of the noise. Bins are half octaves;
// the last one contains infinite and undefined squares.
struct NoiseTable {
  const float *logarithms;
  const Noise *noises;
  int first_bin, bins, count;
};

// Matches x and y in single precision, padded to a multiple of FLOATS.
constexpr int FLOATS = 16;
struct FloatPoints {
  const float *coordinates[4];
  float square_scale;  // of residuals in pixels
};

// Matches in normalized coordinates, and the matrix of their residuals, which times `scale` are in pixels. `values`
// (5, stride) are x and y of both images, and variances of positions in square pixels; `factors` (stride,) are positive,
// but 0 for the padding to a multiple of DOUBLES.
constexpr int DOUBLES = 8;
struct FitTask {
  bool planar;
  Entries matrix;
  const double *values, *factors;
  i64 count, stride;
  double scale;
};

// Weights of matches are those of expectation maximization, but for the share `mixed` those of one normal distribution
// with the same variance; or the probabilities that matches are correct. Weights (stride,) and residuals times their
// roots (dimensions, stride) are written if they are not null.
struct FitOptions {
  bool with_equations = false, by_probability = false;
  double mixed = 0;
  double *weights = nullptr, *errors = nullptr;
};

// Sums over matches: normal equations, likelihood, probabilities, squares times probabilities or, for expectation
// maximization, relative to their variances and weighted, and factors.
struct FitSums {
  double hessian[ENTRIES * ENTRIES], gradient[ENTRIES], likelihood, correct, squared, all;
};

using WriteSquares = void(bool planar, const Entries &matrix, const FloatPoints &points, i64 count, float *squares);
using FindNoise = int(const NoiseTable &table, const float *squares, i64 count, double &likelihood);
using SumFit = void(const FitTask &task, const NoiseConstants &constants, const Noise &noise, const FitOptions &options,
                    FitSums &sums);
using WriteErrors = void(const FitTask &task, double *errors);

}  // namespace caloric
