// Attention of one new token to what a cache holds.
#pragma once

#include "numbers.h"
#include "turn.h"

static inline int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Softmax in place, of `count` scores; zeros after them up to a whole vector. Gives the logarithm of the sum of what was
// exponentiated.
static inline float to_shares(float *score, int64_t count) {
    int64_t room = up_to(count, PAGE);
    for (int64_t i = count; i < room; i++) score[i] = -INFINITY;
    lanes top = load_lanes(score), sum = {};
    for (int64_t s = PAGE; s < room; s += PAGE) {
        lanes x = load_lanes(score + s);
        top = x > top ? x : top;
    }
    float largest = folded(top, [](auto a, auto b) { return a > b ? a : b; });
    for (int64_t s = 0; s < room; s += PAGE) {
#pragma omp simd
        for (int i = 0; i < PAGE; i++) score[s + i] = exponential(score[s + i] - largest);
        sum += load_lanes(score + s);
    }
    float total = folded(sum, [](auto a, auto b) { return a + b; });
    float share = 1.0f / total;
    for (int64_t s = 0; s < room; s += PAGE) {
        lanes x = load_lanes(score + s) * share;
        std::memcpy(score + s, &x, sizeof(x));
    }
    for (int64_t i = count; i < room; i++) score[i] = 0;
    return largest + std::log(total);
}

// score[g] = q[g] . key of every token of a page, for some heads that share a key head.
template <int HEADS, typename T>
static inline void look(const float *q, int64_t width, const T *page, float *score, int64_t room) {
    lanes even[HEADS] = {}, odd[HEADS] = {};
    for (int64_t j = 0; j + 1 < width; j += 2) {
        lanes a = load_lanes(page + j * PAGE), b = load_lanes(page + (j + 1) * PAGE);
        for (int g = 0; g < HEADS; g++) {
            even[g] += q[g * width + j] * a;
            odd[g] += q[g * width + j + 1] * b;
        }
    }
    for (int g = 0; g < HEADS; g++) store_lanes(score + g * room, even[g] + odd[g]);
}

// out[g] = sum over tokens of share[g] * value, for some heads that share a key head, and `COUNT` vectors of their numbers.
template <int HEADS, int COUNT, typename T>
static inline void weigh(const float *share, int64_t room, const T *values, const int32_t *pages, int64_t held,
                         int64_t page_size, int64_t stride, T *out, int64_t width) {
    lanes sum[HEADS][COUNT] = {};
    for (int64_t begin = 0; begin < held; begin += PAGE) {
        const T *v = values + pages[begin / PAGE] * page_size;
        int64_t count = held - begin < PAGE ? held - begin : PAGE;
        for (int64_t i = 0; i < count; i++)
            for (int c = 0; c < COUNT; c++) {
                lanes value = load_lanes(v + i * stride + c * PAGE);
                for (int g = 0; g < HEADS; g++) sum[g][c] += share[g * room + begin + i] * value;
            }
    }
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < COUNT; c++) store_lanes(out + g * width + c * PAGE, sum[g][c]);
}

// Keys and values of sequences in progress, in pages. Values are [pages, PAGE, key heads, d]. Keys are [pages, key heads, d,
// PAGE], so that a vector is one number of all tokens of a page, and scores need no sums across a vector.
template <typename T> struct Cache {
    T *keys, *values;
    const int32_t *table; // pages of sequence b are table[b * table_width ...]
    int64_t table_width;
    const int64_t *length; // what each sequence holds before its new token
};

// How heads are normed (where there is a weight) and turned by the angle of their place.
template <typename T> struct Turning {
    const T *query_weight, *key_weight;
    float eps;
    const float *cosine, *sine; // [places, d / 2]; null where queries and keys come turned
};

struct Heads {
    int64_t heads, key_heads, width;
};

// Working memory of a thread.
template <typename T> struct Desk {
    Memory<float> score, q;
    Memory<T> turned;
};

// `HEADS` query heads that share a key head, over what sequence b holds, its new token included. q [heads, d] is scaled;
// score has room for each head.
template <int HEADS, typename T>
static inline void attend_heads(const Cache<T> &cache, Heads of, int64_t b, int64_t key_head, const float *q, T *out,
                                float *score) {
    int64_t width = of.width, stride = of.key_heads * width, page_size = PAGE * stride, first = key_head * width;
    int64_t held = cache.length[b] + 1, room = up_to(held, PAGE);
    const int32_t *pages = cache.table + b * cache.table_width;
    for (int64_t begin = 0; begin < held; begin += PAGE)
        look<HEADS>(q, width, cache.keys + pages[begin / PAGE] * page_size + first * PAGE, score + begin, room);
    for (int g = 0; g < HEADS; g++) to_shares(score + g * room, held);
    const T *values = cache.values + first;
    int64_t done = 0;
    for (; done + 4 * PAGE <= width; done += 4 * PAGE)
        weigh<HEADS, 4>(score, room, values + done, pages, held, page_size, stride, out + done, width);
    for (; done + PAGE <= width; done += PAGE)
        weigh<HEADS, 1>(score, room, values + done, pages, held, page_size, stride, out + done, width);
    for (; done < width; done++)
        for (int g = 0; g < HEADS; g++) {
            float sum = 0;
            for (int64_t i = 0; i < held; i++)
                sum += score[g * room + i] * load(values[pages[i / PAGE] * page_size + i % PAGE * stride + done]);
            store(out[g * width + done], sum);
        }
}

// A new token of sequence b: its key and value are stored in the sequence's last page, then its query attends to all that
// the sequence holds. query and out are [heads, d], key and value [key heads, d].
template <typename T>
static inline void attend(const Cache<T> &cache, const Turning<T> &turning, Heads of, int64_t b, const T *query,
                          const T *key, const T *value, float scale, T *out, Desk<T> &desk) {
    int64_t width = of.width, group = of.heads / of.key_heads, stride = of.key_heads * width;
    int64_t before = cache.length[b], last = cache.table[b * cache.table_width + before / PAGE] * PAGE * stride;
    int64_t place = before % PAGE;
    const float *c = turning.cosine + before * (width / 2), *s = turning.sine + before * (width / 2);
    desk.turned.resize(width);
    desk.q.resize(group * width);
    desk.score.resize(2 * up_to(before + 1, PAGE));
    std::memcpy(cache.values + last + place * stride, value, stride * sizeof(T));
    for (int64_t key_head = 0; key_head < of.key_heads; key_head++) {
        const T *new_key = key + key_head * width;
        T *to = cache.keys + last + key_head * width * PAGE + place;
        if (turning.cosine) {
            turn(width, turning.eps, new_key, turning.key_weight, c, s, desk.turned.data());
            new_key = desk.turned.data();
        }
        for (int64_t j = 0; j < width; j++) to[j * PAGE] = new_key[j];
        for (int64_t g = 0; g < group; g++) {
            const T *given = query + (key_head * group + g) * width;
            if (turning.cosine) {
                turn(width, turning.eps, given, turning.query_weight, c, s, desk.turned.data());
                given = desk.turned.data();
            }
            for (int64_t j = 0; j < width; j++) desk.q[g * width + j] = load(given[j]) * scale;
        }
        T *heads = out + key_head * group * width;
        int64_t g = 0;
        for (; g + 2 <= group; g += 2)
            attend_heads<2>(cache, of, b, key_head, &desk.q[g * width], heads + g * width, desk.score.data());
        if (g < group)
            attend_heads<1>(cache, of, b, key_head, &desk.q[g * width], heads + g * width, desk.score.data());
    }
}
