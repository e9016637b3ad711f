// Activations of an MLP and their gradients, number by number, in float32; what is read and written
// is float32 or bfloat16.

#pragma once

#include "vectors.h"

namespace {

struct Both { Vec value, slope; };

inline Vec absolute(Vec x) { return x < Vec{} ? -x : x; }

// 1 / (1 + e^-x), without overflow.
inline Vec sigmoid(Vec x) {
  const Vec e = exponential(-absolute(x));
  const Vec low = e / (1.0f + e);
  return x < Vec{} ? low : 1.0f - low;
}

// x Phi(x). Phi by Abramowitz & Stegun 1964, 7.1.26: 2 Phi(-|x|) = erfc(|x| / sqrt(2)) to 1.5e-7.
struct Gelu {
  static Both at(Vec x) {
    const Vec e = exponential(-0.5f * x * x);
    const Vec t = 1.0f / (1.0f + 0.3275911f * 0.70710678118654752f * absolute(x));
    Vec p = all(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Vec tail = 0.5f * p * t * e;
    const Vec phi = x < Vec{} ? tail : 1.0f - tail;
    return {x * phi, phi + 0.39894228040143268f * x * e};
  }
};

// x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3): 0.5 (1 + tanh u) is sigmoid(2 u).
struct TanhGelu {
  static Both at(Vec x) {
    constexpr float root = 0.79788456080286536f, cube = 0.044715f;
    const Vec s = sigmoid(2.0f * root * (x + cube * x * x * x));
    const Vec inner = 2.0f * root * (1.0f + 3.0f * cube * x * x);
    return {x * s, s + x * s * (1.0f - s) * inner};
  }
};

struct SquaredRelu {
  static Both at(Vec x) {
    const Vec positive = x > Vec{} ? x : (x == x ? Vec{} : x);
    return {positive * positive, 2.0f * positive};
  }
};

struct Silu {
  static Both at(Vec x) {
    const Vec s = sigmoid(x);
    return {x * s, s + x * s * (1.0f - s)};
  }
};

// The activation of each number, and its slope there, which may be the place of x or null.
template <typename F, typename E>
void forward(const E* x, E* slope, E* y, int64_t count) {
  for_lanes(count, [&](int64_t i, int64_t n) {
    const Both found = F::at(get(x + i, n));
    if (slope) put(slope + i, found.slope, n);
    put(y + i, found.value, n);
  });
}

// silu(gate) up.
template <typename E>
void gated(const E* gate, const E* up, E* y, int64_t count) {
  for_lanes(count, [&](int64_t i, int64_t n) {
    put(y + i, Silu::at(get(gate + i, n)).value * get(up + i, n), n);
  });
}

template <typename E>
void gated_back(const E* dy, const E* gate, const E* up, E* dgate, E* dup, int64_t count) {
  for_lanes(count, [&](int64_t i, int64_t n) {
    const Both s = Silu::at(get(gate + i, n));
    const Vec given = get(dy + i, n);
    put(dgate + i, given * get(up + i, n) * s.slope, n);
    put(dup + i, given * s.value, n);
  });
}

template <typename E>
void forward_of(int kind, const E* x, E* slope, E* y, int64_t n) {
  if (kind == 0) forward<Gelu>(x, slope, y, n);
  if (kind == 1) forward<TanhGelu>(x, slope, y, n);
  if (kind == 2) forward<SquaredRelu>(x, slope, y, n);
}

// dx = dy times the slope, which may be the place of dx.
template <typename E>
void backward_of(const E* dy, const E* slope, E* dx, int64_t count) {
  for_lanes(count, [&](int64_t i, int64_t n) {
    put(dx + i, get(dy + i, n) * get(slope + i, n), n);
  });
}

}  // namespace
