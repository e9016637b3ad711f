// Sums of a matrix over its rows.

#include "vectors.h"

namespace {

constexpr int WIDE = 8;  // vectors of columns that are summed at once

template <typename E>
void column_sums(const E* x, int64_t N, int64_t M, float* out) {
  int64_t j = 0;
  for (; j + WIDE * LANES <= M; j += WIDE * LANES) {
    Vec total[WIDE] = {};
    for (int64_t row = 0; row < N; ++row)
      for (int w = 0; w < WIDE; ++w) total[w] += load(x + row * M + j + w * LANES);
    for (int w = 0; w < WIDE; ++w) store(out + j + w * LANES, total[w]);
  }
  for (; j < M; j += LANES) {
    const int64_t n = std::min<int64_t>(LANES, M - j);
    Vec total{};
    for (int64_t row = 0; row < N; ++row) total += get(x + row * M + j, n);
    put(out + j, total, n);
  }
}

}  // namespace

extern "C" {

// out [M]: the sum of each column of x [N, M], float32 or bfloat16 (`lower`).
void sums_columns(const void* x, bool lower, int64_t N, int64_t M, float* out) {
  lower ? column_sums(static_cast<const Bfloat16*>(x), N, M, out)
        : column_sums(static_cast<const float*>(x), N, M, out);
}

}
