// Activations as Python asks for them.

#include "activations.h"

extern "C" {

// kind: 0 GELU, 1 GELU by tanh, 2 squared ReLU. lower: whether numbers are bfloat16.
void activation_forward(int kind, const void* x, void* y, int64_t n, bool lower) {
  lower ? forward_of<Bfloat16>(kind, x, y, n) : forward_of<float>(kind, x, y, n);
}

void activation_backward(int kind, const void* dy, const void* x, void* dx, int64_t n, bool lower) {
  lower ? backward_of<Bfloat16>(kind, dy, x, dx, n) : backward_of<float>(kind, dy, x, dx, n);
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
