// Residuals of two-view geometries and the normal equations of their fits; the same for all builds.
#include <algorithm>
#include <cmath>

#include "kernels.hpp"

namespace caloric {
namespace {

constexpr double EPSILON = 1e-12, TINY = 1e-300;
const double PI = std::acos(-1.0);

// The residual of a match with a homography, mapped - y, in the metric (a, b; b, c).
struct PlaneResidual {
  double inverse_depth, u, v, ru, rv, a, b, c;

  PlaneResidual(const double *h, const double *x, const double *y) {
    const double z = h[6] * x[0] + h[7] * x[1] + h[8];
    inverse_depth = 1 / (std::abs(z) > EPSILON ? z : EPSILON);
    u = (h[0] * x[0] + h[1] * x[1] + h[2]) * inverse_depth;
    v = (h[3] * x[0] + h[4] * x[1] + h[5]) * inverse_depth;
    ru = u - y[0];
    rv = v - y[1];
    const double xx = (h[0] - u * h[6]) * inverse_depth, xy = (h[1] - u * h[7]) * inverse_depth;
    const double yx = (h[3] - v * h[6]) * inverse_depth, yy = (h[4] - v * h[7]) * inverse_depth;
    const double p = 1 + xx * xx + xy * xy, q = xx * yx + xy * yy, r = 1 + yx * yx + yy * yy;
    const double factor = 2 / (p * r - q * q);
    a = factor * r;
    b = -factor * q;
    c = factor * p;
  }

  double square() const { return a * ru * ru + 2 * b * ru * rv + c * rv * rv; }
};

// Sums of the normal equations. The Hessian consists of 3 x 3 blocks, each the sum of a factor of the two rows of the
// homography times the products of the coordinates of a point.
class PlaneSums {
 public:
  void add(double weight, const PlaneResidual &residual, const double *x, const double *) {
    const double a = weight * residual.a, b = weight * residual.b, c = weight * residual.c;
    const double u = residual.u, v = residual.v, au = a * u + b * v, bv = b * u + c * v;
    const double gu = a * residual.ru + b * residual.rv, gv = b * residual.ru + c * residual.rv;
    const double t = residual.inverse_depth, r = x[0] * t, s = x[1] * t;
    const double factors[6] = {a, b, c, -au, -bv, au * u + bv * v}, slopes[3] = {gu, gv, -u * gu - v * gv};
    const double products[6] = {r * r, r * s, r * t, s * s, s * t, t * t}, ratio[3] = {r, s, t};
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) blocks_[6 * i + j] += factors[i] * products[j];
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) gradient_[3 * i + j] += slopes[i] * ratio[j];
  }

  void write(double *hessian, double *gradient) const {
    const int block[3][3] = {{0, 1, 3}, {1, 2, 4}, {3, 4, 5}}, product[3][3] = {{0, 1, 2}, {1, 3, 4}, {2, 4, 5}};
    for (int i = 0; i < 9; ++i)
      for (int j = 0; j < 9; ++j) hessian[9 * i + j] = blocks_[6 * block[i / 3][j / 3] + product[i % 3][j % 3]];
    std::copy(gradient_, gradient_ + 9, gradient);
  }

 private:
  double blocks_[36] = {}, gradient_[9] = {};
};

// Sampson's distance of a match from an epipolar geometry.
struct LineResidual {
  double b[3], a[3], inverse_length, distance;

  LineResidual(const double *f, const double *x, const double *y) {
    for (int i = 0; i < 3; ++i) {
      b[i] = f[3 * i] * x[0] + f[3 * i + 1] * x[1] + f[3 * i + 2];
      a[i] = f[i] * y[0] + f[3 + i] * y[1] + f[6 + i];
    }
    inverse_length = 1 / std::sqrt(std::max(b[0] * b[0] + b[1] * b[1] + a[0] * a[0] + a[1] * a[1], TINY));
    distance = (y[0] * b[0] + y[1] * b[1] + b[2]) * inverse_length;
  }

  double square() const { return distance * distance; }
};

class LineSums {
 public:
  void add(double weight, const LineResidual &residual, const double *x, const double *y) {
    const double p[3] = {x[0], x[1], 1}, q[3] = {y[0], y[1], 1}, ratio = residual.distance * residual.inverse_length;
    const double nb[3] = {residual.b[0], residual.b[1], 0}, na[3] = {residual.a[0], residual.a[1], 0};
    double slopes[9];
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        slopes[3 * i + j] = (q[i] * p[j] - ratio * (nb[i] * p[j] + q[i] * na[j])) * residual.inverse_length;
    for (int i = 0; i < 9; ++i) {
      const double factor = weight * slopes[i];
      gradient_[i] += factor * residual.distance;
      for (int j = i; j < 9; ++j) hessian_[9 * i + j] += factor * slopes[j];
    }
  }

  void write(double *hessian, double *gradient) const {
    for (int i = 0; i < 9; ++i)
      for (int j = 0; j < 9; ++j) hessian[9 * i + j] = hessian_[9 * std::min(i, j) + std::max(i, j)];
    std::copy(gradient_, gradient_ + 9, gradient);
  }

 private:
  double hessian_[81] = {}, gradient_[9] = {};
};

}  // namespace

void square_residuals(const Matches &matches, double *squares) {
  for (i64 m = 0; m < matches.count; ++m) {
    const double *x = matches.x + 2 * m, *y = matches.y + 2 * m;
    squares[m] =
        matches.planar ? PlaneResidual(matches.matrix, x, y).square() : LineResidual(matches.matrix, x, y).square();
  }
}

static Mixture fit_mixture(const std::vector<double> &squares, const LossConstants &loss, Mixture mixture) {
  const double k = loss.dimensions, window = loss.window;
  std::vector<double> near;
  for (const double square : squares)
    if (square < window * window) near.push_back(square);
  for (int step = 0; step < loss.mixture_steps; ++step) {
    const double relative = window / mixture.deviation, odds = mixture.share / (1 - mixture.share);
    const double peak = odds * (loss.dimensions == 2 ? 0.5 * relative * relative : std::sqrt(2 / PI) * relative);
    const double factor = -1 / (2 * mixture.deviation * mixture.deviation);
    double count = 0, sum = 0;
    for (const double square : near) {
      const double ratio = peak * std::exp(factor * square), correct = ratio / (1 + ratio);
      count += correct;
      sum += correct * square;
    }
    const double deviation = std::sqrt(sum / (k * count + TINY)), share = count / std::max<double>(near.size(), 1);
    mixture.deviation = std::min(std::max(deviation, loss.min_error), loss.max_error);
    mixture.share = std::min(std::max(share, loss.min_share), loss.max_share);
  }
  return mixture;
}

// Returns the number of matches with weight around each match: in its cells of two grids per image, at least 1.
static std::vector<double> densities(const Matches &matches, const std::vector<double> &weights, i64 cells) {
  std::vector<double> sums(matches.count);
  std::vector<i64> index(matches.count), counts((cells + 2) * (cells + 2));
  for (const double *points : {matches.x, matches.y}) {
    double low[2] = {points[0], points[1]}, high[2] = {points[0], points[1]};
    for (i64 m = 0; m < matches.count; ++m)
      for (int i = 0; i < 2; ++i) {
        low[i] = std::min(low[i], points[2 * m + i]);
        high[i] = std::max(high[i], points[2 * m + i]);
      }
    const double extent = std::max({high[0] - low[0], high[1] - low[1], EPSILON}), factor = (double)cells / extent;
    for (const double offset : {0.0, 0.5}) {
      std::fill(counts.begin(), counts.end(), 0);
      for (i64 m = 0; m < matches.count; ++m) {
        const i64 column = (i64)((points[2 * m] - low[0]) * factor + offset);
        const i64 row = (i64)((points[2 * m + 1] - low[1]) * factor + offset);
        index[m] = column + (cells + 2) * row;
        counts[index[m]] += weights[m] > 0;
      }
      for (i64 m = 0; m < matches.count; ++m) sums[m] += (double)counts[index[m]];
    }
  }
  for (double &sum : sums) sum = std::max(sum / 4, 1.0);
  return sums;
}

// Adds up the normal equations of matches with the given residuals.
template <typename Residual, typename Sums>
static Mixture weighted_sums(const EquationsTask &task, Mixture mixture, double *hessian, double *gradient) {
  const Matches &matches = task.matches;
  const LossConstants &loss = task.loss;
  std::vector<Residual> residuals;
  std::vector<double> squares(matches.count), weights(matches.count);
  residuals.reserve(matches.count);
  for (i64 m = 0; m < matches.count; ++m) {
    residuals.emplace_back(matches.matrix, matches.x + 2 * m, matches.y + 2 * m);
    squares[m] = task.scale * task.scale * residuals[m].square();
  }
  mixture = fit_mixture(squares, loss, mixture);
  for (i64 m = 0; m < matches.count; ++m) {
    const double total = mixture.deviation * mixture.deviation + task.variances[m];
    const double part = 1 - squares[m] / (loss.limit * loss.limit * total);
    weights[m] = part > 0 ? part * part / total : 0;
  }
  if (task.by_density) {
    const std::vector<double> density = densities(matches, weights, task.cells);
    for (i64 m = 0; m < matches.count; ++m) weights[m] /= density[m];
  }
  Sums sums;
  for (i64 m = 0; m < matches.count; ++m)
    if (weights[m] > 0) sums.add(weights[m], residuals[m], matches.x + 2 * m, matches.y + 2 * m);
  sums.write(hessian, gradient);
  return mixture;
}

Mixture normal_equations(const EquationsTask &task, Mixture mixture, double *hessian, double *gradient) {
  return task.matches.planar ? weighted_sums<PlaneResidual, PlaneSums>(task, mixture, hessian, gradient)
                             : weighted_sums<LineResidual, LineSums>(task, mixture, hessian, gradient);
}

}  // namespace caloric
