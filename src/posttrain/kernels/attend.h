// Attention of one new token to what a cache holds.
#pragma once

#include "numbers.h"
#include "row.h"

// What will be read soon, in pieces of the same size: brought nearer a line of the processor's cache at a time, while
// something else is computed.
struct Ahead {
    const char *const *piece = nullptr, *const *end = nullptr;
    int64_t bytes = 0, done = 0;

    void fetch() {
        if (piece == end) return;
        __builtin_prefetch(*piece + done, 0, 2);
        done += 64;
        if (done < bytes) return;
        done = 0;
        piece++;
    }
};

// Softmax in place, of `count` scores; zeros after them up to a whole vector. Gives the logarithm of the sum of what was
// exponentiated.
static inline float to_shares(float *score, int64_t count) {
    int64_t last = (count - 1) / PAGE * PAGE;
    lanes end = first(count - last, load_lanes(score + last), -INFINITY), top = end;
    for (int64_t s = 0; s < last; s += PAGE) {
        lanes x = load_lanes(score + s);
        top = x > top ? x : top;
    }
    float largest = folded(top, [](auto a, auto b) { return a > b ? a : b; });
    lanes sum = {};
    auto exponentiate = [&](int64_t s, auto n) {
        lanes x[n];
        for (int v = 0; v < n; v++) x[v] = load_lanes(score + s + v * PAGE) - largest;
        exponentials(x);
        for (int v = 0; v < n; v++) {
            store_lanes(score + s + v * PAGE, x[v]);
            sum += x[v];
        }
        return s + n * PAGE;
    };
    int64_t done = 0;
    while (done + 4 * PAGE <= last) done = exponentiate(done, std::integral_constant<int, 4>{});
    while (done < last) done = exponentiate(done, std::integral_constant<int, 1>{});
    end = first(count - last, exponentials(end - largest), 0.0f);
    float total = folded(sum + end, [](auto a, auto b) { return a + b; });
    float share = 1.0f / total;
    end *= share;
    store_lanes(score + last, end);
    for (int64_t s = 0; s < last; s += PAGE) store_lanes(score + s, load_lanes(score + s) * share);
    return largest + std::log(total);
}

// score[g] = q[g] . key of every token of `PAGES` pages, for some heads that share a key head.
template <int HEADS, int PAGES, typename T>
static inline void look(const float *q, int64_t width, const T *const *page, float *score, int64_t room,
                        Ahead &ahead) {
    lanes even[PAGES][HEADS] = {}, odd[PAGES][HEADS] = {};
    for (int64_t j = 0; j + 1 < width; j += 2) {
        if (j % 4 == 0) ahead.fetch();
        for (int p = 0; p < PAGES; p++) {
            lanes a = load_lanes(page[p] + j * PAGE), b = load_lanes(page[p] + (j + 1) * PAGE);
            for (int g = 0; g < HEADS; g++) {
                even[p][g] = plus_product(even[p][g], q[g * width + j], a);
                odd[p][g] = plus_product(odd[p][g], q[g * width + j + 1], b);
            }
        }
    }
    for (int p = 0; p < PAGES; p++)
        for (int g = 0; g < HEADS; g++) store_lanes(score + g * room + p * PAGE, even[p][g] + odd[p][g]);
}

// Keys and values of sequences in progress, in pages. Values are [pages, PAGE, key heads, d]. Keys are [pages, key heads, d,
// PAGE], so that a vector is one number of all tokens of a page, and scores need no sums across a vector.
template <typename T> struct Cache {
    T *keys, *values;
    const int32_t *table; // pages of sequence b are table[b * table_width ...]
    int64_t table_width;
    const int64_t *length; // what each sequence holds before its new token
};

// How heads are normed (where there is a weight) and rotated by the angle of their place.
template <typename T> struct Rotary {
    const T *query_weight, *key_weight;
    float eps;
    const float *cosine, *sine; // [places, d / 2]; null where queries and keys come rotated
};

struct Heads {
    int64_t heads, key_heads, width;
};

// Working memory of a thread.
template <typename T> struct Desk {
    Memory<float> score, q;
    Memory<T> rotated;
};

// What a sequence holds for one key head.
template <typename T> struct Held {
    const T *keys, *values;
    const int32_t *pages;
    int64_t tokens, stride; // a page has 16 times `stride` numbers of each kind

    Held at(int64_t number) const { return {keys, values + number, pages, tokens, stride}; }
};

// out[g] = sum over tokens of share[g] * value, for some heads that share a key head, and `COUNT` vectors of their numbers.
template <int HEADS, int COUNT, typename T>
static inline void weigh(const float *share, int64_t room, const Held<T> &held, T *out, int64_t width, Ahead &ahead) {
    lanes sum[HEADS][COUNT] = {};
    for (int64_t begin = 0; begin < held.tokens; begin += PAGE) {
        const T *v = held.values + held.pages[begin / PAGE] * PAGE * held.stride;
        int64_t count = held.tokens - begin < PAGE ? held.tokens - begin : PAGE;
        for (int64_t i = 0; i < count; i++) {
            ahead.fetch();
            for (int c = 0; c < COUNT; c++) {
                lanes value = load_lanes(v + i * held.stride + c * PAGE);
                for (int g = 0; g < HEADS; g++) sum[g][c] = plus_product(sum[g][c], share[g * room + begin + i], value);
            }
        }
    }
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < COUNT; c++) store_lanes(out + g * width + c * PAGE, sum[g][c]);
}

// Scores of `HEADS` query heads that share a key head, for all that is held; two pages at a time, since additions to one
// sum wait for each other.
template <int HEADS, typename T>
static inline void look_at_all(const float *q, int64_t width, const Held<T> &held, float *score, int64_t room, Ahead &ahead) {
    int64_t count = room / PAGE, p = 0, size = PAGE * held.stride;
    for (; p + 2 <= count; p += 2) {
        const T *at[2] = {held.keys + held.pages[p] * size, held.keys + held.pages[p + 1] * size};
        look<HEADS, 2>(q, width, at, score + p * PAGE, room, ahead);
    }
    if (p < count) {
        const T *at = held.keys + held.pages[p] * size;
        look<HEADS, 1>(q, width, &at, score + p * PAGE, room, ahead);
    }
}

// Outputs of `HEADS` query heads that share a key head.
template <int HEADS, typename T>
static inline void weigh_all(const float *share, int64_t room, const Held<T> &held, T *out, int64_t width, Ahead &ahead) {
    int64_t done = 0;
    for (; done + 4 * PAGE <= width; done += 4 * PAGE)
        weigh<HEADS, 4>(share, room, held.at(done), out + done, width, ahead);
    for (; done + PAGE <= width; done += PAGE) weigh<HEADS, 1>(share, room, held.at(done), out + done, width, ahead);
    for (; done < width; done++)
        for (int g = 0; g < HEADS; g++) {
            float sum = 0;
            for (int64_t i = 0; i < held.tokens; i++) {
                int64_t row = held.pages[i / PAGE] * PAGE + i % PAGE;
                sum = plus_product(sum, share[g * room + i], load(held.values[row * held.stride + done]));
            }
            store(out[g * width + done], sum);
        }
}

// A new token of sequence b: its key and value are stored in the sequence's last page, then its query attends to all that
// the sequence holds. query and out are [heads, d], key and value [key heads, d].
template <typename T>
static inline void attend(const Cache<T> &cache, const Rotary<T> &rotary, Heads of, int64_t b, const T *query,
                          const T *key, const T *value, float scale, T *out, Desk<T> &desk, Ahead &ahead) {
    int64_t width = of.width, group = of.heads / of.key_heads, stride = of.key_heads * width;
    const int32_t *pages = cache.table + b * cache.table_width;
    int64_t before = cache.length[b], tokens = before + 1, room = up_to(tokens, PAGE), place = before % PAGE;
    int64_t last = pages[before / PAGE] * PAGE * stride;
    desk.rotated.resize(width);
    desk.q.resize(of.heads * width);
    desk.score.resize(of.heads * room);
    auto rotated = [&](const T *head, const T *weight) -> const T * {
        if (!rotary.cosine) return head;
        const float *c = rotary.cosine + before * (width / 2), *s = rotary.sine + before * (width / 2);
        rotate(width, rotary.eps, head, weight, c, s, desk.rotated.data());
        return desk.rotated.data();
    };
    std::memcpy(cache.values + last + place * stride, value, stride * sizeof(T));
    for (int64_t k = 0; k < of.key_heads; k++) {
        const T *given = rotated(key + k * width, rotary.key_weight);
        T *to = cache.keys + last + k * width * PAGE + place;
        for (int64_t j = 0; j < width; j++) to[j * PAGE] = given[j];
    }
    float *q = desk.q.data(), *score = desk.score.data();
    for (int64_t h = 0; h < of.heads; h++) {
        const T *given = rotated(query + h * width, rotary.query_weight);
        for (int64_t j = 0; j < width; j++) q[h * width + j] = load(given[j]) * scale;
    }
    // All scores, then all shares: what one head waits for in its softmax, another computes meanwhile.
    auto for_heads = [&](auto two, auto one) {
        for (int64_t h = 0; h < of.heads;) {
            int64_t first = h / group * width;
            Held<T> held{cache.keys + first * PAGE, cache.values + first, pages, tokens, stride};
            bool pair = h % group + 2 <= group;
            pair ? two(h, held) : one(h, held);
            h += pair ? 2 : 1;
        }
    };
    for_heads([&](int64_t h, auto &held) { look_at_all<2>(q + h * width, width, held, score + h * room, room, ahead); },
              [&](int64_t h, auto &held) { look_at_all<1>(q + h * width, width, held, score + h * room, room, ahead); });
    for (int64_t h = 0; h < of.heads; h++) to_shares(score + h * room, tokens);
    for_heads([&](int64_t h, auto &held) { weigh_all<2>(score + h * room, room, held, out + h * width, width, ahead); },
              [&](int64_t h, auto &held) { weigh_all<1>(score + h * room, room, held, out + h * width, width, ahead); });
}
