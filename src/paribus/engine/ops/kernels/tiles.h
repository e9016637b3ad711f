// Products of bfloat16 by a processor's own matrix unit (AMX), in tiles of 16 rows of 16 units: what
// products.h does otherwise.

#pragma once

#include "units.h"

#if defined(HAS_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr int64_t TURNED = CHUNK + LANES;  // units from one row of a turned tile to the next

template <typename E>
struct Tiles {};  // of a matrix unit, which others have not

#if defined(HAS_AMX)

constexpr int TILE_ROWS = 16;

// Whether Linux lets this process use tiles; it is asked once. Processes that it forks may too.
inline bool tiles_are_allowed() {
  constexpr int REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  return allowed;
}

// While it lives, all eight tiles of this thread are whole.
template <>
struct Tiles<Bfloat16> {
  Tiles() {
    struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    std::fill(shape.bytes, shape.bytes + 8, 4 * LANES);
    std::fill(shape.rows, shape.rows + 8, TILE_ROWS);
    __asm__ volatile("" ::"m"(shape));
    _tile_loadconfig(&shape);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// sum [WIDE, WIDE] = a [WIDE, K] b [K, WIDE], of K units, whole tiles of them. Rows of a lie `row`
// units apart.
inline void product_of_tiles(const uint32_t* a, int64_t row, const uint32_t* b, int64_t K,
                             Vec (&sum)[WIDE][2]) {
  constexpr int64_t BYTES = 4 * WIDE;
  float* to = reinterpret_cast<float*>(sum);
  // Compilers do not know that tiles read memory: all is written by now.
  __asm__ volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < K; k += LANES) {
    _tile_loadd(6, b + k * WIDE, BYTES);
    _tile_loadd(7, b + k * WIDE + LANES, BYTES);
    _tile_loadd(4, a + k, 4 * row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + TILE_ROWS * row + k, 4 * row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, to, BYTES);
  _tile_stored(1, to + LANES, BYTES);
  _tile_stored(2, to + TILE_ROWS * WIDE, BYTES);
  _tile_stored(3, to + TILE_ROWS * WIDE + LANES, BYTES);
}

// Up to WIDE rows of x times all panels, plus the bias; `padded` is a place for as many rows.
inline void times(const Bfloat16* x, int64_t rows, const uint32_t* packed, const float* bias,
                  int64_t K, int64_t M, Bfloat16* y, uint32_t* padded) {
  const int64_t units = deep<Bfloat16>(K);
  const uint32_t* a = reinterpret_cast<const uint32_t*>(x);
  int64_t row = K / 2;
  if (rows < WIDE || row < units) {
    std::fill(padded, padded + WIDE * units, 0);
    for (int64_t r = 0; r < rows; ++r) std::memcpy(padded + r * units, x + r * K, 2 * K);
    a = padded;
    row = units;
  }
  for (int64_t j = 0; j < M; j += WIDE) {
    Vec sum[WIDE][2];
    product_of_tiles(a, row, packed + j * units, units, sum);
    if (j + WIDE <= M) {
      const Vec low = bias ? load(bias + j) : Vec{}, high = bias ? load(bias + j + LANES) : Vec{};
      for (int64_t r = 0; r < rows; ++r) store(y + r * M + j, sum[r][0] + low, sum[r][1] + high);
      continue;
    }
    for (int c = 0; c < 2 && j + c * LANES < M; ++c) {
      const int64_t at = j + c * LANES, n = std::min<int64_t>(LANES, M - at);
      const Vec more = bias ? get(bias + at, n) : Vec{};
      for (int64_t r = 0; r < rows; ++r) put(y + r * M + at, sum[r][c] + more, n);
    }
  }
}

template <typename Then>
void all_rows(const Bfloat16* x, const uint32_t* packed, const float* bias, const Sizes& size,
              Bfloat16* out, Then then) {
  const int64_t N = size.N, K = size.K, M = size.M;
  const Tiles<Bfloat16> tiles;
  const Place<Bfloat16> few((WIDE * M + 1) / 2), padded(WIDE * deep<Bfloat16>(K));
  for (int64_t i = 0; i < N; i += WIDE) {
    const int64_t rows = std::min<int64_t>(WIDE, N - i);
    Bfloat16* y = out ? out + i * M : reinterpret_cast<Bfloat16*>(few.get());
    times(x + i * K, rows, packed, bias, K, M, y, padded.get());
    then(i, rows, y);
  }
}

using Square = Long[TILE_ROWS];

// Rows D apart exchange the lanes D apart: done for D = 1, 2, 4 and 8, rows are columns.
template <int D>
inline void exchange(Square& rows) {
  Long low, high;
  for (int i = 0; i < LANES; ++i) {
    low[i] = i & D ? LANES + (i ^ D) : i;
    high[i] = i & D ? LANES + i : i ^ D;
  }
#pragma GCC unroll 16
  for (int i = 0; i < TILE_ROWS; ++i)
    if (!(i & D)) {
      const __m512i a = (__m512i)rows[i], b = (__m512i)rows[i | D];
      rows[i] = (Long)_mm512_permutex2var_epi32(a, (__m512i)low, b);
      rows[i | D] = (Long)_mm512_permutex2var_epi32(a, (__m512i)high, b);
    }
}

// The units of each column of x side by side, TURNED from the next column's; zeros follow the last
// one. sums, which may be null, grow by each column's.
ALONE void to_tiles(const Bfloat16* x, int64_t rows, int64_t width, uint32_t* out, float* sums) {
  typedef Units<Bfloat16> Of;
  for (int64_t u = 0; u < deep<Bfloat16>(rows); u += LANES)
    for_lanes(width, [&](int64_t m, int64_t count) {
      Square units;
      Vec total = sums ? get(sums + m, count) : Vec{};
      for (int64_t i = 0; i < LANES; ++i) {
        const int64_t n = 2 * (u + i);
        const Bfloat16* at = x + n * width + m;
        if (count == LANES && n + 1 < rows)
          units[i] = Of::joined(at, at + width);
        else
          units[i] = Of::joined(n < rows ? get(at, count) : Vec{},
                                n + 1 < rows ? get(at + width, count) : Vec{});
        total = Of::plus(total, units[i]);
      }
      if (sums) put(sums + m, total, count);
      exchange<1>(units);
      exchange<2>(units);
      exchange<4>(units);
      exchange<8>(units);
      for (int64_t i = 0; i < LANES; ++i) std::memcpy(out + (m + i) * TURNED + u, &units[i], 64);
    });
}

inline void tile_of_columns(Bfloat16, const uint32_t* tile_of_dy, const uint32_t* panel,
                            int64_t units, Vec (&acc)[WIDE][2]) {
  product_of_tiles(tile_of_dy, TURNED, panel, units, acc);
}

#endif

}  // namespace
