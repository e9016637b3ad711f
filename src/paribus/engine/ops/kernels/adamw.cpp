// A step of AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019) in one pass over rows of weights.
// Axes: R rows, n numbers of each, `row` numbers apart.

#include "vectors.h"

namespace {

inline Vec root(Vec x) {
  for (int i = 0; i < LANES; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

}  // namespace

extern "C" {

// x: weights, gradients, first and second moments, with the distance of two rows of each; rates
// [R]. t: the step, from 0. weights -= rate (m / c1) / (sqrt(v / c2) + eps), c = 1 - beta^(t + 1).
void adamw_step(float* const* x, const int64_t* rows, const float* rates, const int64_t* t,
                const double* betas, float eps, int64_t R, int64_t count) {
  const double steps = static_cast<double>(*t) + 1.0;
  const float c1 = static_cast<float>(1.0 - std::pow(betas[0], steps));
  const float c2 = static_cast<float>(1.0 - std::pow(betas[1], steps));
  const float keep1 = static_cast<float>(betas[0]), keep2 = static_cast<float>(betas[1]),
              more1 = static_cast<float>(1.0 - betas[0]), more2 = static_cast<float>(1.0 - betas[1]);
  for (int64_t r = 0; r < R; ++r) {
    float *w = x[0] + r * rows[0], *m = x[2] + r * rows[2], *v = x[3] + r * rows[3];
    const float *g = x[1] + r * rows[1], rate = rates[r] / c1;
    for_lanes(count, [&](int64_t i, int64_t n) {
      const Vec gradient = get(g + i, n);
      Vec mean = get(m + i, n), square = get(v + i, n);
      // From the end that is nearer, as PyTorch's lerp: with a beta of 0 the gradient itself.
      if (more1 < 0.5f) mean += more1 * (gradient - mean);
      else mean = gradient - keep1 * (gradient - mean);
      square = keep2 * square + more2 * gradient * gradient;
      put(m + i, mean, n);
      put(v + i, square, n);
      put(w + i, get(w + i, n) - rate * mean / (root(square / c2) + eps), n);
    });
  }
}

}
