// Products of matrices that are tall, as those of a linear map: of N rows with a weight, and of the
// gradient of N rows with their inputs.
//
// Every number of a result is summed in one order, whatever else is in the matrix; the sums are
// float32. What is multiplied are units: a float32, or two bfloat16 that lie one after the other.
// Axes: N rows, K inputs, M outputs.

#pragma once

#include "tiles.h"
#include "units.h"

namespace {

// acc[r, :] = sum_k a[r * row + k * step] b[k, :] for R rows, K units and WIDE columns.
template <typename E, int R>
inline void tile(const Unit<E>* a, int64_t row, int64_t step, const Unit<E>* b, int64_t K,
                 Vec (&acc)[R][2]) {
  Vec sum[R][2] = {};  // its own: what others see would be written at every k
  for (int64_t k = 0; k < K; ++k) {
    const auto b0 = Units<E>::some(b + k * WIDE), b1 = Units<E>::some(b + k * WIDE + LANES);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const auto x = Units<E>::all_of(a[r * row + k * step]);
      sum[r][0] = Units<E>::add(sum[r][0], x, b0);
      sum[r][1] = Units<E>::add(sum[r][1], x, b1);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    acc[r][0] = sum[r][0];
    acc[r][1] = sum[r][1];
  }
}

// R rows of x times all panels, plus the bias.
template <typename E, int R>
void times(const E* x, const Unit<E>* packed, const float* bias, int64_t K, int64_t M, E* y) {
  const int64_t units = K / Units<E>::DEEP;
  for (int64_t j = 0; j < M; j += WIDE) {
    Vec acc[R][2];
    tile<E, R>(reinterpret_cast<const Unit<E>*>(x), units, 1, packed + j * units, units, acc);
    if (j + WIDE <= M) {
      const Vec low = bias ? load(bias + j) : Vec{}, high = bias ? load(bias + j + LANES) : Vec{};
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) store(y + r * M + j, acc[r][0] + low, acc[r][1] + high);
      continue;
    }
    for (int c = 0; c < 2 && j + c * LANES < M; ++c) {
      const int64_t at = j + c * LANES, n = std::min<int64_t>(LANES, M - at);
      const Vec more = bias ? get(bias + at, n) : Vec{};
      for (int r = 0; r < R; ++r) put(y + r * M + at, acc[r][c] + more, n);
    }
  }
}

// The same of all N rows. then(i, R, y of row i) is called while those R rows are in the nearest
// cache; where `out` is null, nobody else sees them.
template <typename E, typename Then>
void all_rows(const E* x, const Unit<E>* packed, const float* bias, const Sizes& size, E* out,
              Then then) {
  const int64_t N = size.N, K = size.K, M = size.M;
  const Buffer few = buffer(HIGH * M);
  const auto part = [&](auto rows, int64_t i) {
    E* y = out ? out + i * M : reinterpret_cast<E*>(few.get());
    times<E, rows>(x + i * K, packed, bias, K, M, y);
    then(i, int64_t{rows}, y);
  };
  int64_t i = 0;
  for (; i + HIGH <= N; i += HIGH) part(std::integral_constant<int, HIGH>{}, i);
  for (; i + 4 <= N; i += 4) part(std::integral_constant<int, 4>{}, i);
  for (; i < N; ++i) part(std::integral_constant<int, 1>{}, i);
}

// y [N, M] = x [N, K] w + bias, which may be null. w: [K, M], or [M, K] where it is `turned`; K is
// even in bfloat16. For `out` and `then` see `all_rows`.
template <typename E, typename Then>
void products(const E* x, const float* w, bool turned, const float* bias, const Sizes& size, E* out,
              Then then) {
  const Place<E> packed(panels(size.M) * deep<E>(size.K));
  (turned ? pack_turned<E> : pack<E>)(w, size.K, size.M, packed.get());
  all_rows(x, packed.get(), bias, size, out, then);
}

// Two rows of x, or one and zeros, as units: f(place, how many, those units).
template <typename E, typename F>
inline void for_units(const E* x, int64_t width, bool two, F f) {
  for_lanes(width, [&](int64_t i, int64_t n) {
    if (i % (64 / sizeof(E)) == 0)
      for (int64_t r = 0; r < Units<E>::DEEP; ++r) __builtin_prefetch(x + (AHEAD + r) * width + i);
    if constexpr (Units<E>::DEEP == 2)
      if (two && n == LANES) return f(i, n, Units<E>::joined(x + i, x + width + i));
    f(i, n, Units<E>::joined(get(x + i, n), two ? get(x + width + i, n) : Vec{}));
  });
}

// Rows as units, to panels of WIDE columns and to tiles of HIGH, of which each has its place: a little
// more than it needs, as places whose distance is a power of two share few lines of a cache.
constexpr int64_t PANEL = CHUNK * WIDE + LANES;
template <typename E>
constexpr int64_t TILE = TILED<E> ? WIDE * TURNED : CHUNK * HIGH + LANES;

template <typename E>
ALONE void to_panels(const E* x, int64_t rows, int64_t width, Unit<E>* out) {
  int64_t u = 0;
  for (int64_t n = 0; n < rows; n += Units<E>::DEEP, ++u)
    for_units(x + n * width, width, n + 1 < rows, [&](int64_t k, int64_t, auto both) {
      std::memcpy(out + k / WIDE * PANEL + u * WIDE + k % WIDE, &both, sizeof both);
    });
  for (; u < deep<E>(rows); ++u)
    for (int64_t k = 0; k < width; k += WIDE)
      std::fill_n(out + k / WIDE * PANEL + u * WIDE, int64_t{WIDE}, Unit<E>{});
}

// sums, which may be null, grow by each column's.
template <typename E>
ALONE void to_tiles(const E* x, int64_t rows, int64_t width, Unit<E>* out, float* sums) {
  const Place<E> row(width + HIGH + LANES);
  for (int64_t n = 0, u = 0; n < rows; n += Units<E>::DEEP, ++u) {
    for_units(x + n * width, width, n + 1 < rows, [&](int64_t m, int64_t count, auto both) {
      std::memcpy(row.get() + m, &both, sizeof both);
      if (sums) put(sums + m, Units<E>::plus(get(sums + m, count), both), count);
    });
    for (int64_t m = 0; m < width; m += HIGH)
      std::memcpy(out + m / HIGH * TILE<E> + u * HIGH, row.get() + m, HIGH * sizeof(Unit<E>));
  }
}

// Sums of the products of a tile and a panel.
template <typename E>
inline void tile_of_columns(E, const Unit<E>* tile_of_dy, const Unit<E>* panel, int64_t units,
                            Vec (&acc)[HIGH][2]) {
  tile<E, HIGH>(tile_of_dy, 1, HIGH, panel, units, acc);
}

// dw [M, K] = dy [N, M]^T x [N, K]; dbias [M], which may be null, the sum of each column of dy.
template <typename E>
void products_of_columns(const E* dy, const E* x, const Sizes& size, float* dw, float* dbias) {
  constexpr int64_t R = ROWS<E>;
  const int64_t N = size.N, K = size.K, M = size.M;
  const Place<E> X((K + WIDE - 1) / WIDE * PANEL), DY((M + R - 1) / R * TILE<E>);
  if (dbias) std::fill(dbias, dbias + M, 0.0f);
  for (int64_t from = 0; from < N; from += CHUNK * Units<E>::DEEP) {
    const int64_t rows = std::min(CHUNK * Units<E>::DEEP, N - from);
    to_panels(x + from * K, rows, K, X.get());
    to_tiles(dy + from * M, rows, M, DY.get(), dbias);
    [[maybe_unused]] const Tiles<E> tiles;
    for (int64_t m = 0; m < M; m += R)
      for (int64_t k = 0; k < K; k += WIDE) {
        Vec acc[R][2];
        tile_of_columns(E{}, DY.get() + m / R * TILE<E>, X.get() + k / WIDE * PANEL, deep<E>(rows),
                        acc);
        for (int64_t r = 0; r < std::min(R, M - m); ++r)
          for (int c = 0; c < 2 && k + c * LANES < K; ++c) {
            const int64_t at = k + c * LANES, count = std::min<int64_t>(LANES, K - at);
            float* to = dw + (m + r) * K + at;
            put(to, from ? get(to, count) + acc[r][c] : acc[r][c], count);
          }
      }
  }
}

}  // namespace
