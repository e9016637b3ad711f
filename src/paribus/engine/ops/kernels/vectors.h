// What all kernels are written with: vectors of as many float32 as a register holds; bfloat16 that
// is read and written through them; aligned memory.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

// A unit that multiplies tiles of bfloat16; Clang's older name for it is the second.
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#define HAS_AMX
#endif

namespace {

// GCC compiles a vector wider than a register element by element: with 16 lanes, attention took 13
// times as long on a processor with AVX2.
#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int LANES = 8;
#else
constexpr int LANES = 16;
#endif

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16)));
typedef int32_t Int __attribute__((vector_size(4 * LANES)));

inline Vec all(float x) { return x - Vec{}; }
inline Vec load(const float* p) { Vec v; std::memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }

// x, rounded: a sum with it is no fused multiplication, but what a pass of its own gives.
inline Vec rounded(Vec x) {
  __asm__("" : "+m"(x));
  return x;
}

// exp of x <= 0, to 2 units in the last place; 0 below -87, NaN of NaN. Cephes' polynomial.
inline Vec exponential(Vec x) {
  const Vec shift = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec z = x * 1.44269504088896341f + shift;
  const Vec n = z - shift;
  Vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  Int bits;
  std::memcpy(&bits, &z, sizeof z);
  bits = bits << 23;  // the low bits of z are n
  Int value;
  std::memcpy(&value, &p, sizeof p);
  value = value + bits;
  Vec scaled;
  std::memcpy(&scaled, &value, sizeof value);
  scaled = (p == p) ? scaled : p;
  return (x < all(-87.0f)) ? Vec{} : scaled;
}

template <typename Half, typename Whole, typename Op>
inline Half folded(Whole v, Op op) {
  Half low, high;
  std::memcpy(&low, &v, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
  return op(low, high);
}

template <typename Op>
inline float reduced(Vec v, Op op) {
  Vec8 eight;
  if constexpr (LANES == 16) eight = folded<Vec8>(v, op);
  else std::memcpy(&eight, &v, sizeof eight);
  const Vec4 four = folded<Vec4>(eight, op);
  return op(op(four[0], four[2]), op(four[1], four[3]));
}

inline float sum(Vec v) {
  return reduced(v, [](auto a, auto b) { return a + b; });
}

inline float largest(Vec v) {
  return reduced(v, [](auto a, auto b) { return a > b ? a : b; });
}

struct Free { void operator()(float* p) const { std::free(p); } };
using Buffer = std::unique_ptr<float[], Free>;

Buffer buffer(int64_t n) {
  return Buffer(static_cast<float*>(std::aligned_alloc(64, ((n * 4 + 63) / 64) * 64)));
}

struct Bfloat16 { uint16_t bits; };

inline float read(float x) { return x; }
inline float read(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

inline void write(float x, float* to) { *to = x; }
inline void write(float x, Bfloat16* to) {  // to the nearest, ties to even; NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to->bits = static_cast<uint16_t>(x == x ? rounded : 0x7fc0u);
}

inline Vec load(const Bfloat16* p) {
  typedef uint16_t Short __attribute__((vector_size(2 * LANES)));
  typedef uint32_t Long __attribute__((vector_size(4 * LANES)));
  Short half;
  std::memcpy(&half, p, sizeof half);
  const Long whole = __builtin_convertvector(half, Long) << 16;
  Vec v;
  std::memcpy(&v, &whole, sizeof v);
  return v;
}

inline void store(Bfloat16* p, Vec v) {
#if defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh((__m512)v);
  std::memcpy(p, &half, sizeof half);
#else
  float lane[LANES];
  store(lane, v);
  for (int i = 0; i < LANES; ++i) write(lane[i], p + i);
#endif
}

// Two vectors side by side.
inline void store(float* p, Vec v, Vec w) {
  store(p, v);
  store(p + LANES, w);
}

inline void store(Bfloat16* p, Vec v, Vec w) {
#if defined(__AVX512BF16__)
  const __m512bh both = _mm512_cvtne2ps_pbh((__m512)w, (__m512)v);
  std::memcpy(p, &both, sizeof both);
#else
  store(p, v);
  store(p + LANES, w);
#endif
}

// The first n < LANES numbers, and zeros after them.
template <typename E>
inline Vec load_some(const E* p, int64_t n) {
  float lane[LANES] = {};
  for (int64_t i = 0; i < n; ++i) lane[i] = read(p[i]);
  return load(lane);
}

template <typename E>
inline void store_some(E* p, Vec v, int64_t n) {
  float lane[LANES];
  store(lane, v);
  for (int64_t i = 0; i < n; ++i) write(lane[i], p + i);
}

// The first n lanes, and zeros after them.
inline Vec first(Vec v, int64_t n) {
  for (int64_t i = n; i < LANES; ++i) v[i] = 0.0f;
  return v;
}

// f(place, how many) for all n numbers, LANES at a time.
template <typename F>
inline void for_lanes(int64_t n, F f) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) f(i, int64_t{LANES});
  if (i < n) f(i, n - i);
}

template <typename E>
inline Vec get(const E* p, int64_t n) { return n == LANES ? load(p) : load_some(p, n); }
template <typename E>
inline void put(E* p, Vec v, int64_t n) { n == LANES ? store(p, v) : store_some(p, v, n); }

// f of the type that a function's `lower` says: bfloat16, or float32.
template <typename F>
inline void as(bool lower, F f) {
  lower ? f(Bfloat16{}) : f(float{});
}

template <typename E, typename T>
auto at(T* p) {
  return static_cast<std::conditional_t<std::is_const_v<T>, const E, E>*>(p);
}

}  // namespace
