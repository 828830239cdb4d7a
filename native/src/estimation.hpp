// Robust estimation of two-view geometries (solvers.cpp, adjustment.cpp, estimation.cpp). caloric.matching.estimation
// has the algorithm and the constants.
#pragma once
#include <vector>

#include "kernels.hpp"
#include "models.hpp"

namespace caloric {

struct SearchConstants {
  double confidence, quality, subset_share, improved_share, close, kept, ridge, tolerance, max_step, correlation;
  i64 samples, min_samples, pools, subset, fitted, rounds, chosen, level_steps, cells, steps, seed;
};

// Matched points x and y (count, 2) in normalized coordinates, whose residuals times `scale` are in pixels, the most
// reliable first. `variances` (count,) of their positions are in square pixels. Frames (count, 2, 3) are in pixels; the
// affine map of a match holds up to `reach` times the size of its frame.
struct MatchedPoints {
  const double *x, *y, *variances;
  const double *first, *second;  // frames in both images, or null
  i64 count;
  double scale, reach;
};

// A model with its noise and the logarithm of its likelihood, relative to unrelated matches; 0 if there is none.
struct EstimatedModel {
  Entries matrix;
  Noise noise;
  double likelihood;
};

// The noise of a kind of model.
struct NoiseModel {
  NoiseConstants constants;
  NoiseTable table;
};

// The affine map (2, 2) of a match, and the distance within which it holds in normalized coordinates.
struct LocalMap {
  double map[4], reach;
};

// Models of minimal samples, in the same coordinates; an essential matrix is that of the cameras.
class Solver {
 public:
  Solver(const MatchedPoints &matches, Kind kind, const Cameras *cameras);
  // Appends the models of some points or, in addition, their local maps; `best` is the best model so far, or null.
  void append(const i64 *sample, int size, bool by_frames, const Entries *best, std::vector<Entries> &models) const;
  // Appends F = [e]x H, or the nearest E, of a plane H and two matches that are not in it: their lines through the
  // points mapped by H intersect in e.
  void append_parallax(const i64 *sample, const Entries &plane, std::vector<Entries> &models) const;
  Entries through(const Entries &plane, const double *epipole) const;

 private:
  void append_plane(const i64 *sample, int size, bool by_frames, std::vector<Entries> &models) const;
  void append_fundamental(Entries *rows, std::vector<Entries> &models) const;
  void append_essential(Entries *rows, i64 first, const Entries *best, std::vector<Entries> &models) const;
  LocalMap local_map(i64 match) const;
  int write_epipolar_rows(const i64 *sample, int size, bool by_frames, int limit, Entries *rows) const;

  const MatchedPoints &matches_;
  Kind kind_;
  const Cameras *cameras_;
};

// Fits a model to some of the matches by Gauss-Newton steps.
class Adjustment {
 public:
  Adjustment(const MatchedPoints &matches, Kind kind, const NoiseConstants &noise, const SearchConstants &constants);
  void use(std::vector<i64> rows);
  // Takes a step after one of expectation maximization; returns whether another one is useful.
  bool move(Model &model, Noise &noise);
  // Estimates the correlation of the residuals of neighboring matches: see caloric.matching.adjustment.
  void decorrelate(const Model &model, const Noise &noise);
  // Returns the likelihood of a model and writes the noise after some steps of expectation maximization.
  double likelihood(const Model &model, int steps, Noise &noise);
  // Writes the covariance (9, 9) of the entries of the matrix; returns false if they are not determined.
  bool write_covariance(const Model &model, const Noise &noise, double *covariance);

 private:
  FitTask task_of(const Model &model) const;
  int write_equations(const Model &model, const FitSums &sums, double *hessian, double *gradient) const;
  Noise next_noise(const Noise &noise, const FitSums &sums) const;
  void number_cells();

  const MatchedPoints &matches_;
  Kind kind_;
  const NoiseConstants &noise_;
  const SearchConstants &constants_;
  std::vector<i64> rows_;
  std::size_t stride_ = 0;
  std::vector<double> values_, factors_, ones_;  // of the rows: see FitTask
  std::vector<int> cells_;  // (GRIDS, rows), or empty
  double correlation_ = 0;
};

// Returns the most likely model of random samples or, if `start` is not null, that fitted from it. Writes the
// covariance (9, 9) of the entries of its matrix; it is infinite if they are not determined. `plane` is the noise of
// homographies, which help to find epipolar geometries; `point_size` and `frame_size` are sizes of samples.
struct EstimationTask {
  MatchedPoints matches;
  Kind kind;
  const Cameras *cameras;
  NoiseModel noise, plane;
  SearchConstants search;
  int point_size, frame_size;
  const Entries *start;
};
EstimatedModel estimate_model(const EstimationTask &task, double *covariance);

}  // namespace caloric
