// Products of linear maps as Python asks for them, with what is done to each row before it leaves the
// cache. `lower` says that rows are bfloat16, and not float32; weights are float32, and rounded here.
// Axes: N rows, K inputs, M outputs.

#include "activations.h"
#include "norms.h"
#include "products.h"

extern "C" {

// Whether these products were measured to be faster than a library's where this is compiled: MKL
// has no AVX-512 for processors of other makers, and oneDNN's bfloat16 costs casts and a dispatch.
bool products_pay(bool lower) {
#if defined(HAS_AMX)
  return !lower || tiles_are_allowed();
#elif defined(__AVX512BF16__)
  return true;
#elif defined(__AVX512F__)
  return !lower;
#else
  return false;
#endif
}

// y [N, M] = x [N, K] w + bias, which may be null. w: [K, M], or [M, K] where it is `turned`.
void products_rows(bool lower, const Sizes* size, const void* x, const float* w, bool turned,
                   const float* bias, void* y) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    products<E>(at<E>(x), w, turned, bias, *size, at<E>(y), [](int64_t, int64_t, E*) {});
  });
}

// out [N, M] = given + (x w^T + bias), of which given and out are float32.
void products_residual(bool lower, const Sizes* size, const void* x, const float* w,
                       const float* bias, const float* given, float* out) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    const int64_t M = size->M;
    products<E>(at<E>(x), w, true, bias, *size, nullptr, [&](int64_t i, int64_t rows, E* y) {
      for_lanes(rows * M, [&](int64_t j, int64_t n) {
        put(out + i * M + j, get(given + i * M + j, n) + get(y + j, n), n);
      });
    });
  });
}

// The activation [N, M] of y = x w^T + bias, and its slopes at y, which may be null. kind: as
// `activation_forward`.
void products_activation(bool lower, const Sizes* size, const void* x, const float* w,
                         const float* bias, int kind, void* slope, void* activated) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    const int64_t M = size->M;
    products<E>(at<E>(x), w, true, bias, *size, nullptr, [&](int64_t i, int64_t rows, E* y) {
      E* slopes = slope ? at<E>(slope) + i * M : nullptr;
      forward_of<E>(kind, y, slopes, at<E>(activated) + i * M, rows * M);
    });
  });
}

// dx [N, M] = (dy w) times the slopes of an activation.
void products_activation_back(bool lower, const Sizes* size, const void* dy, const float* w,
                              const void* slope, void* dx) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    const int64_t M = size->M;
    products<E>(at<E>(dy), w, false, nullptr, *size, nullptr, [&](int64_t i, int64_t rows, E* of) {
      backward_of<E>(of, at<E>(slope) + i * M, at<E>(dx) + i * M, rows * M);
    });
  });
}

// dx [N, M] = given + the gradient of a norm by x, of (dy w) by what it gave; see `norm_backward`.
// given may be the place of dx. rounded: dx as bfloat16, or null.
void products_norm_back(bool lower, const Sizes* size, const void* dy, const float* w,
                        const float* x, const float* gain, const float* stats, bool centred,
                        const float* given, float* dx, float* dgain, float* dbias, void* rounded) {
  const int64_t M = size->M;
  if (dgain) std::fill(dgain, dgain + M, 0.0f);
  if (dbias) std::fill(dbias, dbias + M, 0.0f);
  as(lower, [&](auto e) {
    using E = decltype(e);
    products<E>(at<E>(dy), w, false, nullptr, *size, nullptr, [&](int64_t i, int64_t rows, E* of) {
      Bfloat16* lowered = rounded ? static_cast<Bfloat16*>(rounded) + i * M : nullptr;
      norm_rows_back(of, x + i * M, gain, stats + 2 * i, centred, rows, M, given + i * M, dx + i * M,
                     lowered, dgain, dbias);
    });
  });
}

// dw [M, K] = dy [N, M]^T x [N, K]; dbias [M], which may be null, the sum of each column of dy.
void products_columns(bool lower, const Sizes* size, const void* dy, const void* x, float* dw,
                      float* dbias) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    products_of_columns<E>(at<E>(dy), at<E>(x), *size, dw, dbias);
  });
}

}
