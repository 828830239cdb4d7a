// SIMD vectors of floats; included by every file that is compiled once per instruction set.
//
// A vector holds LANES consecutive numbers, or one number of LANES features. The order of summation never
// depends on LANES, and the source states for every product that is added whether it is rounded first (the
// compiler must not contract). The AVX2, AVX-512 and NEON builds are therefore bit-identical. The portable
// build has no fused multiply-add and differs in the last bits.
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

#include "kernels.hpp"

namespace caloric::CALORIC_BUILD {
namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef std::int32_t IntVec __attribute__((vector_size(4 * LANES)));
typedef float Vec4 __attribute__((vector_size(16)));
typedef float Vec2 __attribute__((vector_size(8)));

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
inline Vec4 load4(const float *p) {
  Vec4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store4(float *p, Vec4 v) { std::memcpy(p, &v, sizeof v); }
inline Vec2 load2(const float *p) {
  Vec2 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store2(float *p, Vec2 v) { std::memcpy(p, &v, sizeof v); }
inline Vec broadcast(float x) { return x - Vec{}; }
inline IntVec broadcast(std::int32_t x) { return x - IntVec{}; }

// mul_add: a b + c, with a single rounding if the processor supports it. mask_bits: one bit per lane of a
// comparison. any: whether a comparison is true in any lane.
#if defined(__AVX512F__)
inline Vec mul_add(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline Vec square_root(Vec v) { return (Vec)_mm512_sqrt_ps((__m512)v); }
inline std::uint32_t mask_bits(IntVec mask) { return _mm512_movepi32_mask((__m512i)mask); }
inline bool any(IntVec mask) { return mask_bits(mask); }
inline Vec min(Vec a, Vec b) { return (Vec)_mm512_min_ps((__m512)a, (__m512)b); }
inline Vec max(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline float sum_lanes(Vec v) { return _mm512_reduce_add_ps((__m512)v); }
inline IntVec floor_to_int(Vec v) {
  return (IntVec)_mm512_cvt_roundps_epi32((__m512)v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
#elif defined(__AVX2__)
inline Vec mul_add(Vec a, Vec b, Vec c) { return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
inline Vec square_root(Vec v) { return (Vec)_mm256_sqrt_ps((__m256)v); }
inline std::uint32_t mask_bits(IntVec mask) { return _mm256_movemask_ps((__m256)mask); }
inline bool any(IntVec mask) { return mask_bits(mask); }
inline Vec min(Vec a, Vec b) { return (Vec)_mm256_min_ps((__m256)a, (__m256)b); }
inline Vec max(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
inline float sum_lanes(Vec v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
inline IntVec floor_to_int(Vec v) { return (IntVec)_mm256_cvttps_epi32(_mm256_floor_ps((__m256)v)); }
#elif defined(CALORIC_NEON)
inline Vec mul_add(Vec a, Vec b, Vec c) { return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
inline Vec square_root(Vec v) { return (Vec)vsqrtq_f32((float32x4_t)v); }
inline std::uint32_t mask_bits(IntVec mask) {
  const uint32x4_t lane_bits = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32((uint32x4_t)mask, lane_bits));
}
inline bool any(IntVec mask) { return vmaxvq_u32((uint32x4_t)mask); }
inline Vec min(Vec a, Vec b) { return (Vec)vminq_f32((float32x4_t)a, (float32x4_t)b); }
inline Vec max(Vec a, Vec b) { return (Vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
inline float sum_lanes(Vec v) { return vaddvq_f32((float32x4_t)v); }
inline IntVec floor_to_int(Vec v) { return (IntVec)vcvtmq_s32_f32((float32x4_t)v); }
#else
inline Vec mul_add(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec square_root(Vec v) {
  for (int l = 0; l < LANES; ++l) v[l] = std::sqrt(v[l]);
  return v;
}
inline std::uint32_t mask_bits(IntVec mask) {
  std::uint32_t result = 0;
  for (int l = 0; l < LANES; ++l) result |= (std::uint32_t)(mask[l] & 1) << l;
  return result;
}
inline bool any(IntVec mask) { return mask_bits(mask); }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline IntVec floor_to_int(Vec v) {
  const IntVec i = __builtin_convertvector(v, IntVec);
  return i + (v < __builtin_convertvector(i, Vec));  // truncation is 1 too large below 0; true is -1
}
#endif
constexpr float INF = std::numeric_limits<float>::infinity();
#if defined(CALORIC_NEON)
inline Vec abs_difference(Vec a, Vec b) { return (Vec)vabdq_f32((float32x4_t)a, (float32x4_t)b); }
#else
inline Vec abs_difference(Vec a, Vec b) { return (Vec)((IntVec)(a - b) & 0x7fffffff); }
#endif
#if defined(CALORIC_NEON)
inline Vec mul_add(float a, Vec b, Vec c) { return (Vec)vfmaq_n_f32((float32x4_t)c, (float32x4_t)b, a); }
#else
inline Vec mul_add(float a, Vec b, Vec c) { return mul_add(broadcast(a), b, c); }
#endif
#if defined(__AVX2__)
inline Vec2 mul_add2(float a, Vec2 b, Vec2 c) {
  // x86 has no vectors of two floats: use the lower half of a register of four.
  double both[2] = {};
  std::memcpy(&both[0], &b, 8);
  std::memcpy(&both[1], &c, 8);
  const __m128 x = _mm_castpd_ps(_mm_set_sd(both[0])), y = _mm_castpd_ps(_mm_set_sd(both[1]));
  const double result = _mm_cvtsd_f64(_mm_castps_pd(_mm_fmadd_ps(_mm_set1_ps(a), x, y)));
  Vec2 v;
  std::memcpy(&v, &result, 8);
  return v;
}
inline Vec4 mul_add4(Vec4 a, Vec4 b, Vec4 c) { return (Vec4)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c); }
inline float mul_add1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#elif defined(CALORIC_NEON)
inline Vec2 mul_add2(float a, Vec2 b, Vec2 c) { return (Vec2)vfma_n_f32((float32x2_t)c, (float32x2_t)b, a); }
inline Vec4 mul_add4(Vec4 a, Vec4 b, Vec4 c) { return mul_add(a, b, c); }
inline float mul_add1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
inline Vec2 mul_add2(float a, Vec2 b, Vec2 c) { return a * b + c; }
inline Vec4 mul_add4(Vec4 a, Vec4 b, Vec4 c) { return a * b + c; }
inline float mul_add1(float a, float b, float c) { return a * b + c; }
#endif

// Four consecutive scalars, each of which multiplies whole vectors. NEON multiplies by a lane of a register,
// which saves loads; other processors load and broadcast in one instruction.
#if defined(CALORIC_NEON)
struct FourScalars {
  float32x4_t scalars;
  explicit FourScalars(const float *p) : scalars(vld1q_f32(p)) {}
  template <int I>
  Vec mul_add_lane(Vec b, Vec c) const {
    return (Vec)vfmaq_laneq_f32((float32x4_t)c, (float32x4_t)b, scalars, I);
  }
};
#else
struct FourScalars {
  const float *scalars;
  explicit FourScalars(const float *p) : scalars(p) {}
  template <int I>
  Vec mul_add_lane(Vec b, Vec c) const {
    return mul_add(scalars[I], b, c);
  }
};
#endif

// Calls f(0), ..., f(N - 1) with compile-time constants.
template <typename F, int... I>
inline void unroll_sequence(const F &f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, typename F>
inline void unroll(const F &f) {
  unroll_sequence(f, std::make_integer_sequence<int, N>{});
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef std::int32_t Int4 __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (Int4){i, j, k, l})
#endif

inline void transpose(Vec4 (&q)[4]) {
  const Vec4 a = SHUFFLE(q[0], q[1], 0, 4, 2, 6), b = SHUFFLE(q[0], q[1], 1, 5, 3, 7);
  const Vec4 c = SHUFFLE(q[2], q[3], 0, 4, 2, 6), d = SHUFFLE(q[2], q[3], 1, 5, 3, 7);
  q[0] = SHUFFLE(a, c, 0, 1, 4, 5);
  q[1] = SHUFFLE(b, d, 0, 1, 4, 5);
  q[2] = SHUFFLE(a, c, 2, 3, 6, 7);
  q[3] = SHUFFLE(b, d, 2, 3, 6, 7);
}

}  // namespace
}  // namespace caloric::CALORIC_BUILD
