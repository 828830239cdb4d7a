// Vectors of floats on each kind of processor; included by every file that is compiled once for each.
//
// A vector holds LANES neighbouring numbers, or one number of LANES features. No sum runs across lanes
// in an order that depends on their number, and every product that is added to something says whether it
// is rounded before (the build forbids the compiler to choose), so that the AVX2, AVX-512 and NEON builds
// give the same bytes. The portable build has no fused multiply-add and differs from them in the last bits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(CALORIC_PORTABLE)
#define CALORIC_NEON
#include <arm_neon.h>
#endif

namespace caloric {
namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
using i64 = std::int64_t;
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef std::int32_t Int __attribute__((vector_size(4 * LANES)));
typedef float Quad __attribute__((vector_size(16)));

inline Vec load(const float *p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec load(const float *p, i64 count) {
  Vec v = {};
  std::memcpy(&v, p, 4 * std::min<i64>(count, LANES));
  return v;
}
inline void store(float *p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline void store(float *p, Vec v, i64 count) { std::memcpy(p, &v, 4 * std::min<i64>(count, LANES)); }
inline Quad load4(const float *p) {
  Quad v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store4(float *p, Quad v) { std::memcpy(p, &v, sizeof v); }
typedef float Duo __attribute__((vector_size(8)));
inline Duo load2(const float *p) {
  Duo v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store2(float *p, Duo v) { std::memcpy(p, &v, sizeof v); }
inline Vec all(float x) { return x - Vec{}; }
inline Int all(std::int32_t x) { return x - Int{}; }

// fused: a b + c, rounded once where the processor can. root: square roots. bits: one bit a lane of a
// comparison. any: whether a lane of it holds. below: the whole number below. apart: |a - b|.
#if defined(__AVX512F__)
inline Vec fused(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline Vec root(Vec v) { return (Vec)_mm512_sqrt_ps((__m512)v); }
inline std::uint32_t bits(Int mask) { return _mm512_movepi32_mask((__m512i)mask); }
inline bool any(Int mask) { return bits(mask); }
inline Vec max(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline Int below(Vec v) { return (Int)_mm512_cvt_roundps_epi32((__m512)v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
#elif defined(__AVX2__)
inline Vec fused(Vec a, Vec b, Vec c) { return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
inline Vec root(Vec v) { return (Vec)_mm256_sqrt_ps((__m256)v); }
inline std::uint32_t bits(Int mask) { return _mm256_movemask_ps((__m256)mask); }
inline bool any(Int mask) { return bits(mask); }
inline Vec max(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
inline Int below(Vec v) { return (Int)_mm256_cvttps_epi32(_mm256_floor_ps((__m256)v)); }
#elif defined(CALORIC_NEON)
inline Vec fused(Vec a, Vec b, Vec c) { return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
inline Vec root(Vec v) { return (Vec)vsqrtq_f32((float32x4_t)v); }
inline std::uint32_t bits(Int mask) {
  const uint32x4_t one_each = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32((uint32x4_t)mask, one_each));
}
inline bool any(Int mask) { return vmaxvq_u32((uint32x4_t)mask); }
inline Vec max(Vec a, Vec b) { return (Vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
inline Int below(Vec v) { return (Int)vcvtmq_s32_f32((float32x4_t)v); }
#else
inline Vec fused(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec root(Vec v) {
  for (int l = 0; l < LANES; ++l) v[l] = std::sqrt(v[l]);
  return v;
}
inline std::uint32_t bits(Int mask) {
  std::uint32_t result = 0;
  for (int l = 0; l < LANES; ++l) result |= (std::uint32_t)(mask[l] & 1) << l;
  return result;
}
inline bool any(Int mask) { return bits(mask); }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Int below(Vec v) {
  const Int i = __builtin_convertvector(v, Int);
  return i + (v < __builtin_convertvector(i, Vec));  // truncated: one less below 0; true is -1
}
#endif
#if defined(CALORIC_NEON)
inline Vec apart(Vec a, Vec b) { return (Vec)vabdq_f32((float32x4_t)a, (float32x4_t)b); }
#else
inline Vec apart(Vec a, Vec b) { return (Vec)((Int)(a - b) & 0x7fffffff); }
#endif
#if defined(CALORIC_NEON)
inline Vec fused(float a, Vec b, Vec c) { return (Vec)vfmaq_n_f32((float32x4_t)c, (float32x4_t)b, a); }
#else
inline Vec fused(float a, Vec b, Vec c) { return fused(all(a), b, c); }
#endif
#if defined(__AVX2__)
inline Duo fused2(float a, Duo b, Duo c) {
  // In registers of four: no processor of this kind has vectors of two.
  double both[2] = {};
  std::memcpy(&both[0], &b, 8);
  std::memcpy(&both[1], &c, 8);
  const __m128 x = _mm_castpd_ps(_mm_set_sd(both[0])), y = _mm_castpd_ps(_mm_set_sd(both[1]));
  const double result = _mm_cvtsd_f64(_mm_castps_pd(_mm_fmadd_ps(_mm_set1_ps(a), x, y)));
  Duo v;
  std::memcpy(&v, &result, 8);
  return v;
}
inline Quad fused4(Quad a, Quad b, Quad c) { return (Quad)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c); }
inline float fused1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#elif defined(CALORIC_NEON)
inline Duo fused2(float a, Duo b, Duo c) { return (Duo)vfma_n_f32((float32x2_t)c, (float32x2_t)b, a); }
inline Quad fused4(Quad a, Quad b, Quad c) { return fused(a, b, c); }
inline float fused1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
inline Duo fused2(float a, Duo b, Duo c) { return a * b + c; }
inline Quad fused4(Quad a, Quad b, Quad c) { return a * b + c; }
inline float fused1(float a, float b, float c) { return a * b + c; }
#endif

// Four neighbouring numbers, each of which multiplies whole vectors. NEON multiplies by a lane of a
// register, which saves loads; elsewhere a number is read and repeated at once.
#if defined(CALORIC_NEON)
struct Four {
  float32x4_t numbers;
  explicit Four(const float *p) : numbers(vld1q_f32(p)) {}
  template <int I>
  Vec fused(Vec b, Vec c) const {
    return (Vec)vfmaq_laneq_f32((float32x4_t)c, (float32x4_t)b, numbers, I);
  }
};
#else
struct Four {
  const float *numbers;
  explicit Four(const float *p) : numbers(p) {}
  template <int I>
  Vec fused(Vec b, Vec c) const {
    return caloric::fused(numbers[I], b, c);
  }
};
#endif

// f(0) ... f(N - 1), with numbers that are known to the compiler.
template <typename F, int... I>
inline void each(const F &f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, typename F>
inline void unrolled(const F &f) {
  each(f, std::make_integer_sequence<int, N>{});
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef std::int32_t QuadInt __attribute__((vector_size(16)));
#define SHUFFLED(a, b, i, j, k, l) __builtin_shuffle(a, b, (QuadInt){i, j, k, l})
#endif

inline void transpose(Quad (&q)[4]) {
  const Quad a = SHUFFLED(q[0], q[1], 0, 4, 2, 6), b = SHUFFLED(q[0], q[1], 1, 5, 3, 7);
  const Quad c = SHUFFLED(q[2], q[3], 0, 4, 2, 6), d = SHUFFLED(q[2], q[3], 1, 5, 3, 7);
  q[0] = SHUFFLED(a, c, 0, 1, 4, 5);
  q[1] = SHUFFLED(b, d, 0, 1, 4, 5);
  q[2] = SHUFFLED(a, c, 2, 3, 6, 7);
  q[3] = SHUFFLED(b, d, 2, 3, 6, 7);
}

}  // namespace
}  // namespace caloric
