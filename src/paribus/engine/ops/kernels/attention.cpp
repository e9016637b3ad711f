// Causal attention on a CPU: softmax(q k^T / sqrt(K)) v over the positions up to each.
//
// Each head of each sequence is computed alone, in one order: its result does not depend on what
// else is in the batch. Blocks that are masked as a whole are skipped. All arithmetic is float32;
// what is read and written is float32 or bfloat16.
// Axes: B sequences, H heads, T positions, K channels.

#include "vectors.h"

namespace {

constexpr int ROWS = 8;  // queries that are computed together

// A head's [T, K] values; `row` is the distance of two positions, channels lie side by side.
template <typename E>
struct Rows {
  E* data;
  int64_t row;
};

// To [rows, C * LANES] times `factor`, with zeros beside and below.
template <int C, typename E>
void pack(Rows<const E> x, int64_t T, int64_t K, int64_t rows, float factor, float* out) {
  constexpr int64_t W = C * LANES;
  if (K < W || T < rows) std::memset(out, 0, rows * W * sizeof(float));
  for (int64_t t = 0; t < T; ++t)
    for_lanes(K, [&](int64_t k, int64_t n) {
      store(out + t * W + k, get(x.data + t * x.row + k, n) * factor);
    });
}

// From [rows, C * LANES] to [K, rows].
template <int C>
void transpose(const float* x, int64_t rows, int64_t K, float* out) {
  for (int64_t k = 0; k < K; ++k)
    for (int64_t t = 0; t < rows; ++t) out[k * rows + t] = x[t * C * LANES + k];
}

// out[r, j] = sum_k a[r, k] bT[k, j] for ROWS rows and j < width.
inline void products(const float* a, int64_t a_row, const float* bT, int64_t b_row, int64_t K,
                     int64_t width, float* out, int64_t out_row) {
  int64_t j = 0;
  for (; j + 2 * LANES <= width; j += 2 * LANES) {
    Vec acc[ROWS][2] = {};
    for (int64_t k = 0; k < K; ++k) {
      const Vec b0 = load(bT + k * b_row + j), b1 = load(bT + k * b_row + j + LANES);
      for (int r = 0; r < ROWS; ++r) {
        acc[r][0] += a[r * a_row + k] * b0;
        acc[r][1] += a[r * a_row + k] * b1;
      }
    }
    for (int r = 0; r < ROWS; ++r) {
      store(out + r * out_row + j, acc[r][0]);
      store(out + r * out_row + j + LANES, acc[r][1]);
    }
  }
  for (; j < width; j += LANES) {
    Vec acc[ROWS] = {};
    for (int64_t k = 0; k < K; ++k) {
      const Vec b = load(bT + k * b_row + j);
      for (int r = 0; r < ROWS; ++r) acc[r] += a[r * a_row + k] * b;
    }
    for (int r = 0; r < ROWS; ++r) store(out + r * out_row + j, acc[r]);
  }
}

// out[r, :] = sum_j a[r, j] b[j, :] for ROWS rows and j < n.
template <int C>
inline void mixture(const float* a, int64_t a_row, const float* b, int64_t n, Vec (&acc)[ROWS][C]) {
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = Vec{};
  for (int64_t j = 0; j < n; ++j)
    for (int r = 0; r < ROWS; ++r)
      for (int c = 0; c < C; ++c)
        acc[r][c] += a[r * a_row + j] * load(b + (j * C + c) * LANES);
}

// Each of `rows` times its factor, to position `at` and those after it.
template <int C, typename E>
inline void unpack(const Vec (&acc)[ROWS][C], int64_t rows, int64_t K, const float* factors,
                   Rows<E> out, int64_t at) {
  for (int64_t r = 0; r < rows; ++r)
    for (int c = 0; c * LANES < K; ++c)
      put(out.data + (at + r) * out.row + c * LANES, acc[r][c] * factors[r],
          std::min<int64_t>(LANES, K - c * LANES));
}

template <int C, typename E>
inline void unpack(const float* x, int64_t T, int64_t K, Rows<E> out) {
  for (int64_t t = 0; t < T; ++t)
    for_lanes(K, [&](int64_t k, int64_t n) {
      put(out.data + t * out.row + k, load(x + t * C * LANES + k), n);
    });
}

// Scores of [from, end) to minus infinity, of which end is a multiple of LANES: in vectors, as they
// are read next.
inline void hide(float* s, int64_t from, int64_t end) {
  int64_t j = from / LANES * LANES;
  if (j < from && j < end) {
    Int lane;
    for (int i = 0; i < LANES; ++i) lane[i] = i;
    const Int last = static_cast<int32_t>(from - j) - Int{};
    store(s + j, lane < last ? load(s + j) : all(-INFINITY));
    j += LANES;
  }
  for (; j < end; j += LANES) store(s + j, all(-INFINITY));
}

inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <int C, typename E>
struct Forward {
  const int64_t T, K, width = up(T, LANES), W = C * LANES;
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  Buffer Q = buffer(width * W), KR = buffer(width * W), KT = buffer(K * width),
         V = buffer(width * W), S = buffer(ROWS * width);

  void operator()(Rows<const E> q, Rows<const E> k, Rows<const E> v, Rows<E> y, float* logsumexp) {
    pack<C>(q, T, K, width, scale, Q.get());
    pack<C>(k, T, K, width, 1.0f, KR.get());
    pack<C>(v, T, K, width, 1.0f, V.get());
    transpose<C>(KR.get(), width, K, KT.get());
    for (int64_t i = 0; i < T; i += ROWS) {
      const int64_t here = std::min<int64_t>(ROWS, T - i), seen = std::min(i + ROWS, T);
      const int64_t wide = up(seen, LANES);
      products(Q.get() + i * W, W, KT.get(), width, K, wide, S.get(), width);
      // Step by step for all rows: what one row waits for is another's work.
      float factors[ROWS], peaks[ROWS];
      Vec totals[ROWS];
      for (int64_t r = 0; r < ROWS; ++r) {
        float* s = S.get() + r * width;
        hide(s, i + r + 1, wide);
        Vec top = load(s);
        for (int64_t j = LANES; j < wide; j += LANES) {
          const Vec x = load(s + j);
          top = x > top ? x : top;
        }
        peaks[r] = largest(top);
      }
      for (int64_t r = 0; r < ROWS; ++r) {
        float* s = S.get() + r * width;
        const float peak = peaks[r];
        Vec total{};
        for (int64_t j = 0; j < wide; j += LANES) {
          const Vec e = exponential(load(s + j) - peak);
          store(s + j, e);
          total += e;
        }
        totals[r] = total;
      }
      for (int64_t r = 0; r < ROWS; ++r) {
        const float z = sum(totals[r]);
        factors[r] = 1.0f / z;
        if (r < here) logsumexp[i + r] = peaks[r] + std::log(z);
      }
      Vec acc[ROWS][C];
      mixture<C>(S.get(), width, V.get(), seen, acc);
      unpack<C>(acc, here, K, factors, y, i);
    }
  }
};

// Dao et al. 2022, algorithm 4: with P the weights, dV = P^T dY, dP = dY V^T,
// dS = P * (dP - rowsum(dY * Y)), dQ = dS K / sqrt(K), dK = dS^T Q / sqrt(K).
template <int C, typename E>
struct Backward {
  const int64_t T, K, width = up(T, LANES), W = C * LANES;
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  Buffer Q = buffer(width * W), DY = buffer(width * W), Y = buffer(width * W),
         KR = buffer(width * W), VR = buffer(width * W), KT = buffer(K * width),
         VT = buffer(K * width), P = buffer(ROWS * width), DS = buffer(ROWS * width),
         DK = buffer(width * W), DV = buffer(width * W);

  void operator()(Rows<const E> dy, Rows<const E> q, Rows<const E> k, Rows<const E> v,
                  Rows<const E> y, const float* logsumexp, Rows<E> dq, Rows<E> dk, Rows<E> dv) {
    pack<C>(q, T, K, width, scale, Q.get());
    pack<C>(dy, T, K, width, 1.0f, DY.get());
    pack<C>(y, T, K, width, 1.0f, Y.get());
    pack<C>(k, T, K, width, 1.0f, KR.get());
    pack<C>(v, T, K, width, 1.0f, VR.get());
    transpose<C>(KR.get(), width, K, KT.get());
    transpose<C>(VR.get(), width, K, VT.get());
    std::memset(DK.get(), 0, width * W * sizeof(float));
    std::memset(DV.get(), 0, width * W * sizeof(float));
    float factors[ROWS];
    std::fill(factors, factors + ROWS, scale);
    for (int64_t i = 0; i < T; i += ROWS) {
      const int64_t here = std::min<int64_t>(ROWS, T - i), seen = std::min(i + ROWS, T);
      const int64_t wide = up(seen, LANES);
      products(Q.get() + i * W, W, KT.get(), width, K, wide, P.get(), width);
      products(DY.get() + i * W, W, VT.get(), width, K, wide, DS.get(), width);
      for (int64_t r = 0; r < ROWS; ++r) {
        float *p = P.get() + r * width, *ds = DS.get() + r * width;
        if (r >= here) {
          std::memset(p, 0, wide * sizeof(float));
          std::memset(ds, 0, wide * sizeof(float));
          continue;
        }
        hide(p, i + r + 1, wide);
        Vec both{};
        for (int64_t c = 0; c < W; c += LANES)
          both += load(DY.get() + (i + r) * W + c) * load(Y.get() + (i + r) * W + c);
        const float dot = sum(both);
        for (int64_t j = 0; j < wide; j += LANES) {
          const Vec e = exponential(load(p + j) - logsumexp[i + r]);
          store(p + j, e);
          store(ds + j, e * (load(ds + j) - dot));
        }
      }
      Vec acc[ROWS][C];
      mixture<C>(DS.get(), width, KR.get(), seen, acc);
      unpack<C>(acc, here, K, factors, dq, i);
      for (int64_t j = 0; j < seen; j += ROWS) {
        add(DS.get() + j, Q.get() + i * W, DK.get() + j * W);
        add(P.get() + j, DY.get() + i * W, DV.get() + j * W);
      }
    }
    unpack<C>(DK.get(), T, K, dk);
    unpack<C>(DV.get(), T, K, dv);
  }

  // out[s, :] += sum_r a[r, s] b[r, :] for ROWS of each.
  void add(const float* a, const float* b, float* out) const {
    Vec acc[ROWS][C];
    for (int s = 0; s < ROWS; ++s)
      for (int c = 0; c < C; ++c) acc[s][c] = load(out + s * W + c * LANES);
    for (int r = 0; r < ROWS; ++r)
      for (int c = 0; c < C; ++c) {
        const Vec x = load(b + r * W + c * LANES);
        for (int s = 0; s < ROWS; ++s) acc[s][c] += a[r * width + s] * x;
      }
    for (int s = 0; s < ROWS; ++s)
      for (int c = 0; c < C; ++c) store(out + s * W + c * LANES, acc[s][c]);
  }
};

// As Python gives them; distances in elements.
struct Array {
  void* data;
  int64_t sequence, head, position;
};

template <typename E>
Rows<E> head(const Array& of, int64_t b, int64_t h) {
  return {static_cast<E*>(of.data) + b * of.sequence + h * of.head, of.position};
}

struct Sizes {
  int64_t B, H, T, K;
};

template <int C, typename E>
void forward(const Array* x, float* logsumexp, const Sizes& n) {
  Forward<C, E> attend{n.T, n.K};
  for (int64_t b = 0; b < n.B; ++b)
    for (int64_t h = 0; h < n.H; ++h)
      attend(head<const E>(x[0], b, h), head<const E>(x[1], b, h), head<const E>(x[2], b, h),
             head<E>(x[3], b, h), logsumexp + (b * n.H + h) * n.T);
}

template <int C, typename E>
void backward(const Array* x, const float* logsumexp, const Sizes& n) {
  Backward<C, E> attend{n.T, n.K};
  for (int64_t b = 0; b < n.B; ++b)
    for (int64_t h = 0; h < n.H; ++h)
      attend(head<const E>(x[0], b, h), head<const E>(x[1], b, h), head<const E>(x[2], b, h),
             head<const E>(x[3], b, h), head<const E>(x[4], b, h),
             logsumexp + (b * n.H + h) * n.T, head<E>(x[5], b, h), head<E>(x[6], b, h),
             head<E>(x[7], b, h));
}

}  // namespace

// The C vectors that K channels take: 1, 2, 4, 8 or those of 128 channels, the most that are asked for.
#define FOR_CHANNELS(K, call)                          \
  const int64_t vectors = ((K) + LANES - 1) / LANES;   \
  if (vectors <= 1) call(1);                           \
  else if (vectors <= 2) call(2);                      \
  else if (vectors <= 4) call(4);                      \
  else if (vectors <= 8) call(8);                      \
  else call(128 / LANES);

#define FORWARD(C) \
  lower ? forward<C, Bfloat16>(x, logsumexp, *n) : forward<C, float>(x, logsumexp, *n)
#define BACKWARD(C) \
  lower ? backward<C, Bfloat16>(x, logsumexp, *n) : backward<C, float>(x, logsumexp, *n)

extern "C" {

// x: q, k, v, y. logsumexp: [B, H, T], written.
void attention_forward(const Array* x, float* logsumexp, const Sizes* n, bool lower) {
  FOR_CHANNELS(n->K, FORWARD)
}

// x: dy, q, k, v, y, dq, dk, dv. logsumexp: [B, H, T], read.
void attention_backward(const Array* x, const float* logsumexp, const Sizes* n, bool lower) {
  FOR_CHANNELS(n->K, BACKWARD)
}

}
