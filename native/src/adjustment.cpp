// Gauss-Newton steps of a model with its noise; the same for all builds.
#include <limits>

#include "estimation.hpp"

namespace caloric {
namespace {

template <typename Residual, typename Sums>
void sum_up(const MatchedPoints &matches, const std::vector<i64> &rows, const std::vector<double> &weights,
            const double *matrix, double *hessian, double *gradient) {
  Sums sums;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double *x = matches.x + 2 * rows[i], *y = matches.y + 2 * rows[i];
    if (weights[i] > 0) sums.add(weights[i], Residual(matrix, x, y), x, y);
  }
  sums.write(hessian, gradient);
}

}  // namespace

Adjustment::Adjustment(const MatchedPoints &matches, Kind kind, const Likelihood &likelihood,
                       const SearchConstants &constants)
    : matches_(matches), kind_(kind), likelihood_(likelihood), constants_(constants) {}

void Adjustment::use(std::vector<i64> rows) {
  rows_ = std::move(rows);
  squares_.resize(rows_.size());
  weights_.resize(rows_.size());
  variances_.resize(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) variances_[i] = matches_.variances[rows_[i]];
  factors_.assign(rows_.size(), 1.0);
  correlation_ = 0;
}

void Adjustment::prepare(const Model &model) {
  double matrix[9];
  model.write_in_units(matrix);
  const double scale = matches_.scale * matches_.scale;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const double *x = matches_.x + 2 * rows_[i], *y = matches_.y + 2 * rows_[i];
    squares_[i] =
        scale * (is_planar(kind_) ? PlaneResidual(matrix, x, y).square() : LineResidual(matrix, x, y).square());
  }
}

double Adjustment::likelihood(const Model &model, int steps, Noise &noise) {
  prepare(model);
  double result = 0;
  for (int step = 0; step <= steps; ++step) {
    Noise next = noise;
    result = likelihood_.maximize(squares_.data(), variances_.data(), nullptr, (i64)rows_.size(), 0, next,
                                  weights_.data());
    if (step < steps) noise = next;
  }
  return result;
}

// Writes the Hessian and the gradient by the parameters of the model; returns their number. Parameters that the matches
// do not determine get a small second derivative.
int Adjustment::write_equations(const Model &model, double *hessian, double *gradient) const {
  double entries[81], slopes[9], matrix[9], changes[81], products[81], trace = 0;
  model.write_in_units(matrix);
  if (is_planar(kind_))
    sum_up<PlaneResidual, PlaneSums>(matches_, rows_, weights_, matrix, entries, slopes);
  else
    sum_up<LineResidual, LineSums>(matches_, rows_, weights_, matrix, entries, slopes);
  const int n = model.parameters();
  model.write_changes(changes);
  for (int i = 0; i < n; ++i) {
    gradient[i] = 0;
    for (int k = 0; k < ENTRIES; ++k) gradient[i] += changes[ENTRIES * i + k] * slopes[k];
    for (int j = 0; j < ENTRIES; ++j) {
      products[ENTRIES * i + j] = 0;
      for (int k = 0; k < ENTRIES; ++k) products[ENTRIES * i + j] += changes[ENTRIES * i + k] * entries[ENTRIES * k + j];
    }
    for (int j = 0; j < n; ++j) {
      hessian[n * i + j] = 0;
      for (int k = 0; k < ENTRIES; ++k) hessian[n * i + j] += products[ENTRIES * i + k] * changes[ENTRIES * j + k];
    }
    trace += hessian[n * i + i];
  }
  for (int i = 0; i < n; ++i) hessian[n * i + i] += constants_.ridge * trace;
  return n;
}

bool Adjustment::move(Model &model, Noise &noise) {
  prepare(model);
  likelihood_.maximize(squares_.data(), variances_.data(), factors_.data(), (i64)rows_.size(), correlation_, noise,
                       weights_.data());
  double hessian[81], step[9], largest = 0;
  const int n = write_equations(model, hessian, step);
  if (!solve(hessian, step, n)) return false;
  for (int i = 0; i < n; ++i) {
    if (!std::isfinite(step[i])) return false;
    step[i] = -step[i];
    largest = std::max(largest, std::abs(step[i]));
  }
  if (largest > constants_.max_step)
    for (int i = 0; i < n; ++i) step[i] *= constants_.max_step / largest;
  model.move(step);
  return largest >= constants_.tolerance;
}

void Adjustment::decorrelate(const Model &model, const Noise &noise) {
  prepare(model);
  Noise unused = noise;
  likelihood_.maximize(squares_.data(), variances_.data(), nullptr, (i64)rows_.size(), 0, unused, weights_.data());
  double matrix[9];
  model.write_in_units(matrix);
  std::vector<double> z(2 * rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const double *x = matches_.x + 2 * rows_[i], *y = matches_.y + 2 * rows_[i];
    const double root = matches_.scale * std::sqrt(weights_[i]);
    if (is_planar(kind_)) {
      const PlaneResidual residual(matrix, x, y);
      z[2 * i] = root * residual.ru;
      z[2 * i + 1] = root * residual.rv;
    } else {
      z[2 * i] = root * LineResidual(matrix, x, y).distance;
    }
  }
  double correlation = 0;
  const std::vector<double> around = densities(noise, z, correlation);
  correlation_ = constants_.correlation * std::min(std::max(correlation, 0.0), 1.0);
  for (std::size_t i = 0; i < rows_.size(); ++i) factors_[i] = 1 / (1 + correlation_ * std::max(around[i] - 1, 0.0));
}

// Returns the number of weighted matches around each one: the mean of its cells in two grids per image, offset by half
// a cell. Writes the correlation of the weighted residuals z (., 2) of two matches of a cell.
std::vector<double> Adjustment::densities(const Noise &noise, const std::vector<double> &z, double &correlation) const {
  const std::size_t count = rows_.size(), side = (std::size_t)constants_.cells + 2;
  struct Cell {
    double number, u, v, squares;
  };
  std::vector<Cell> cells(side * side);
  std::vector<std::size_t> index(count);
  std::vector<double> result(count), numbers(count);
  double total = 0, number = 0, pairs = 0, products = 0;
  for (std::size_t i = 0; i < count; ++i) {
    numbers[i] = std::min(weights_[i] * (noise.sigma * noise.sigma + variances_[i]), 1.0);
    total += z[2 * i] * z[2 * i] + z[2 * i + 1] * z[2 * i + 1];
    number += numbers[i];
  }
  for (const double *points : {matches_.x, matches_.y}) {
    constexpr double INFINITE = std::numeric_limits<double>::infinity();
    double low[2] = {INFINITE, INFINITE}, high[2] = {-INFINITE, -INFINITE};
    for (std::size_t i = 0; i < count; ++i)
      for (int k = 0; k < 2; ++k) {
        low[k] = std::min(low[k], points[2 * rows_[i] + k]);
        high[k] = std::max(high[k], points[2 * rows_[i] + k]);
      }
    const double factor = (double)constants_.cells / std::max({high[0] - low[0], high[1] - low[1], 1e-12});
    for (const double offset : {0.0, 0.5}) {
      cells.assign(cells.size(), {});
      for (std::size_t i = 0; i < count; ++i) {
        const double *point = points + 2 * rows_[i];
        index[i] = (std::size_t)((point[0] - low[0]) * factor + offset) +
                   side * (std::size_t)((point[1] - low[1]) * factor + offset);
        Cell &cell = cells[index[i]];
        cell.number += numbers[i];
        cell.u += z[2 * i];
        cell.v += z[2 * i + 1];
        cell.squares += z[2 * i] * z[2 * i] + z[2 * i + 1] * z[2 * i + 1];
      }
      for (const Cell &cell : cells) {
        if (cell.number < 2) continue;
        pairs += cell.number - 1;  // times the number of matches, by which both are divided
        products += (cell.u * cell.u + cell.v * cell.v - cell.squares) / cell.number;
      }
      for (std::size_t i = 0; i < count; ++i) result[i] += cells[index[i]].number / 4;
    }
  }
  correlation = pairs > 0 && total > 0 ? products / pairs / (total / number) : 0;
  return result;
}

bool Adjustment::write_covariance(const Model &model, const Noise &noise, double *covariance) {
  prepare(model);
  Noise unused = noise;
  likelihood_.maximize(squares_.data(), variances_.data(), factors_.data(), (i64)rows_.size(), 1, unused,
                       weights_.data());
  // Each correct match has the variance of all: weights that depend on its residual would promise too much.
  const double variance = noise.sigma * noise.sigma;
  double number = 0, sum = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    weights_[i] *= variance + variances_[i];
    number += weights_[i];
    sum += weights_[i] > 0 ? weights_[i] * squares_[i] : 0;
  }
  const NoiseConstants &limits = likelihood_.constants();
  const double coordinates = limits.dimensions * (double)rows_.size();
  const double free = std::max(1 - limits.parameters / coordinates, 0.25);
  const double mean = std::max(sum / (limits.dimensions * number * free + 1e-300), 1e-6);  // exact matches
  const double whole = 1 + limits.tail * (limits.width * limits.width - 1);  // the divisor of all weights
  for (double &weight : weights_) weight *= whole / mean;
  double hessian[81], gradient[9], matrix[9], changes[81];
  const int n = write_equations(model, hessian, gradient);
  model.write(matrix);
  model.write_own_changes(changes);
  if (kind_ == Kind::homography) {  // it is defined up to scale
    double trace = 0;
    for (int i = 0; i < n; ++i) trace += hessian[(n + 1) * i];
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) hessian[n * i + j] += trace * matrix[i] * matrix[j];
  }
  std::vector<double> solved(n * ENTRIES);
  for (int k = 0; k < ENTRIES; ++k) {  // the inverse of the Hessian, times the changes of an entry
    double copy[81], column[9];
    std::copy(hessian, hessian + n * n, copy);
    for (int i = 0; i < n; ++i) column[i] = changes[ENTRIES * i + k] / (matches_.scale * matches_.scale);
    if (!solve(copy, column, n)) return false;
    for (int i = 0; i < n; ++i) solved[ENTRIES * i + k] = column[i];
  }
  for (int j = 0; j < ENTRIES; ++j)
    for (int k = 0; k < ENTRIES; ++k) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += changes[ENTRIES * i + j] * solved[ENTRIES * i + k];
      covariance[ENTRIES * j + k] = sum;
      if (!std::isfinite(sum)) return false;
    }
  return true;
}

}  // namespace caloric
