// The search for the most likely model; the same for all builds.
#include <limits>

#include "dispatch.hpp"
#include "estimation.hpp"

namespace caloric {
namespace {

// The k-th random number below `limit`: SplitMix64.
i64 draw(i64 seed, i64 k, i64 limit) {
  std::uint64_t z = (std::uint64_t)(seed + 1) * 0x9E3779B97F4A7C15u + (std::uint64_t)k * 0xD1342543DE82EF95u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (i64)((z ^ (z >> 31)) % (std::uint64_t)limit);
}

constexpr int MAX_SAMPLE = 8;
constexpr i64 SHUFFLE = 1 << 30;  // the first random number for the order of matches

// Matches in single precision, in a random order.
struct Shuffled {
  std::vector<i64> order;
  std::vector<float> coordinates[4];

  Shuffled(const MatchedPoints &matches, i64 seed) {
    const i64 count = matches.count;
    order.resize(count);
    for (i64 m = 0; m < count; ++m) order[m] = m;
    for (i64 m = count - 1; m > 0; --m) std::swap(order[m], order[draw(seed, SHUFFLE + m, m + 1)]);
    for (int k = 0; k < 4; ++k) {
      const double *points = k < 2 ? matches.x : matches.y;
      coordinates[k].resize(count + FLOATS);
      for (i64 m = 0; m < count; ++m) coordinates[k][m] = (float)points[2 * order[m] + k % 2];
    }
  }
};

class Search {
 public:
  Search(const EstimationTask &task, Kind kind, const NoiseModel &noise, const Shuffled &shuffled)
      : task_(task),
        matches_(task.matches),
        constants_(task.search),
        kind_(kind),
        shuffled_(shuffled),
        noise_(noise),
        solver_(matches_, kind, task.cameras),
        adjustment_(matches_, kind, noise_.constants, constants_),
        squares_(matches_.count + FLOATS) {}

  // Also samples pairs of matches that are not in a plane.
  void use_plane(const Entries &plane, const std::vector<i64> &others) {
    plane_ = plane;
    off_plane_ = others;
  }

  // Starts from an epipolar geometry of a plane, which is not unique: samples of an exact plane give none.
  void try_plane(const Entries &plane) {
    const double epipole[3] = {1, 0, 0};
    const EstimatedModel start = with_noise(solver_.through(plane, epipole));
    if (start.likelihood > 0) best_ = improve(start);
  }

  // Returns the best model of random samples.
  EstimatedModel sample(int point_size, int frame_size) {
    const i64 count = matches_.count, subset = std::min(count, constants_.subset);
    double highest = 0, highest_of_subset = 0;
    EstimatedModel best = best_;
    std::vector<Entries> models;
    i64 limit = constants_.samples, sample[MAX_SAMPLE];
    for (i64 s = 0; s < limit; ++s) {
      models.clear();
      const i64 turn = s / constants_.pools % 4;  // after all pools, another kind of sample
      if (turn == 1 && off_plane_.size() > 2) {
        if (!draw_sample(s, 2, &off_plane_, sample)) continue;
        solver_.append_parallax(sample, plane_, models);
      } else {
        const bool by_frames = turn == 3 && matches_.first;
        const int size = by_frames ? frame_size : point_size;
        if (!draw_sample(s, size, nullptr, sample)) continue;
        solver_.append(sample, size, by_frames, best.likelihood > 0 ? &best.matrix : nullptr, models);
      }
      for (const Entries &matrix : models) {
        Noise noise{};
        const double of_subset = highest_likelihood(matrix, subset, noise);
        if (of_subset <= constants_.subset_share * highest_of_subset) continue;
        const double likelihood = highest_likelihood(matrix, count, noise);
        if (likelihood <= highest) continue;
        highest_of_subset = of_subset;
        const EstimatedModel improved = improve({matrix, noise, likelihood});
        highest = std::max(likelihood, constants_.improved_share * improved.likelihood);
        if (improved.likelihood <= best.likelihood) continue;
        best = improved;
        limit = needed_samples(best, point_size);
      }
    }
    return best;
  }

  // Returns which matches are close to a model (count,), in their given order.
  std::vector<char> close_to(const EstimatedModel &model) {
    write_squares(model.matrix, matches_.count);
    const float limit = limit_of(model.noise);
    std::vector<char> close(matches_.count);
    for (i64 m = 0; m < matches_.count; ++m) close[shuffled_.order[m]] = squares_[m] <= limit;
    return close;
  }

  // Fits a model to all matches, from the most likely of several noise levels; writes its covariance.
  EstimatedModel finish(const EstimatedModel &start, double *covariance) {
    const i64 chosen = std::min(matches_.count, constants_.chosen);
    adjustment_.use({shuffled_.order.begin(), shuffled_.order.begin() + chosen});
    EstimatedModel best = evaluated(start);
    for (const double level : {1.0, 0.4, 2.5}) {
      EstimatedModel current = start;
      const NoiseConstants &limits = noise_.constants;
      current.noise.sigma = std::clamp(level * start.noise.sigma, limits.min_sigma, limits.max_sigma);
      Model model(kind_, start.matrix, task_.cameras);
      for (i64 step = 0; step < constants_.level_steps && adjustment_.move(model, current.noise); ++step)
        ;
      current.matrix = model.matrix();
      current = evaluated(current);
      if (current.likelihood > best.likelihood) best = current;
    }
    adjustment_.use(shuffled_.order);
    Noise noise = best.noise;
    best = evaluated(best);
    Model model(kind_, best.matrix, task_.cameras);
    for (i64 step = 0; step < constants_.steps; ++step) {
      adjustment_.decorrelate(model, noise);
      if (!adjustment_.move(model, noise)) break;
    }
    const EstimatedModel fitted = evaluated({model.matrix(), noise, 0});
    if (fitted.likelihood >= constants_.kept * best.likelihood)
      best = fitted;
    else
      noise = best.noise;
    if (!adjustment_.write_covariance(Model(kind_, best.matrix, task_.cameras), noise, covariance))
      std::fill(covariance, covariance + 81, std::numeric_limits<double>::infinity());
    return best;
  }

  // Returns a model with its most likely noise.
  EstimatedModel with_noise(const Entries &matrix) {
    EstimatedModel result{matrix, {}, 0};
    result.likelihood = highest_likelihood(matrix, matches_.count, result.noise);
    return result;
  }

 private:
  // Returns a model with its noise after some steps of expectation maximization, and its likelihood.
  EstimatedModel evaluated(EstimatedModel model) {
    model.likelihood = adjustment_.likelihood(Model(kind_, model.matrix, task_.cameras), 2, model.noise);
    return model;
  }

  bool draw_sample(i64 s, int size, const std::vector<i64> *rows, i64 *sample) const {
    const i64 pool = pool_of(s, size, rows ? (i64)rows->size() : matches_.count);
    for (int i = 0; i < size; ++i) {
      const i64 drawn = draw(constants_.seed, MAX_SAMPLE * s + i, pool);
      sample[i] = rows ? (*rows)[drawn] : drawn;
      for (int j = 0; j < i; ++j)
        if (sample[i] == sample[j]) return false;
    }
    return true;
  }

  // The number of first matches from which sample s is drawn: all, half of them, a quarter ...
  i64 pool_of(i64 s, int size, i64 count) const {
    return std::min(count, std::max<i64>(count >> (s % constants_.pools), 2 * size));
  }

  i64 needed_samples(const EstimatedModel &best, int size) {
    const std::vector<char> close = close_to(best);
    double failure = 0;  // the logarithm of its probability, per sample
    for (i64 k = 0; k < constants_.pools; ++k) {
      const i64 pool = pool_of(k, size, matches_.count);
      const double share = (double)std::count(close.begin(), close.begin() + pool, 1) / (double)pool;
      failure += std::log(1 - std::min(constants_.quality * std::pow(share, size), 0.999)) / (double)constants_.pools;
    }
    const double needed = std::log(1 - constants_.confidence) / std::min(failure, -1e-12);
    return std::max(constants_.min_samples, (i64)std::min(needed, (double)constants_.samples));
  }

  float limit_of(const Noise &noise) const {
    return (float)(constants_.close * constants_.close * noise.sigma * noise.sigma);
  }

  // Alternates between the noise of all matches and a fit to some of those that are close.
  EstimatedModel improve(const EstimatedModel &start) {
    EstimatedModel best = start, current = start;
    for (i64 round = 0; round < constants_.rounds; ++round) {
      std::vector<i64> rows;
      const float limit = limit_of(current.noise);
      for (i64 m = 0; m < matches_.count && (i64)rows.size() < constants_.fitted; ++m)
        if (squares_[m] <= limit) rows.push_back(shuffled_.order[m]);
      adjustment_.use(std::move(rows));
      Model model(kind_, current.matrix, task_.cameras);
      for (int step = 0; step < 2; ++step) {
        Noise noise = current.noise;
        if (!adjustment_.move(model, noise)) break;
      }
      current.matrix = model.matrix();
      current.likelihood = highest_likelihood(current.matrix, matches_.count, current.noise);
      if (current.likelihood <= best.likelihood) break;
      best = current;
    }
    return best;
  }

  // Writes the squared residuals in pixels of the first matches, in the random order.
  void write_squares(const Entries &matrix, i64 count) {
    FloatPoints points{{}, (float)(matches_.scale * matches_.scale)};
    for (int k = 0; k < 4; ++k) points.coordinates[k] = shuffled_.coordinates[k].data();
    const Entries of_residuals = kind_ == Kind::essential ? task_.cameras->of_residuals(matrix) : matrix;
    kernels().write_squares(is_planar(kind_), of_residuals, points, count, squares_.data());
  }

  // Returns the likelihood of the first matches, with their most likely noise.
  double highest_likelihood(const Entries &matrix, i64 count, Noise &noise) {
    write_squares(matrix, count);
    double likelihood = 0;
    const int best = kernels().find_noise(noise_.table, squares_.data(), count, likelihood);
    if (best >= 0) noise = noise_.table.noises[best];
    return likelihood;
  }

  const EstimationTask &task_;
  const MatchedPoints &matches_;
  const SearchConstants &constants_;
  Kind kind_;
  const Shuffled &shuffled_;
  const NoiseModel &noise_;
  Solver solver_;
  Adjustment adjustment_;
  Entries plane_{};
  EstimatedModel best_{{}, {}, 0};
  std::vector<i64> off_plane_;
  std::vector<float> squares_;
};

}  // namespace

EstimatedModel estimate_model(const EstimationTask &task, double *covariance) {
  const Shuffled shuffled(task.matches, task.search.seed);
  Search search(task, task.kind, task.noise, shuffled);
  if (task.start) return search.finish(search.with_noise(*task.start), covariance);
  if (!is_planar(task.kind)) {
    Search planes(task, Kind::homography, task.plane, shuffled);
    const EstimatedModel plane = planes.sample(4, 2);
    if (plane.likelihood > 0) {
      search.try_plane(plane.matrix);
      const std::vector<char> close = planes.close_to(plane);
      std::vector<i64> others;
      for (i64 m = 0; m < task.matches.count; ++m)
        if (!close[m]) others.push_back(m);
      search.use_plane(plane.matrix, others);
    }
  }
  const EstimatedModel best = search.sample(task.point_size, task.frame_size);
  return best.likelihood > 0 ? search.finish(best, covariance) : best;
}

}  // namespace caloric
