// What a decoder does with one row of numbers by itself, and with its gradient. Numbers come and go as any type, and are
// computed as float. All sums run over the row.
#pragma once

#include "numbers.h"

#include <type_traits>

// N vectors of a row from a place on.
template <int N> struct Vectors {
    template <typename T> void take(const T *from, lanes (&x)[N]) const {
        for (int v = 0; v < N; v++) x[v] = load_lanes(from + v * PAGE);
    }
    template <typename T> void put(const lanes (&x)[N], T *to) const {
        for (int v = 0; v < N; v++) store_lanes(to + v * PAGE, x[v]);
    }
    void only(lanes (&)[N]) const {}
};

// The first numbers of a vector, at the end of a row; `only` makes 0 of the others.
struct Rest {
    int64_t count;

    template <typename T> void take(const T *from, lanes (&x)[1]) const {
        x[0] = lanes{};
        for (int64_t i = 0; i < count; i++) x[0][i] = load(from[i]);
    }
    template <typename T> void put(const lanes (&x)[1], T *to) const {
        for (int64_t i = 0; i < count; i++) store(to[i], x[0][i]);
    }
    void only(lanes (&x)[1]) const { x[0] = first(count, x[0], 0.0f); }
};

// Calls `act` for all places of a row: of four vectors, of one, of what is left.
template <typename Act> static inline void in_vectors(int64_t width, Act act) {
    int64_t i = 0;
    for (; i + 4 * PAGE <= width; i += 4 * PAGE) act(i, Vectors<4>{}, std::integral_constant<int, 4>{});
    for (; i + PAGE <= width; i += PAGE) act(i, Vectors<1>{}, std::integral_constant<int, 1>{});
    if (i < width) act(i, Rest{width - i}, std::integral_constant<int, 1>{});
}

template <typename In, typename Weight, typename Out>
static inline void scaled(int64_t width, float scale, const In *in, const Weight *weight, Out *out) {
#pragma omp simd
    for (int64_t i = 0; i < width; i++) store(out[i], load(in[i]) * scale * load(weight[i]));
}

// out = in / rms(in) * weight. Gives 1 / rms.
template <typename In, typename Weight, typename Out>
static inline float normed(int64_t width, float eps, const In *in, const Weight *weight, Out *out) {
    float scale = 1.0f / std::sqrt(squared(in, width) / width + eps);
    scaled(width, scale, in, weight, out);
    return scale;
}

// The gradient of what was normed, from g, that of the result: scale * (g * w - in * scale^2 * mean(g * w * in)), and
// `more` where there is more. total += g * in * scale, what the row adds to the gradient of the weight.
template <typename In, typename Weight, typename Given, typename Out>
static inline void norm_back(int64_t width, float scale, const In *in, const Weight *weight, const Given *g,
                             const Out *more, Out *out, float *total) {
    lanes dot = {};
    in_vectors(width, [&](int64_t i, auto at, auto n) {
        lanes x[n], w[n], given[n];
        at.take(in + i, x), at.take(weight + i, w), at.take(g + i, given);
        for (int v = 0; v < n; v++) dot += given[v] * w[v] * x[v];
    });
    float shift = summed(dot) * scale * scale / width;
    in_vectors(width, [&](int64_t i, auto at, auto n) {
        lanes x[n], w[n], given[n], sum[n], rest[n];
        at.take(in + i, x), at.take(weight + i, w), at.take(g + i, given), at.take(total + i, sum);
        for (int v = 0; v < n; v++) {
            sum[v] += given[v] * x[v] * scale;
            x[v] = scale * (given[v] * w[v] - x[v] * shift);
        }
        if (more) {
            at.take(more + i, rest);
            for (int v = 0; v < n; v++) x[v] += rest[v];
        }
        at.put(x, out + i), at.put(sum, total + i);
    });
}

// A head, normed where there is a weight, with the pair (i, i + d / 2) rotated by an angle. Gives 1 / rms.
template <typename T>
static inline float rotate(int64_t width, float eps, const T *in, const T *weight, const float *cosine, const float *sine,
                         T *out) {
    int64_t half = width / 2;
    if (!weight) {
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            float a = load(in[i]), b = load(in[i + half]);
            store(out[i], a * cosine[i] - b * sine[i]);
            store(out[i + half], b * cosine[i] + a * sine[i]);
        }
        return 1.0f;
    }
    float scale = 1.0f / std::sqrt(squared(in, width) / width + eps);
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float a = load(in[i]) * scale * load(weight[i]);
        float b = load(in[i + half]) * scale * load(weight[i + half]);
        store(out[i], a * cosine[i] - b * sine[i]);
        store(out[i + half], b * cosine[i] + a * sine[i]);
    }
    return scale;
}

// A head rotated back by the angles: the gradient of what `rotate` was given where there is no norm.
template <typename In, typename Out>
static inline void turned_back(int64_t width, const float *cosine, const float *sine, const In *given, Out *out) {
    int64_t half = width / 2;
    in_vectors(half, [&](int64_t i, auto at, auto n) {
        lanes a[n], b[n], c[n], s[n], x[n];
        at.take(given + i, a), at.take(given + i + half, b), at.take(cosine + i, c), at.take(sine + i, s);
        for (int v = 0; v < n; v++) {
            x[v] = a[v] * c[v] + b[v] * s[v];
            b[v] = b[v] * c[v] - a[v] * s[v];
        }
        at.put(x, out + i), at.put(b, out + i + half);
    });
}

// The gradient of a head from that of the rotated one, and what it adds to `total`, that of the weight; `straight` has
// room for a head.
template <typename T, typename Out>
static inline void rotate_back(int64_t width, float scale, const T *in, const T *weight, const float *cosine,
                             const float *sine, const T *given, float *straight, Out *out, float *total) {
    if (!weight) return turned_back(width, cosine, sine, given, out);
    turned_back(width, cosine, sine, given, straight);
    norm_back(width, scale, in, weight, straight, (const Out *)nullptr, out, total);
}

// out = a * sigmoid(a) * b
template <typename In, typename Out>
static inline void gate(int64_t width, const In *a, const In *b, Out *out) {
    in_vectors(width, [&](int64_t i, auto at, auto n) {
        lanes x[n], s[n], u[n];
        at.take(a + i, x), at.take(a + i, s), at.take(b + i, u);
        sigmoids(s);
        for (int v = 0; v < n; v++) s[v] *= x[v] * u[v];
        at.put(s, out + i);
    });
}

// The gradients of both from that of the result, g, and the result itself where there is a place for it.
template <typename In, typename Given, typename To, typename Out = To>
static inline void gate_back(int64_t width, const In *a, const In *b, const Given *g, To *to_a, To *to_b,
                             Out *out = nullptr) {
    in_vectors(width, [&](int64_t i, auto at, auto n) {
        lanes x[n], s[n], u[n], given[n], of_a[n], of_b[n];
        at.take(a + i, x), at.take(a + i, s), at.take(b + i, u), at.take(g + i, given);
        sigmoids(s);
        for (int v = 0; v < n; v++) {
            x[v] *= s[v];
            of_a[v] = given[v] * u[v] * (s[v] + x[v] * (1.0f - s[v]));
            of_b[v] = given[v] * x[v];
            u[v] *= x[v];
        }
        at.put(of_a, to_a + i), at.put(of_b, to_b + i);
        if (out) at.put(u, out + i);
    });
}
