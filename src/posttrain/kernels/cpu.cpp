// The parts of a decoder that are not matrix products, for CPUs: each reads its input once and writes its output once.
//
// Every row is computed by one thread in one order, so that a number depends on its own row alone, never on what else
// is in the batch nor on how many threads there are. Sums over rows (gradients of norm weights) are taken in blocks of
// fixed size, in order. Numbers are stored as float or bfloat16; all arithmetic is in float.
//
// Rows R, width D, heads H (of which G share a key head), head width d.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

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

// e^x within 2 units in the last place for x <= 88, 0 far below; without a call, so that loops of it are vectorised.
// Range reduction by ln 2 in two parts (Cody and Waite), then the Taylor series of degree 7 on [-0.35, 0.35].
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = std::nearbyint(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t power = (int32_t(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &power, 4);
    return p * scale;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

const int64_t BLOCK = 64; // rows whose gradients of a norm's weight are summed together

// sum = x + delta (where there is a delta), y = sum / rms(sum) * weight
template <typename T>
static void norm_forward(int64_t rows, int64_t width, float eps, const T *x, const T *delta, const T *weight, T *sum,
                         T *y, float *rstd, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const T *in = x + row * width;
        if (delta) {
            const T *more = delta + row * width;
            T *out = sum + row * width;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) store(out[i], load(in[i]) + load(more[i]));
            in = out;
        }
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < width; i++) squares += load(in[i]) * load(in[i]);
        float scale = 1.0f / std::sqrt(squares / width + eps);
        if (rstd) rstd[row] = scale;
        T *out = y + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) store(out[i], load(in[i]) * scale * load(weight[i]));
    }
}

// grad_x = grad_sum (where there is one) + rstd * (g * w - x * rstd^2 * mean(g * w * x)); partial[block] = sum g * x * rstd
template <typename T>
static void norm_backward(int64_t rows, int64_t width, const T *x, const T *weight, const float *rstd, const T *grad,
                          const T *grad_sum, T *grad_x, float *partial, int threads) {
    int64_t blocks = (rows + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        float *total = partial + block * width;
        std::memset(total, 0, width * sizeof(float));
        for (int64_t row = block * BLOCK; row < rows && row < (block + 1) * BLOCK; row++) {
            const T *in = x + row * width, *g = grad + row * width;
            float scale = rstd[row], dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int64_t i = 0; i < width; i++) dot += load(g[i]) * load(weight[i]) * load(in[i]);
            float shift = dot * scale * scale / width;
            T *out = grad_x + row * width;
            if (grad_sum) {
                const T *more = grad_sum + row * width;
#pragma omp simd
                for (int64_t i = 0; i < width; i++)
                    store(out[i], load(more[i]) + scale * (load(g[i]) * load(weight[i]) - load(in[i]) * shift));
            } else {
#pragma omp simd
                for (int64_t i = 0; i < width; i++)
                    store(out[i], scale * (load(g[i]) * load(weight[i]) - load(in[i]) * shift));
            }
#pragma omp simd
            for (int64_t i = 0; i < width; i++) total[i] += load(g[i]) * load(in[i]) * scale;
        }
    }
}

// A head, normed where there is a weight, with the pair (i, i + d / 2) turned by an angle. Gives 1 / rms.
template <typename T>
static inline float turn(int64_t width, float eps, const T *in, const T *weight, const float *cosine, const float *sine,
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
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; i++) squares += load(in[i]) * load(in[i]);
    float scale = 1.0f / std::sqrt(squares / width + eps);
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float a = load(in[i]) * scale * load(weight[i]);
        float b = load(in[i + half]) * scale * load(weight[i + half]);
        store(out[i], a * cosine[i] - b * sine[i]);
        store(out[i + half], b * cosine[i] + a * sine[i]);
    }
    return scale;
}

template <typename T>
static void turn_forward(int64_t rows, int64_t heads, int64_t width, float eps, const T *x, const T *weight,
                         const float *cosine, const float *sine, T *y, float *rstd, int threads) {
    int64_t half = width / 2;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < heads; head++) {
            int64_t at = row * heads + head;
            rstd[at] = turn(width, eps, x + at * width, weight, cosine + row * half, sine + row * half, y + at * width);
        }
}

template <typename T>
static void turn_backward(int64_t rows, int64_t heads, int64_t width, const T *x, const T *weight, const float *rstd,
                          const float *cosine, const float *sine, const T *grad, T *grad_x, float *partial,
                          int threads) {
    int64_t half = width / 2, blocks = (rows + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        std::vector<float> straight(width); // the gradient turned back
        float *g = straight.data(), *total = partial ? partial + block * width : nullptr;
        if (total) std::memset(total, 0, width * sizeof(float));
        for (int64_t row = block * BLOCK; row < rows && row < (block + 1) * BLOCK; row++) {
            const float *c = cosine + row * half, *s = sine + row * half;
            for (int64_t head = 0; head < heads; head++) {
                int64_t at = (row * heads + head) * width;
                const T *in = x + at, *given = grad + at;
                T *out = grad_x + at;
#pragma omp simd
                for (int64_t i = 0; i < half; i++) {
                    float a = load(given[i]), b = load(given[i + half]);
                    g[i] = a * c[i] + b * s[i];
                    g[i + half] = b * c[i] - a * s[i];
                }
                if (!weight) {
#pragma omp simd
                    for (int64_t i = 0; i < width; i++) store(out[i], g[i]);
                    continue;
                }
                float scale = rstd[row * heads + head], dot = 0;
#pragma omp simd reduction(+ : dot)
                for (int64_t i = 0; i < width; i++) dot += g[i] * load(weight[i]) * load(in[i]);
                float shift = dot * scale * scale / width;
#pragma omp simd
                for (int64_t i = 0; i < width; i++) {
                    store(out[i], scale * (g[i] * load(weight[i]) - load(in[i]) * shift));
                    total[i] += g[i] * load(in[i]) * scale;
                }
            }
        }
    }
}

// gate * sigmoid(gate) * up
template <typename T>
static void gate_forward(int64_t rows, int64_t width, const T *gate, const T *up, T *y, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const T *a = gate + row * width, *b = up + row * width;
        T *out = y + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) store(out[i], load(a[i]) * sigmoid(load(a[i])) * load(b[i]));
    }
}

template <typename T>
static void gate_backward(int64_t rows, int64_t width, const T *gate, const T *up, const T *grad, T *grad_gate,
                          T *grad_up, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const T *a = gate + row * width, *b = up + row * width, *g = grad + row * width;
        T *to_a = grad_gate + row * width, *to_b = grad_up + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            float x = load(a[i]), s = sigmoid(x), given = load(g[i]), u = load(b[i]);
            store(to_a[i], given * u * s * (1.0f + x * (1.0f - s)));
            store(to_b[i], given * x * s);
        }
    }
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

// sum over tokens of share * value, for `COUNT` vectors of a head's numbers
template <int COUNT, typename T>
static inline void weigh(const float *share, const T *values, const int32_t *pages, int64_t held, int64_t page_size,
                         int64_t stride, T *out) {
    lanes sum[COUNT] = {};
    for (int64_t begin = 0; begin < held; begin += PAGE) {
        const T *v = values + pages[begin / PAGE] * page_size;
        int64_t count = held - begin < PAGE ? held - begin : PAGE;
        for (int64_t i = 0; i < count; i++)
            for (int c = 0; c < COUNT; c++) sum[c] += share[begin + i] * load_lanes(v + i * stride + c * PAGE);
    }
    for (int c = 0; c < COUNT; c++)
        for (int i = 0; i < PAGE; i++) store(out[c * PAGE + i], sum[c][i]);
}

// Softmax in place.
static inline void to_shares(float *score, int64_t count) {
    float largest = -INFINITY, total = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; i++) largest = score[i] > largest ? score[i] : largest;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; i++) {
        score[i] = exponential(score[i] - largest);
        total += score[i];
    }
    float share = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) score[i] *= share;
}

// One new token of each sequence: its key and value are stored in the sequence's last page, then its query attends to
// all that the sequence holds. Pages of sequence b are table[b * table_width ...]; length[b] is what it held before.
// Values are [pages, PAGE, key heads, d]. Keys are [pages, key heads, d, PAGE], so that a vector is one number of all
// tokens of a page, and scores need no sums across a vector. Where there are tables of cosine and sine, queries and keys
// are normed and turned by the angle of their place first, as in turn_forward.
template <typename T>
static void decode_attention(int64_t batch, int64_t heads, int64_t key_heads, int64_t width, const T *query,
                             const T *key, const T *value, T *keys, T *values, const int32_t *table,
                             int64_t table_width, const int64_t *length, float scale, const T *query_weight,
                             const T *key_weight, float eps, const float *cosine, const float *sine, T *y,
                             int threads) {
    int64_t group = heads / key_heads, stride = key_heads * width, page_size = PAGE * stride;
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> score, q(group * width);
        std::vector<T> turned(width);
#pragma omp for schedule(dynamic, 1)
        for (int64_t b = 0; b < batch; b++) {
            const int32_t *pages = table + b * table_width;
            int64_t held = length[b] + 1, last = pages[length[b] / PAGE] * page_size, place = length[b] % PAGE;
            std::memcpy(values + last + place * stride, value + b * stride, stride * sizeof(T));
            const float *c = cosine + length[b] * (width / 2), *s = sine + length[b] * (width / 2);
            for (int64_t key_head = 0; key_head < key_heads; key_head++) {
                const T *new_key = key + b * stride + key_head * width;
                T *to = keys + last + key_head * width * PAGE + place;
                if (cosine) {
                    turn(width, eps, new_key, key_weight, c, s, turned.data());
                    new_key = turned.data();
                }
                for (int64_t j = 0; j < width; j++) to[j * PAGE] = new_key[j];
            }
            int64_t room = (held + PAGE - 1) / PAGE * PAGE;
            score.resize(group * room);
            for (int64_t key_head = 0; key_head < key_heads; key_head++) {
                int64_t first = key_head * width;
                for (int64_t g = 0; g < group; g++) {
                    const T *given = query + ((b * key_heads + key_head) * group + g) * width;
                    if (cosine) {
                        turn(width, eps, given, query_weight, c, s, turned.data());
                        given = turned.data();
                    }
                    for (int64_t j = 0; j < width; j++) q[g * width + j] = load(given[j]) * scale;
                }
                for (int64_t begin = 0; begin < held; begin += PAGE) {
                    const T *k = keys + pages[begin / PAGE] * page_size + first * PAGE;
                    for (int64_t g = 0; g < group; g++) {
                        lanes even = {}, odd = {};
                        for (int64_t j = 0; j + 1 < width; j += 2) {
                            even += q[g * width + j] * load_lanes(k + j * PAGE);
                            odd += q[g * width + j + 1] * load_lanes(k + (j + 1) * PAGE);
                        }
                        even += odd;
                        std::memcpy(&score[g * room + begin], &even, sizeof(even));
                    }
                }
                for (int64_t g = 0; g < group; g++) {
                    float *share = &score[g * room];
                    to_shares(share, held);
                    T *out = y + ((b * key_heads + key_head) * group + g) * width;
                    int64_t done = 0;
                    for (; done + 4 * PAGE <= width; done += 4 * PAGE)
                        weigh<4>(share, values + first + done, pages, held, page_size, stride, out + done);
                    for (; done + PAGE <= width; done += PAGE)
                        weigh<1>(share, values + first + done, pages, held, page_size, stride, out + done);
                    for (; done < width; done++) {
                        float sum = 0;
                        for (int64_t i = 0; i < held; i++)
                            sum += share[i] * load(values[pages[i / PAGE] * page_size + i % PAGE * stride + first + done]);
                        store(out[done], sum);
                    }
                }
            }
        }
    }
}

#define FOR_EACH_TYPE(DEFINE) DEFINE(float, float32) DEFINE(bfloat16, bfloat16)

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void norm_forward_##NAME(int64_t rows, int64_t width, float eps, const T *x, const T *delta,            \
                                        const T *weight, T *sum, T *y, float *rstd, int threads) {                     \
        norm_forward<T>(rows, width, eps, x, delta, weight, sum, y, rstd, threads);                                    \
    }                                                                                                                  \
    extern "C" void norm_backward_##NAME(int64_t rows, int64_t width, const T *x, const T *weight, const float *rstd,  \
                                         const T *grad, const T *grad_sum, T *grad_x, float *partial, int threads) {   \
        norm_backward<T>(rows, width, x, weight, rstd, grad, grad_sum, grad_x, partial, threads);                      \
    }                                                                                                                  \
    extern "C" void turn_forward_##NAME(int64_t rows, int64_t heads, int64_t width, float eps, const T *x,             \
                                        const T *weight, const float *cosine, const float *sine, T *y, float *rstd,    \
                                        int threads) {                                                                 \
        turn_forward<T>(rows, heads, width, eps, x, weight, cosine, sine, y, rstd, threads);                           \
    }                                                                                                                  \
    extern "C" void turn_backward_##NAME(int64_t rows, int64_t heads, int64_t width, const T *x, const T *weight,      \
                                         const float *rstd, const float *cosine, const float *sine, const T *grad,     \
                                         T *grad_x, float *partial, int threads) {                                     \
        turn_backward<T>(rows, heads, width, x, weight, rstd, cosine, sine, grad, grad_x, partial, threads);           \
    }                                                                                                                  \
    extern "C" void gate_forward_##NAME(int64_t rows, int64_t width, const T *gate, const T *up, T *y, int threads) {  \
        gate_forward<T>(rows, width, gate, up, y, threads);                                                            \
    }                                                                                                                  \
    extern "C" void gate_backward_##NAME(int64_t rows, int64_t width, const T *gate, const T *up, const T *grad,       \
                                         T *grad_gate, T *grad_up, int threads) {                                      \
        gate_backward<T>(rows, width, gate, up, grad, grad_gate, grad_up, threads);                                    \
    }                                                                                                                  \
    extern "C" void decode_attention_##NAME(                                                                           \
        int64_t batch, int64_t heads, int64_t key_heads, int64_t width, const T *query, const T *key, const T *value,  \
        T *keys, T *values, const int32_t *table, int64_t table_width, const int64_t *length, float scale,             \
        const T *query_weight, const T *key_weight, float eps, const float *cosine, const float *sine, T *y,           \
        int threads) {                                                                                                 \
        decode_attention<T>(batch, heads, key_heads, width, query, key, value, keys, values, table, table_width,       \
                            length, scale, query_weight, key_weight, eps, cosine, sine, y, threads);                   \
    }

FOR_EACH_TYPE(EXPORTS)
