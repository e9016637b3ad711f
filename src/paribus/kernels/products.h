// Products of matrices that are tall, as those of a linear map: of N rows with a weight, and of the
// gradient of N rows with their inputs.
//
// Every number of a result is summed in one order, whatever else is in the matrix; the sums are
// float32. What is multiplied are units: a float32, or two bfloat16 that lie one after the other.
// Axes: N rows, K inputs, M outputs.

#pragma once

#include "vectors.h"

namespace {

constexpr int HIGH = 12, WIDE = 2 * LANES;  // of a tile, whose sums are registers: 24 of 32
constexpr int64_t CHUNK = 256;              // units whose products with others are in the cache

// Compiled by itself, so that what is beside it takes no register from a tile.
#define ALONE __attribute__((noinline))

constexpr int64_t AHEAD = 16;  // rows that are fetched before they are read

typedef uint32_t Long __attribute__((vector_size(4 * LANES)));

template <typename E>
struct Units;

template <>
struct Units<float> {
  typedef float Unit;
  typedef Vec Lanes;
  static constexpr int64_t DEEP = 1;  // numbers of a unit
  static Lanes some(const Unit* p) { return load(p); }
  static Lanes all_of(Unit x) { return all(x); }
  static Vec add(Vec sum, Lanes a, Lanes b) { return sum + a * b; }
  static Lanes joined(Vec x, Vec) { return x; }
  static Vec plus(Vec sum, Lanes x) { return sum + x; }  // all numbers of each unit
};

template <>
struct Units<Bfloat16> {
  typedef uint32_t Unit;
  static constexpr int64_t DEEP = 2;
#if defined(__AVX512BF16__)
  typedef __m512bh Lanes;
  static Lanes all_of(Unit x) { return (Lanes)_mm512_set1_epi32(static_cast<int>(x)); }
  static Vec add(Vec sum, Lanes a, Lanes b) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, a, b);
  }
#else
  typedef Long Lanes;
  static Lanes all_of(Unit x) { return x - Long{}; }
  static Vec add(Vec sum, Lanes a, Lanes b) {
    return sum + (Vec)(a & 0xffff0000u) * (Vec)(b & 0xffff0000u) + (Vec)(a << 16) * (Vec)(b << 16);
  }
#endif
  static Lanes some(const Unit* p) {
    Lanes v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static Vec plus(Vec sum, Long x) { return sum + (Vec)(x << 16) + (Vec)(x & 0xffff0000u); }
  // Two rows, rounded: of each lane the first number is below.
  static Long joined(Vec x, Vec y) {
    Bfloat16 rounded[2 * LANES];
    store(rounded, x);
    store(rounded + LANES, y);
    return joined(rounded, rounded + LANES);
  }
  static Long joined(const Bfloat16* x, const Bfloat16* y) {
    typedef uint16_t Short __attribute__((vector_size(2 * LANES)));
    Short low, high;
    std::memcpy(&low, x, sizeof low);
    std::memcpy(&high, y, sizeof high);
    return __builtin_convertvector(low, Long) | (__builtin_convertvector(high, Long) << 16);
  }
};

template <typename E>
using Unit = typename Units<E>::Unit;

inline int64_t panels(int64_t M) { return (M + WIDE - 1) / WIDE * WIDE; }

template <typename E>
inline int64_t deep(int64_t K) { return (K + Units<E>::DEEP - 1) / Units<E>::DEEP; }

// Place for `n` units. What nobody writes, beside the last panel or tile, is multiplied to numbers
// that nobody reads.
template <typename E>
struct Place {
  Buffer floats;
  explicit Place(int64_t n) : floats(buffer(n)) {}
  Unit<E>* get() const { return reinterpret_cast<Unit<E>*>(floats.get()); }
};

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

// w [K, M] as panels [K in units, WIDE], one after the other.
template <typename E>
void pack(const float* w, int64_t K, int64_t M, Unit<E>* out) {
  constexpr int64_t DEEP = Units<E>::DEEP;
  for (int64_t j = 0; j < M; j += LANES) {
    const int64_t n = std::min<int64_t>(LANES, M - j);
    Unit<E>* to = out + j / WIDE * WIDE * deep<E>(K) + j % WIDE;
    for (int64_t k = 0; k < K; k += DEEP) {
      const auto both = Units<E>::joined(get(w + k * M + j, n),
                                         k + 1 < K ? get(w + (k + 1) * M + j, n) : Vec{});
      std::memcpy(to + k / DEEP * WIDE, &both, sizeof both);
    }
  }
}

// The same of w [M, K]: rows are rounded, and four at once are read along.
template <typename E>
void pack_turned(const float* w, int64_t K, int64_t M, Unit<E>* out) {
  constexpr int64_t ROWS = 4;
  const int64_t units = deep<E>(K);
  const Place<E> place(ROWS * units);
  for (int64_t j = 0; j < M; j += ROWS) {
    const int64_t n = std::min(ROWS, M - j);
    for (int64_t c = 0; c < n; ++c) {
      E* row = reinterpret_cast<E*>(place.get() + c * units);
      for_lanes(K, [&](int64_t k, int64_t count) {
        put(row + k, get(w + (j + c) * K + k, count), count);
      });
    }
    Unit<E>* to = out + j / WIDE * WIDE * units + j % WIDE;
    for (int64_t k = 0; k < units; ++k)
      for (int64_t c = 0; c < n; ++c) to[k * WIDE + c] = place.get()[c * units + k];
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

struct Sizes {
  int64_t N, K, M;
};

// y [N, M] = x [N, K] w + bias, which may be null. w: [K, M], or [M, K] where it is `turned`; K is
// even in bfloat16. then(i, R, y of row i) is called while those R rows are in the nearest cache;
// where `out` is null, nobody else sees them.
template <typename E, typename Then>
void products(const E* x, const float* w, bool turned, const float* bias, const Sizes& size, E* out,
              Then then) {
  const auto [N, K, M] = size;
  const Place<E> packed(panels(M) * deep<E>(K));
  (turned ? pack_turned<E> : pack<E>)(w, K, M, packed.get());
  const Buffer few = buffer(HIGH * M);
  const auto part = [&](auto rows, int64_t i) {
    E* y = out ? out + i * M : reinterpret_cast<E*>(few.get());
    times<E, rows>(x + i * K, packed.get(), bias, K, M, y);
    then(i, int64_t{rows}, y);
  };
  int64_t i = 0;
  for (; i + HIGH <= N; i += HIGH) part(std::integral_constant<int, HIGH>{}, i);
  for (; i + 4 <= N; i += 4) part(std::integral_constant<int, 4>{}, i);
  for (; i < N; ++i) part(std::integral_constant<int, 1>{}, i);
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
constexpr int64_t PANEL = CHUNK * WIDE + LANES, TILE = CHUNK * HIGH + LANES;

template <typename E>
ALONE void to_panels(const E* x, int64_t rows, int64_t width, Unit<E>* out) {
  for (int64_t n = 0, u = 0; n < rows; n += Units<E>::DEEP, ++u)
    for_units(x + n * width, width, n + 1 < rows, [&](int64_t k, int64_t, auto both) {
      std::memcpy(out + k / WIDE * PANEL + u * WIDE + k % WIDE, &both, sizeof both);
    });
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
      std::memcpy(out + m / HIGH * TILE + u * HIGH, row.get() + m, HIGH * sizeof(Unit<E>));
  }
}

// dw [M, K] = dy [N, M]^T x [N, K]; dbias [M], which may be null, the sum of each column of dy.
template <typename E>
void products_of_columns(const E* dy, const E* x, const Sizes& size, float* dw, float* dbias) {
  const auto [N, K, M] = size;
  const Place<E> X((K + WIDE - 1) / WIDE * PANEL), DY((M + HIGH - 1) / HIGH * TILE);
  if (dbias) std::fill(dbias, dbias + M, 0.0f);
  for (int64_t from = 0; from < N; from += CHUNK * Units<E>::DEEP) {
    const int64_t rows = std::min(CHUNK * Units<E>::DEEP, N - from);
    to_panels(x + from * K, rows, K, X.get());
    to_tiles(dy + from * M, rows, M, DY.get(), dbias);
    for (int64_t m = 0; m < M; m += HIGH)
      for (int64_t k = 0; k < K; k += WIDE) {
        Vec acc[HIGH][2];
        tile<E, HIGH>(DY.get() + m / HIGH * TILE, 1, HIGH, X.get() + k / WIDE * PANEL,
                      deep<E>(rows), acc);
        for (int64_t r = 0; r < std::min<int64_t>(HIGH, M - m); ++r)
          for (int c = 0; c < 2 && k + c * LANES < K; ++c) {
            const int64_t at = k + c * LANES, count = std::min<int64_t>(LANES, K - at);
            float* to = dw + (m + r) * K + at;
            put(to, from ? get(to, count) + acc[r][c] : acc[r][c], count);
          }
      }
  }
}

}  // namespace
