// Norms as Python asks for them.

#include "norms.h"

extern "C" {

// lower: whether y is bfloat16; x is float32. stats: [N, 2], written.
void norm_forward(const float* x, const float* gain, const float* bias, float eps, bool centred,
                  int64_t N, int64_t D, void* y, bool lower, float* stats) {
  lower ? norm_rows(x, gain, bias, eps, centred, N, D, static_cast<Bfloat16*>(y), stats)
        : norm_rows(x, gain, bias, eps, centred, N, D, static_cast<float*>(y), stats);
}

// lower: whether dy is bfloat16. dgain and dbias may be null.
void norm_backward(const void* dy, bool lower, const float* x, const float* gain,
                   const float* stats, bool centred, int64_t N, int64_t D, float* dx, float* dgain,
                   float* dbias) {
  if (dgain) std::fill(dgain, dgain + D, 0.0f);
  if (dbias) std::fill(dbias, dbias + D, 0.0f);
  auto back = [&](auto* given) {
    norm_rows_back(given, x, gain, stats, centred, N, D, nullptr, dx, nullptr, dgain, dbias);
  };
  lower ? back(static_cast<const Bfloat16*>(dy)) : back(static_cast<const float*>(dy));
}

}
