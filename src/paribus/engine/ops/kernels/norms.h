// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019) of rows, and their gradients.
//
// Each row is computed alone. Arithmetic is float32; what is read and written is float32 or
// bfloat16.
// Axes: N rows, D numbers of each.

#pragma once

#include "vectors.h"

namespace {

// x_hat = (x - mean) * inverse; of RMSNorm the mean is 0. y = x_hat gain + bias, either may be null.
template <typename X, typename Y>
void norm_rows(const X* x, const float* gain, const float* bias, float eps, bool centred, int64_t N,
             int64_t D, Y* y, float* stats) {
  for (int64_t row = 0; row < N; ++row, x += D, y += D, stats += 2) {
    Vec total{};
    float mean = 0.0f;
    if (centred) {
      for_lanes(D, [&](int64_t i, int64_t n) { total += get(x + i, n); });
      mean = sum(total) / static_cast<float>(D);
    }
    Vec squares{};
    for_lanes(D, [&](int64_t i, int64_t n) {
      Vec away = get(x + i, n) - mean;
      if (n < LANES) away = first(away, n);
      squares += away * away;
    });
    const float inverse = 1.0f / std::sqrt(sum(squares) / static_cast<float>(D) + eps);
    stats[0] = mean;
    stats[1] = inverse;
    for_lanes(D, [&](int64_t i, int64_t n) {
      Vec out = (get(x + i, n) - mean) * inverse;
      if (gain) out *= get(gain + i, n);
      if (bias) out += get(bias + i, n);
      put(y + i, out, n);
    });
  }
}

// With a = dy gain: the gradient is (a - mean(a) - x_hat mean(a x_hat)) inverse, without mean(a) where
// nothing was centred. dx is that, plus `given` where it is not null; `lower`, where it is not null,
// is dx as bfloat16. dgain and dbias grow by the sums of dy x_hat and dy over rows.
template <typename DY>
void norm_rows_back(const DY* dy, const float* x, const float* gain, const float* stats,
                    bool centred, int64_t N, int64_t D, const float* given, float* dx,
                    Bfloat16* lower, float* dgain, float* dbias) {
  for (int64_t row = 0; row < N; ++row, dy += D, x += D, dx += D, stats += 2) {
    const float mean = stats[0], inverse = stats[1];
    Vec ones{}, along{};
    for_lanes(D, [&](int64_t i, int64_t n) {
      const Vec slope = get(dy + i, n);
      const Vec hat = (get(x + i, n) - mean) * inverse;
      const Vec a = gain ? slope * get(gain + i, n) : slope;
      ones += a;
      along += a * hat;
      if (dgain) put(dgain + i, get(dgain + i, n) + slope * hat, n);
      if (dbias) put(dbias + i, get(dbias + i, n) + slope, n);
    });
    const float level = centred ? sum(ones) / static_cast<float>(D) : 0.0f;
    const float slope = sum(along) / static_cast<float>(D);
    for_lanes(D, [&](int64_t i, int64_t n) {
      const Vec hat = (get(x + i, n) - mean) * inverse;
      const Vec a = gain ? get(dy + i, n) * get(gain + i, n) : get(dy + i, n);
      Vec out = (a - level - hat * slope) * inverse;
      if (given) out = get(given + i, n) + rounded(out);
      put(dx + i, out, n);
      if (lower) put(lower + i, out, n);
    });
    if (given) given += D;
    if (lower) lower += D;
  }
}

}  // namespace
