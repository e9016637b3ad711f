// Numbers as products take them: units, which are a float32, or two bfloat16 that lie one after the
// other; and weights packed as such. Axes: N rows, K inputs, M outputs.

#pragma once

#include "vectors.h"

namespace {

constexpr int HIGH = 12, WIDE = 2 * LANES;  // of a tile, whose sums are registers: 24 of 32
constexpr int64_t CHUNK = 256;              // units whose products with others are in the cache

// Compiled by itself, so that what is beside it takes no register from a tile.
#define ALONE __attribute__((noinline))

constexpr int64_t AHEAD = 16;  // rows that are fetched before they are read

typedef uint32_t Long __attribute__((vector_size(4 * LANES)));

struct Sizes {
  int64_t N, K, M;
};

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

// Whether a processor's matrix unit does the products (tiles.h), and how many rows are done at once.
#if defined(HAS_AMX)
template <typename E>
constexpr bool TILED = std::is_same_v<E, Bfloat16>;
#else
template <typename E>
constexpr bool TILED = false;
#endif
template <typename E>
constexpr int ROWS = TILED<E> ? WIDE : HIGH;

inline int64_t up_to(int64_t n, int64_t whole) { return (n + whole - 1) / whole * whole; }

inline int64_t panels(int64_t M) { return up_to(M, WIDE); }

// K numbers as units; where a matrix unit takes many at once, zeros follow.
template <typename E>
inline int64_t deep(int64_t K) {
  const int64_t units = (K + Units<E>::DEEP - 1) / Units<E>::DEEP;
  return TILED<E> ? up_to(units, LANES) : units;
}

// Place for `n` units. What nobody writes, beside the last panel or tile, is multiplied to numbers
// that nobody reads.
template <typename E>
struct Place {
  Buffer floats;
  explicit Place(int64_t n) : floats(buffer(n)) {}
  Unit<E>* get() const { return reinterpret_cast<Unit<E>*>(floats.get()); }
};

// w [K, M] as panels [K in units, WIDE], one after the other.
template <typename E>
ALONE void pack(const float* w, int64_t K, int64_t M, Unit<E>* out) {
  constexpr int64_t DEEP = Units<E>::DEEP;
  for (int64_t j = 0; j < M; j += LANES) {
    const int64_t n = std::min<int64_t>(LANES, M - j);
    Unit<E>* to = out + j / WIDE * WIDE * deep<E>(K) + j % WIDE;
    for (int64_t k = 0; k < DEEP * deep<E>(K); k += DEEP) {
      const auto both = Units<E>::joined(k < K ? get(w + k * M + j, n) : Vec{},
                                         k + 1 < K ? get(w + (k + 1) * M + j, n) : Vec{});
      std::memcpy(to + k / DEEP * WIDE, &both, sizeof both);
    }
  }
}

// The same of w [M, K]: rows are rounded, and four at once are read along.
template <typename E>
ALONE void pack_turned(const float* w, int64_t K, int64_t M, Unit<E>* out) {
  constexpr int64_t FEW = 4;
  const int64_t units = deep<E>(K);
  const Place<E> place(FEW * units);
  for (int64_t j = 0; j < M; j += FEW) {
    const int64_t n = std::min(FEW, M - j);
    for (int64_t c = 0; c < n; ++c) {
      E* row = reinterpret_cast<E*>(place.get() + c * units);
      std::fill(row + K, row + units * Units<E>::DEEP, E{});
      for_lanes(K, [&](int64_t k, int64_t count) {
        put(row + k, get(w + (j + c) * K + k, count), count);
      });
    }
    Unit<E>* to = out + j / WIDE * WIDE * units + j % WIDE;
    for (int64_t k = 0; k < units; ++k)
      for (int64_t c = 0; c < n; ++c) to[k * WIDE + c] = place.get()[c * units + k];
  }
}

}  // namespace
