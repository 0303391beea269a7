// Numbers as they are stored, float or bfloat16, and as they are computed with: float, one or a vector of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

// Memory that begins with a line of the processor's cache: vectors that lie across two lines take twice as long.
template <typename T> struct Aligned {
    typedef T value_type;

    Aligned() = default;
    template <typename U> Aligned(const Aligned<U> &) {}
    T *allocate(size_t count) { return (T *)operator new(count * sizeof(T), std::align_val_t(64)); }
    void deallocate(T *at, size_t) { operator delete(at, std::align_val_t(64)); }
    template <typename U> bool operator==(const Aligned<U> &) const { return true; }
    template <typename U> bool operator!=(const Aligned<U> &) const { return false; }
};

template <typename T> using Memory = std::vector<T, Aligned<T>>;

static inline int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct bfloat16 {
    uint16_t bits;
};

static inline float load(float x) { return x; }

static inline float load(bfloat16 x) {
    uint32_t wide = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

static inline void store(float &to, float x) { to = x; }

// To the nearest, ties to even. A NaN stays one: its sign and quiet bit are kept by the last line.
static inline void store(bfloat16 &to, float x) {
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    to.bits = uint16_t((wide & 0x7fffffff) > 0x7f800000 ? (wide >> 16) | 0x40 : rounded);
}

const int64_t PAGE = 16; // tokens in a page of the cache, and lanes of a vector
typedef float lanes __attribute__((vector_size(PAGE * sizeof(float))));
typedef uint16_t half_lanes __attribute__((vector_size(PAGE * sizeof(uint16_t))));
typedef uint32_t wide_lanes __attribute__((vector_size(PAGE * sizeof(uint32_t))));

static inline lanes load_lanes(const float *x) {
    lanes value;
    std::memcpy(&value, x, sizeof(value));
    return value;
}

static inline lanes load_lanes(const bfloat16 *x) {
    half_lanes bits;
    std::memcpy(&bits, x, sizeof(bits));
    wide_lanes wide = __builtin_convertvector(bits, wide_lanes) << 16;
    lanes value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
}

static inline void store_lanes(float *to, lanes x) { std::memcpy(to, &x, sizeof(x)); }

static inline void store_lanes(bfloat16 *to, lanes x) {
    wide_lanes wide;
    std::memcpy(&wide, &x, sizeof(x));
    wide_lanes rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16, quiet = (wide >> 16) | 0x40;
    wide_lanes nan = (wide_lanes)((wide & 0x7fffffff) > 0x7f800000);
    half_lanes bits = __builtin_convertvector((nan & quiet) | (~nan & rounded), half_lanes);
    std::memcpy(to, &bits, sizeof(bits));
}

// sum + a * b, rounded once where the processor can. This is not left to the compiler, which fuses a product with a sum or
// not by the loop around them and by the processor that it tunes for: sums in different loops must agree to the bit.
static inline float plus_product(float sum, float a, float b) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, sum);
#else
    return sum + a * b;
#endif
}

static inline lanes plus_product(lanes sum, float a, lanes b) {
#ifdef __AVX512F__
    return (lanes)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)sum);
#else // a vector is several registers, so that every loop has several sums: there compilers fuse
    return sum + a * b;
#endif
}

// A vector's numbers taken together by a function of two, halves with halves.
template <typename Two> static inline float folded(lanes x, Two both) {
    typedef float eight __attribute__((vector_size(32)));
    typedef float four __attribute__((vector_size(16)));
    eight h[2];
    std::memcpy(h, &x, sizeof(x));
    eight a = both(h[0], h[1]);
    four q[2];
    std::memcpy(q, &a, sizeof(a));
    four b = both(q[0], q[1]);
    return both(both(b[0], b[2]), both(b[1], b[3]));
}

// The first `count` numbers of a vector, and `rest` in place of the others.
static inline lanes first(int64_t count, lanes x, float rest) {
    typedef int32_t places __attribute__((vector_size(PAGE * sizeof(int32_t))));
    const places place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return place < (int32_t)count ? x : rest - (lanes){};
}

// Number j of vector i becomes number i of vector j: halves change places, then quarters in each, down to single
// numbers.
static inline void transpose(lanes (&x)[PAGE]) {
#if defined(__AVX512F__) && !defined(__clang__) // registers that hold a vector, and a compiler that can mix two of them
    typedef int32_t places __attribute__((vector_size(PAGE * sizeof(int32_t))));
    const places place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 4
    for (int size = PAGE / 2; size > 0; size /= 2) {
        places right = (place & size) != 0; // -1 where true
        places upper = place + (right & int32_t(PAGE - size));
        places lower = place + ((right & int32_t(PAGE)) | (~right & size));
#pragma GCC unroll 16
        for (int i = 0; i < PAGE; i++) {
            if (i & size) continue;
            lanes a = x[i], b = x[i + size];
            x[i] = __builtin_shuffle(a, b, upper);
            x[i + size] = __builtin_shuffle(a, b, lower);
        }
    }
#else
    float from[PAGE][PAGE], to[PAGE][PAGE];
    std::memcpy(from, x, sizeof(from));
    for (int i = 0; i < PAGE; i++)
        for (int j = 0; j < PAGE; j++) to[j][i] = from[i][j];
    std::memcpy(x, to, sizeof(to));
#endif
}

// Between two limits; NaN stays NaN.
static inline lanes limited(lanes x, float low, float high) {
#ifdef __AVX512F__ // of which compilers make a comparison and a choice each
    __m512 above = _mm512_maskz_max_ps(0xffff, _mm512_set1_ps(low), (__m512)x);
    return (lanes)_mm512_maskz_min_ps(0xffff, _mm512_set1_ps(high), above);
#else
    x = low > x ? lanes{} + low : x;
    return high < x ? lanes{} + high : x;
#endif
}

// e^x within 2 units in the last place for x from -87 to 87, of which it is that of -87 or 87 beyond. Range reduction by ln 2
// in two parts (Cody and Waite), then the Taylor series of degree 7 on [-0.35, 0.35]. Every step is done for N vectors
// before the next: each step waits for the one before, which a processor hides only where it sees others.
template <int N> static inline void exponentials(lanes (&x)[N]) {
    typedef uint32_t bits __attribute__((vector_size(PAGE * sizeof(uint32_t))));
    const float WHOLE = 12582912.0f; // 1.5 * 2^23: what is added to it is rounded to a whole number, in its last bits
    const float TAYLOR[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
    lanes shifted[N], r[N], p[N];
    for (int v = 0; v < N; v++) shifted[v] = limited(x[v], -87.0f, 87.0f) * 1.44269504f + WHOLE;
    for (int v = 0; v < N; v++) r[v] = limited(x[v], -87.0f, 87.0f) - (shifted[v] - WHOLE) * 0.693359375f;
    for (int v = 0; v < N; v++) r[v] += (shifted[v] - WHOLE) * 2.12194440e-4f;
    for (int v = 0; v < N; v++) p[v] = lanes{} + 1.0f / 5040.0f;
#pragma GCC unroll 8
    for (float coefficient : TAYLOR)
        for (int v = 0; v < N; v++) p[v] = p[v] * r[v] + coefficient;
    for (int v = 0; v < N; v++) x[v] = p[v] * (lanes)(((bits)shifted[v] << 23) + (127u << 23));
}

static inline lanes exponentials(lanes x) {
    lanes one[1] = {x};
    exponentials(one);
    return one[0];
}

// 1 / x for x up to 2^126, within 2 units in the last place. A division takes longer than all else in a sigmoid; where the
// processor has an estimate, one step of Newton's method makes it as good.
static inline lanes reciprocal(lanes x) {
#ifdef __AVX512F__
    lanes estimate = (lanes)_mm512_maskz_rcp14_ps(0xffff, (__m512)x);
    return estimate * (2.0f - x * estimate);
#else
    return 1.0f / x;
#endif
}

template <int N> static inline void sigmoids(lanes (&x)[N]) {
    for (int v = 0; v < N; v++) x[v] = -x[v];
    exponentials(x);
    for (int v = 0; v < N; v++) x[v] = reciprocal(1.0f + x[v]);
}

static inline float summed(lanes x) {
    return folded(x, [](auto a, auto b) { return a + b; });
}

// The sum of squares of a row.
template <typename T> static inline float squared(const T *x, int64_t width) {
    lanes sum = {};
    int64_t i = 0;
    for (; i + PAGE <= width; i += PAGE) sum += load_lanes(x + i) * load_lanes(x + i);
    float total = summed(sum);
    for (; i < width; i++) total += load(x[i]) * load(x[i]);
    return total;
}

#define FOR_EACH_TYPE(DEFINE) DEFINE(float, float32) DEFINE(bfloat16, bfloat16)
