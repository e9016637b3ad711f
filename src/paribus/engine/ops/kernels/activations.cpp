// Activations as Python asks for them.

#include "activations.h"

extern "C" {

// kind: 0 GELU, 1 GELU by tanh, 2 squared ReLU. lower: whether numbers are bfloat16. slope: of each
// number, or null.
void activation_forward(int kind, const void* x, void* slope, void* y, int64_t n, bool lower) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    forward_of<E>(kind, at<E>(x), at<E>(slope), at<E>(y), n);
  });
}

void activation_backward(const void* dy, const void* slope, void* dx, int64_t n, bool lower) {
  as(lower, [&](auto e) {
    using E = decltype(e);
    backward_of<E>(at<E>(dy), at<E>(slope), at<E>(dx), n);
  });
}

// x: gate, up, y.
void gated_forward(void* const* x, int64_t n, bool lower) {
  if (lower) {
    auto of = reinterpret_cast<Bfloat16* const*>(x);
    gated(of[0], of[1], of[2], n);
  } else {
    auto of = reinterpret_cast<float* const*>(x);
    gated(of[0], of[1], of[2], n);
  }
}

// x: dy, gate, up, dgate, dup.
void gated_backward(void* const* x, int64_t n, bool lower) {
  if (lower) {
    auto of = reinterpret_cast<Bfloat16* const*>(x);
    gated_back(of[0], of[1], of[2], of[3], of[4], n);
  } else {
    auto of = reinterpret_cast<float* const*>(x);
    gated_back(of[0], of[1], of[2], of[3], of[4], n);
  }
}

}
