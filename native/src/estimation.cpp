// The search for the most likely model; the same for all builds.
#include "estimation.hpp"

#include <limits>

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
  std::vector<float> px, py, qx, qy;

  Shuffled(const MatchedPoints &matches, i64 seed) {
    const i64 count = matches.count;
    order.resize(count);
    for (i64 m = 0; m < count; ++m) order[m] = m;
    for (i64 m = count - 1; m > 0; --m) std::swap(order[m], order[draw(seed, SHUFFLE + m, m + 1)]);
    for (auto *values : {&px, &py, &qx, &qy}) values->resize(count);
    for (i64 m = 0; m < count; ++m) {
      px[m] = (float)matches.x[2 * order[m]];
      py[m] = (float)matches.x[2 * order[m] + 1];
      qx[m] = (float)matches.y[2 * order[m]];
      qy[m] = (float)matches.y[2 * order[m] + 1];
    }
  }

  // Writes the squared residuals of some matches, times a factor.
  void write_squares(bool planar, const double *matrix, double factor, i64 first, i64 last, float *squares) const {
    float h[9];
    double largest = 0;
    for (int i = 0; i < 9; ++i) largest = std::max(largest, std::abs(matrix[i]));
    for (int i = 0; i < 9; ++i) h[i] = (float)(matrix[i] / std::max(largest, 1e-300));
    const float scale = (float)factor, *x = px.data(), *y = py.data(), *s = qx.data(), *t = qy.data();
    if (planar) {
      for (i64 m = first; m < last; ++m) {
        const float depth = 1 / (h[6] * x[m] + h[7] * y[m] + h[8]);
        const float u = (h[0] * x[m] + h[1] * y[m] + h[2]) * depth, v = (h[3] * x[m] + h[4] * y[m] + h[5]) * depth;
        const float xx = (h[0] - u * h[6]) * depth, xy = (h[1] - u * h[7]) * depth, yx = (h[3] - v * h[6]) * depth;
        const float yy = (h[4] - v * h[7]) * depth, a = 1 + xx * xx + xy * xy, b = xx * yx + xy * yy;
        const float c = 1 + yx * yx + yy * yy, ru = u - s[m], rv = v - t[m];
        squares[m] = scale * (c * ru * ru - 2 * b * ru * rv + a * rv * rv) / (a * c - b * b);
      }
    } else {
      for (i64 m = first; m < last; ++m) {
        const float bx = h[0] * x[m] + h[1] * y[m] + h[2], by = h[3] * x[m] + h[4] * y[m] + h[5];
        const float bz = h[6] * x[m] + h[7] * y[m] + h[8], ax = h[0] * s[m] + h[3] * t[m] + h[6];
        const float ay = h[1] * s[m] + h[4] * t[m] + h[7], product = s[m] * bx + t[m] * by + bz;
        squares[m] = scale * product * product / (bx * bx + by * by + ax * ax + ay * ay);
      }
    }
  }
};

class Search {
 public:
  Search(const EstimationTask &task, Kind kind, const NoiseConstants &noise, const Shuffled &shuffled)
      : task_(task),
        matches_(task.matches),
        constants_(task.search),
        kind_(kind),
        shuffled_(shuffled),
        likelihood_(noise),
        solver_(matches_, kind, task.cameras),
        adjustment_(matches_, kind, likelihood_, constants_),
        squares_(matches_.count) {}

  // Also samples pairs of matches that are not in a plane.
  void use_plane(const Entries &plane, const std::vector<i64> &others) {
    plane_ = plane;
    off_plane_ = others;
  }

  // Starts from an epipolar geometry of a plane, which is not unique: samples of an exact plane give none.
  void try_plane(const Entries &plane) {
    EstimatedModel start = with_noise(solver_.through(plane, {1, 0, 0}).data());
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
        const bool by_frames = turn == 3 && matches_.local;
        const int size = by_frames ? frame_size : point_size;
        if (!draw_sample(s, size, nullptr, sample)) continue;
        solver_.append(sample, size, by_frames, best.likelihood > 0 ? &best.matrix : nullptr, models);
      }
      for (const Entries &matrix : models) {
        Noise noise{};
        write_squares(matrix, 0, subset);
        const double of_subset = likelihood_.highest(squares_.data(), subset, noise);
        if (of_subset <= constants_.subset_share * highest_of_subset) continue;
        write_squares(matrix, subset, count);
        const double likelihood = likelihood_.highest(squares_.data(), count, noise);
        if (likelihood <= highest) continue;
        highest = likelihood;
        highest_of_subset = of_subset;
        const EstimatedModel improved = improve({matrix, noise, likelihood});
        if (improved.likelihood <= best.likelihood) continue;
        best = improved;
        limit = needed_samples(best, point_size);
      }
    }
    return best;
  }

  // Returns which matches are close to a model (count,), in their given order.
  std::vector<char> close_to(const EstimatedModel &model) {
    write_squares(model.matrix, 0, matches_.count);
    const float limit = limit_of(model.noise);
    std::vector<char> close(matches_.count);
    for (i64 m = 0; m < matches_.count; ++m) close[shuffled_.order[m]] = squares_[m] <= limit;
    return close;
  }

  // Fits a model to all matches, from the most likely of several noise levels; writes its covariance.
  EstimatedModel finish(const EstimatedModel &start, double *covariance) {
    EstimatedModel best = start;
    const i64 chosen = std::min(matches_.count, constants_.chosen);
    adjustment_.use({shuffled_.order.begin(), shuffled_.order.begin() + chosen});
    best.likelihood = adjustment_.likelihood(Model(kind_, start.matrix.data(), task_.cameras), 2, best.noise);
    for (const double factor : {1.0, 0.4, 2.5}) {
      const NoiseConstants &limits = likelihood_.constants();
      EstimatedModel current = start;
      current.noise.sigma = std::min(std::max(factor * start.noise.sigma, limits.min_sigma), limits.max_sigma);
      Model model(kind_, start.matrix.data(), task_.cameras);
      for (i64 step = 0; step < constants_.steps && adjustment_.move(model, current.noise); ++step)
        ;
      model.write(current.matrix.data());
      current.likelihood = adjustment_.likelihood(model, 2, current.noise);
      if (current.likelihood > best.likelihood) best = current;
    }
    adjustment_.use(shuffled_.order);
    const Model before(kind_, best.matrix.data(), task_.cameras);
    Noise noise = best.noise;
    best.likelihood = adjustment_.likelihood(before, 2, best.noise);
    Model model = before;
    for (i64 step = 0; step < constants_.steps; ++step) {
      adjustment_.decorrelate(model, noise);
      if (!adjustment_.move(model, noise)) break;
    }
    Noise after = noise;
    if (adjustment_.likelihood(model, 2, after) >= constants_.kept * best.likelihood)
      best.noise = noise;
    else
      model = before;
    model.write(best.matrix.data());
    if (!adjustment_.write_covariance(model, best.noise, covariance))
      std::fill(covariance, covariance + 81, std::numeric_limits<double>::infinity());
    best.likelihood = adjustment_.likelihood(model, 3, best.noise);
    return best;
  }

  // Returns the most likely noise of a given model.
  EstimatedModel with_noise(const double *matrix) {
    EstimatedModel result{{}, {}, 0};
    std::copy(matrix, matrix + ENTRIES, result.matrix.begin());
    write_squares(result.matrix, 0, matches_.count);
    result.likelihood = likelihood_.highest(squares_.data(), matches_.count, result.noise);
    return result;
  }

 private:
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
      Model model(kind_, current.matrix.data(), task_.cameras);
      for (int step = 0; step < 2; ++step) {
        Noise noise = current.noise;
        if (!adjustment_.move(model, noise)) break;
      }
      model.write(current.matrix.data());
      write_squares(current.matrix, 0, matches_.count);
      current.likelihood = likelihood_.highest(squares_.data(), matches_.count, current.noise);
      if (current.likelihood <= best.likelihood) break;
      best = current;
    }
    return best;
  }

  // Writes the squared residuals in pixels of some matches, in the random order.
  void write_squares(const Entries &matrix, i64 first, i64 last) {
    double of_residuals[9];
    Model(kind_, matrix.data(), task_.cameras).write_in_units(of_residuals);
    const double factor = matches_.scale * matches_.scale;
    shuffled_.write_squares(is_planar(kind_), of_residuals, factor, first, last, squares_.data());
  }

  const EstimationTask &task_;
  const MatchedPoints &matches_;
  const SearchConstants &constants_;
  Kind kind_;
  const Shuffled &shuffled_;
  Likelihood likelihood_;
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
  if (task.start) return search.finish(search.with_noise(task.start), covariance);
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
