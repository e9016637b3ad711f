// Products of float32 matrices that are tall, as those of a linear map: of N rows with a weight, and
// of the gradient of N rows with their inputs.
//
// Every number of a result is summed in one order, whatever else is in the matrix. MKL chooses a
// kernel without AVX-512 on processors of other makers, and repacks what fits into the cache anyway.
// Axes: N rows, K inputs, M outputs.

#include "vectors.h"

namespace {

constexpr int HIGH = 12, WIDE = 2 * LANES;  // of a tile, whose sums are registers: 24 of 32
constexpr int64_t CHUNK = 256;              // rows whose products with others are in the cache

// acc[r, :] = sum_k a[r * row + k * step] b[k, :] for R rows and WIDE columns.
template <int R>
inline void tile(const float* a, int64_t row, int64_t step, const float* b, int64_t K,
                 Vec (&acc)[R][2]) {
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = Vec{};
  for (int64_t k = 0; k < K; ++k) {
    const Vec b0 = load(b + k * WIDE), b1 = load(b + k * WIDE + LANES);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vec x = all(a[r * row + k * step]);
      acc[r][0] += x * b0;
      acc[r][1] += x * b1;
    }
  }
}

inline int64_t panels(int64_t M) { return (M + WIDE - 1) / WIDE * WIDE; }

// w [K, M] as panels [K, WIDE], one after the other, with zeros beside the last.
void pack(const float* w, int64_t K, int64_t M, float* out) {
  for (int64_t j = 0; j < M; j += LANES) {
    const int64_t n = std::min<int64_t>(LANES, M - j);
    float* to = out + j / WIDE * WIDE * K + j % WIDE;
    for (int64_t k = 0; k < K; ++k) store(to + k * WIDE, get(w + k * M + j, n));
  }
}

// The same of w [M, K]; four at once, of which each is read along.
void pack_turned(const float* w, int64_t K, int64_t M, float* out) {
  constexpr int64_t DEEP = 64;
  for (int64_t j = 0; j < M; j += 4) {
    const int64_t n = std::min<int64_t>(4, M - j);
    float* to = out + j / WIDE * WIDE * K + j % WIDE;
    for (int64_t from = 0; from < K; from += DEEP)
      for (int64_t k = from; k < std::min(K, from + DEEP); ++k)
        for (int64_t c = 0; c < n; ++c) to[k * WIDE + c] = w[(j + c) * K + k];
  }
}

// R rows of x times all panels.
template <int R>
void times(const float* x, const float* packed, const float* bias, int64_t K, int64_t M, float* y) {
  for (int64_t j = 0; j < M; j += WIDE) {
    Vec acc[R][2];
    tile<R>(x, K, 1, packed + j * K, K, acc);
    for (int c = 0; c < 2 && j + c * LANES < M; ++c) {
      const int64_t at = j + c * LANES, n = std::min<int64_t>(LANES, M - at);
      const Vec more = bias ? get(bias + at, n) : Vec{};
      for (int r = 0; r < R; ++r) put(y + r * M + at, acc[r][c] + more, n);
    }
  }
}

}  // namespace

extern "C" {

// Whether these products were measured to be faster than a library's where this is compiled.
bool products_pay() {
#if defined(__AVX512F__)
  return true;
#else
  return false;
#endif
}

// y [N, M] = x [N, K] w + bias, which may be null. w: [K, M], or [M, K] where it is `turned`.
void products_rows(const float* x, const float* w, bool turned, const float* bias, int64_t N,
                   int64_t K, int64_t M, float* y) {
  const Buffer packed = buffer(panels(M) * K);
  if (turned && M % WIDE) std::memset(packed.get(), 0, panels(M) * K * sizeof(float));
  (turned ? pack_turned : pack)(w, K, M, packed.get());
  int64_t i = 0;
  for (; i + HIGH <= N; i += HIGH) times<HIGH>(x + i * K, packed.get(), bias, K, M, y + i * M);
  for (; i + 4 <= N; i += 4) times<4>(x + i * K, packed.get(), bias, K, M, y + i * M);
  for (; i < N; ++i) times<1>(x + i * K, packed.get(), bias, K, M, y + i * M);
}

// dw [M, K] = dy [N, M]^T x [N, K]; dbias [M], which may be null, the sum of each column of dy.
void products_columns(const float* dy, const float* x, int64_t N, int64_t K, int64_t M, float* dw,
                      float* dbias) {
  const int64_t high = (M + HIGH - 1) / HIGH * HIGH;
  const Buffer X = buffer(panels(K) * CHUNK), DY = buffer(high * CHUNK);
  std::memset(X.get(), 0, panels(K) * CHUNK * sizeof(float));
  std::memset(DY.get(), 0, high * CHUNK * sizeof(float));
  if (dbias) std::fill(dbias, dbias + M, 0.0f);
  for (int64_t from = 0; from < N; from += CHUNK) {
    const int64_t rows = std::min(CHUNK, N - from);
    for (int64_t n = 0; n < rows; ++n) {
      const float *along = x + (from + n) * K, *given = dy + (from + n) * M;
      for_lanes(K, [&](int64_t k, int64_t count) {
        store(X.get() + k / WIDE * WIDE * CHUNK + n * WIDE + k % WIDE, get(along + k, count));
      });
      int64_t m = 0;
      for (; m + HIGH <= M; m += HIGH)
        std::memcpy(DY.get() + m * CHUNK + n * HIGH, given + m, HIGH * sizeof(float));
      std::memcpy(DY.get() + m * CHUNK + n * HIGH, given + m, (M - m) * sizeof(float));
      if (dbias)
        for_lanes(M, [&](int64_t j, int64_t count) {
          put(dbias + j, get(dbias + j, count) + get(given + j, count), count);
        });
    }
    for (int64_t m = 0; m < M; m += HIGH)
      for (int64_t k = 0; k < K; k += WIDE) {
        Vec acc[HIGH][2];
        tile<HIGH>(DY.get() + m * CHUNK, 1, HIGH, X.get() + k * CHUNK, rows, acc);
        for (int64_t r = 0; r < std::min<int64_t>(HIGH, M - m); ++r)
          for (int c = 0; c < 2 && k + c * LANES < K; ++c) {
            const int64_t at = k + c * LANES, count = std::min<int64_t>(LANES, K - at);
            float* to = dw + (m + r) * K + at;
            put(to, from ? get(to, count) + acc[r][c] : acc[r][c], count);
          }
      }
  }
}

}
