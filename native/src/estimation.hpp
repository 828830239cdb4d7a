// Robust estimation of two-view geometries (likelihood.cpp, solvers.cpp, adjustment.cpp, estimation.cpp); the same for
// all builds. caloric.matching.estimation has the algorithm and the constants.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "models.hpp"

namespace caloric {

// Squared residuals in pixels, and their distribution: those of correct matches have two normal parts, one with the
// deviation sigma, and one for the share `tail` of them with a deviation larger by the factor `width`; those of others
// are uniform. `peak` is the ratio of the densities for a residual and a deviation of 0 and 1.
// The number of `parameters` of a model reduces the degrees of freedom of residuals.
struct NoiseConstants {
  double min_sigma, max_sigma, peak, width, tail, min_share, max_share, sigma_step;
  int dimensions, parameters;
};

struct Noise {
  double sigma, share;
};

struct SearchConstants {
  double confidence, quality, subset_share, close, kept, ridge, tolerance, max_step, correlation;
  i64 samples, min_samples, pools, subset, fitted, rounds, chosen, cells, steps, seed;
};

// Matched points x and y (count, 2) in normalized coordinates, whose residuals times `scale` are in pixels, the most
// reliable first. `variances` (count,) of their positions are in square pixels. With frames, `local` (count, 2, 2) are
// the affine maps from those of the first image to those of the second, and `reach` (count,) the distances within which
// they hold.
struct MatchedPoints {
  const double *x, *y, *variances;
  const double *local, *reach;  // or null
  i64 count;
  double scale;
};

// A model with its noise and the logarithm of its likelihood, relative to unrelated matches; 0 if there is none.
struct EstimatedModel {
  Entries matrix;
  Noise noise;
  double likelihood;
};

class Likelihood {
 public:
  explicit Likelihood(const NoiseConstants &constants);
  const NoiseConstants &constants() const { return constants_; }
  // Returns the highest likelihood of squared residuals (count,), among some values of the noise. Residuals are counted
  // in bins of equal ratios.
  double highest(const float *squares, i64 count, Noise &noise) const;
  // Takes a step of expectation maximization and returns the likelihood before it. Residuals have the given variances,
  // in addition to the noise, and factors by which matches count less. Writes the weights (count,) of a fit: for the
  // share `mixed`, those of one normal distribution with the same variance.
  double maximize(const double *squares, const double *variances, const double *factors, i64 count, double mixed,
                  Noise &noise, double *weights) const;

 private:
  NoiseConstants constants_;
  int first_bin_, bins_;
  std::vector<Noise> noises_;
  std::vector<float> table_;  // (noises, bins): logarithms of likelihoods
};

// Models of minimal samples, in the same coordinates; an essential matrix is that of the cameras.
class Solver {
 public:
  Solver(const MatchedPoints &matches, Kind kind, const Cameras *cameras);
  // Appends the models of some points or, in addition, their local maps; `best` is the best model so far, or null.
  void append(const i64 *sample, int size, bool by_frames, const Entries *best, std::vector<Entries> &models) const;
  // Appends F = [e]x H, or the nearest E, of a plane H and two matches that are not in it: their lines through the points mapped by H
  // intersect in e.
  void append_parallax(const i64 *sample, const Entries &plane, std::vector<Entries> &models) const;
  Entries through(const Entries &plane, const std::array<double, 3> &epipole) const;

 private:
  void append_plane(const i64 *sample, int size, bool by_frames, std::vector<Entries> &models) const;
  void append_fundamental(const i64 *sample, int size, bool by_frames, std::vector<Entries> &models) const;
  void append_essential(const i64 *sample, int size, bool by_frames, const Entries *best,
                        std::vector<Entries> &models) const;
  int write_epipolar_rows(const i64 *sample, int size, bool by_frames, int limit, double *rows) const;

  const MatchedPoints &matches_;
  Kind kind_;
  const Cameras *cameras_;
};

// Fits a model to some of the matches by Gauss-Newton steps.
class Adjustment {
 public:
  Adjustment(const MatchedPoints &matches, Kind kind, const Likelihood &likelihood, const SearchConstants &constants);
  void use(std::vector<i64> rows);
  // Takes a step after one of expectation maximization; returns whether another one is useful.
  bool move(Model &model, Noise &noise);
  // Estimates the correlation of the residuals of neighboring matches: see caloric.matching.estimation.
  void decorrelate(const Model &model, const Noise &noise);
  // Returns the likelihood of a model and writes the noise after some steps of expectation maximization.
  double likelihood(const Model &model, int steps, Noise &noise);
  // Writes the covariance (9, 9) of the entries of the matrix; returns false if they are not determined.
  bool write_covariance(const Model &model, const Noise &noise, double *covariance);

 private:
  void prepare(const Model &model);
  int write_equations(const Model &model, double *hessian, double *gradient) const;
  std::vector<double> densities(const Noise &noise, const std::vector<double> &z, double &correlation) const;

  const MatchedPoints &matches_;
  Kind kind_;
  const Likelihood &likelihood_;
  const SearchConstants &constants_;
  std::vector<i64> rows_;
  std::vector<double> squares_, variances_, weights_, factors_;
  double correlation_ = 0;
};

// Returns the most likely model of random samples or, if `start` is not null, that fitted from it. Writes the
// covariance (9, 9) of the entries of its matrix; it is infinite if they are not determined. `plane` is the noise of
// homographies, which help to find epipolar geometries; `point_size` and `frame_size` are sizes of samples.
struct EstimationTask {
  MatchedPoints matches;
  Kind kind;
  const Cameras *cameras;
  NoiseConstants noise, plane;
  SearchConstants search;
  int point_size, frame_size;
  const double *start;
};
EstimatedModel estimate_model(const EstimationTask &task, double *covariance);

}  // namespace caloric
