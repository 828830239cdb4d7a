// Gauss-Newton steps of a model with its noise; the same for all builds.
#include "dispatch.hpp"
#include "estimation.hpp"

namespace caloric {
namespace {

constexpr std::size_t GRIDS = 4;

}  // namespace

Adjustment::Adjustment(const MatchedPoints &matches, Kind kind, const NoiseConstants &noise,
                       const SearchConstants &constants)
    : matches_(matches), kind_(kind), noise_(noise), constants_(constants) {}

void Adjustment::use(std::vector<i64> rows) {
  rows_ = std::move(rows);
  const std::size_t count = rows_.size();
  stride_ = (count + DOUBLES - 1) / DOUBLES * DOUBLES;
  values_.assign(5 * stride_, 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    const i64 row = rows_[i];
    const double *x = matches_.x + 2 * row, *y = matches_.y + 2 * row;
    const double values[5] = {x[0], x[1], y[0], y[1], matches_.variances[row]};
    for (int k = 0; k < 5; ++k) values_[k * stride_ + i] = values[k];
  }
  factors_.assign(stride_, 0.0);
  std::fill(factors_.begin(), factors_.begin() + (i64)count, 1.0);
  ones_ = factors_;
  correlation_ = 0;
  cells_.clear();
}

FitTask Adjustment::task_of(const Model &model) const {
  return {is_planar(kind_), model.of_residuals(model.matrix()), values_.data(), factors_.data(), (i64)rows_.size(),
          (i64)stride_,     matches_.scale};
}

Noise Adjustment::next_noise(const Noise &noise, const FitSums &sums) const {
  // At least a quarter of the coordinates remain, so that few matches have a finite variance.
  const double coordinates = noise_.dimensions * sums.correct;
  const double free = std::max(coordinates - noise_.parameters, coordinates / 4) + 1e-300;
  return {std::min(std::max(noise.sigma * std::sqrt(sums.squared / free), noise_.min_sigma), noise_.max_sigma),
          std::min(std::max(sums.correct / (sums.all + 1e-300), noise_.min_share), noise_.max_share)};
}

double Adjustment::likelihood(const Model &model, int steps, Noise &noise) {
  FitTask task = task_of(model);
  task.factors = ones_.data();
  FitSums sums;
  for (int step = 0;; ++step) {
    kernels().sum_fit(task, noise_, noise, {}, sums);
    if (step == steps) return sums.likelihood;
    noise = next_noise(noise, sums);
  }
}

// Writes the Hessian and the gradient by the parameters of the model; returns their number. Parameters that the matches
// do not determine get a small second derivative.
int Adjustment::write_equations(const Model &model, const FitSums &sums, double *hessian, double *gradient) const {
  const int n = model.parameters();
  Entries changes[ENTRIES];
  for (int i = 0; i < n; ++i) changes[i] = model.of_residuals(model.change(i));
  double trace = 0;
  for (int i = 0; i < n; ++i) {
    double product[ENTRIES] = {};
    gradient[i] = 0;
    for (int k = 0; k < ENTRIES; ++k) {
      gradient[i] += changes[i][k] * sums.gradient[k];
      for (int j = 0; j < ENTRIES; ++j) product[j] += changes[i][k] * sums.hessian[ENTRIES * k + j];
    }
    for (int j = 0; j < n; ++j) {
      hessian[n * i + j] = 0;
      for (int k = 0; k < ENTRIES; ++k) hessian[n * i + j] += product[k] * changes[j][k];
    }
    trace += hessian[n * i + i];
  }
  for (int i = 0; i < n; ++i) hessian[n * i + i] += constants_.ridge * trace;
  return n;
}

bool Adjustment::move(Model &model, Noise &noise) {
  FitSums sums;
  kernels().sum_fit(task_of(model), noise_, noise, {true, false, correlation_}, sums);
  noise = next_noise(noise, sums);
  double hessian[ENTRIES * ENTRIES], step[ENTRIES];
  const int n = write_equations(model, sums, hessian, step);
  if (!solve(hessian, step, n)) return false;
  const double length = length_of(step, n);
  if (!std::isfinite(length)) return false;
  for (int i = 0; i < n; ++i) step[i] *= -std::min(1.0, constants_.max_step / std::max(length, 1e-300));
  model.move(step);
  return length >= constants_.tolerance;
}

// Numbers the cells of each match in two grids per image, offset by half a cell.
void Adjustment::number_cells() {
  const std::size_t count = rows_.size(), side = (std::size_t)constants_.cells + 2;
  cells_.resize(GRIDS * count);
  for (std::size_t grid = 0; grid < GRIDS; ++grid) {
    const double *x = values_.data() + grid / 2 * 2 * stride_, *y = x + stride_, offset = grid % 2 * 0.5;
    const auto [left, right] = std::minmax_element(x, x + count);
    const auto [top, bottom] = std::minmax_element(y, y + count);
    const double factor = (double)constants_.cells / std::max({*right - *left, *bottom - *top, 1e-12});
    for (std::size_t i = 0; i < count; ++i)
      cells_[grid * count + i] =
          (int)((x[i] - *left) * factor + offset) + (int)side * (int)((y[i] - *top) * factor + offset);
  }
}

void Adjustment::decorrelate(const Model &model, const Noise &noise) {
  FitTask task = task_of(model);
  task.factors = ones_.data();
  const std::size_t count = rows_.size(), side = (std::size_t)constants_.cells + 2;
  if (cells_.empty()) number_cells();
  // Sums over matches of a cell: their number, weighted residuals, and the squares of these.
  struct Sums {
    double number, u, v, squares;

    void operator+=(const Sums &o) { number += o.number, u += o.u, v += o.v, squares += o.squares; }
  };
  std::vector<double> weights(stride_), errors(2 * stride_), around(count);
  std::vector<Sums> each(count), cells(side * side);
  FitSums sums;
  kernels().sum_fit(task, noise_, noise, {false, false, 0, weights.data(), errors.data()}, sums);
  Sums total{};
  for (std::size_t i = 0; i < count; ++i) {
    const double variance = noise.sigma * noise.sigma + values_[4 * stride_ + i];
    const double u = errors[i], v = errors[stride_ + i];
    each[i] = {std::min(weights[i] * variance, 1.0), u, v, u * u + v * v};
    total += each[i];
  }
  double pairs = 0, products = 0;
  for (const int *cell = cells_.data(); cell < cells_.data() + cells_.size(); cell += count) {
    std::fill(cells.begin(), cells.end(), Sums{});
    for (std::size_t i = 0; i < count; ++i) cells[cell[i]] += each[i];
    for (const Sums &c : cells) {
      if (c.number < 2) continue;
      pairs += c.number - 1;  // times the number of matches, by which both are divided
      products += (c.u * c.u + c.v * c.v - c.squares) / c.number;
    }
    for (std::size_t i = 0; i < count; ++i) around[i] += cells[cell[i]].number / GRIDS;
  }
  const double correlation = pairs > 0 && total.squares > 0 ? products / pairs / (total.squares / total.number) : 0;
  correlation_ = constants_.correlation * std::min(std::max(correlation, 0.0), 1.0);
  for (std::size_t i = 0; i < count; ++i) factors_[i] = 1 / (1 + correlation_ * std::max(around[i] - 1, 0.0));
}

bool Adjustment::write_covariance(const Model &model, const Noise &noise, double *covariance) {
  // Each correct match has the variance of all: weights that depend on its residual would promise too much.
  FitSums sums;
  kernels().sum_fit(task_of(model), noise_, noise, {true, true}, sums);
  const double coordinates = noise_.dimensions * (double)rows_.size();
  const double free = std::max(1 - noise_.parameters / coordinates, 0.25);
  const double exact = 1e-6;  // the variance of exact matches
  const double mean = std::max(sums.squared / (noise_.dimensions * sums.correct * free + 1e-300), exact);
  double hessian[ENTRIES * ENTRIES], gradient[ENTRIES], solved[ENTRIES * ENTRIES], trace = 0;
  const int n = write_equations(model, sums, hessian, gradient);
  for (int i = 0; i < n; ++i) trace += hessian[(n + 1) * i];
  const Entries matrix = model.matrix();
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      if (kind_ == Kind::homography) hessian[n * i + j] += trace * matrix[i] * matrix[j];  // it is defined up to scale
      hessian[n * i + j] *= matches_.scale * matches_.scale / mean;
    }
  Entries changes[ENTRIES];
  for (int i = 0; i < n; ++i) {
    changes[i] = model.change(i);
    std::copy(changes[i].begin(), changes[i].end(), solved + ENTRIES * i);
  }
  if (!solve(hessian, solved, n, ENTRIES)) return false;
  for (int j = 0; j < ENTRIES; ++j)
    for (int k = 0; k < ENTRIES; ++k) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += changes[i][j] * solved[ENTRIES * i + k];
      covariance[ENTRIES * j + k] = sum;
      if (!std::isfinite(sum)) return false;
    }
  return true;
}

}  // namespace caloric
