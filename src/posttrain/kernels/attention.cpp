// Attention: of one new token of each sequence to what a cache holds, and of whole sequences laid end to end to
// themselves, with gradients.
//
// A token's output is computed by one thread, with sums over keys in their order, so that it depends on its own
// sequence alone, and is the same to the bit whether the token comes as part of a sequence, after a prefix that others
// share, or by itself after a cache. All arithmetic is in float.
//
// Heads H (of which G share a key head), head width d, S tokens that are attended to.

#include "attend.h"

#include <algorithm>

// One new token of each sequence of a batch; see `attend`. query and y are [batch, H, d], key and value [batch, K, d].
template <typename T>
static void decode_attention(int64_t batch, Heads of, const T *query, const T *key, const T *value, Cache<T> cache,
                             float scale, T *y, int threads) {
    int64_t stride = of.heads * of.width, key_stride = of.key_heads * of.width;
#pragma omp parallel num_threads(threads)
    {
        Desk<T> desk;
        Ahead none{};
#pragma omp for schedule(dynamic, 1)
        for (int64_t b = 0; b < batch; b++)
            attend(cache, Rotary<T>{}, of, b, query + b * stride, key + b * key_stride, value + b * key_stride, scale,
                   y + b * stride, desk, none);
    }
}

const int64_t TILE = 8; // queries that are computed together

static inline void at_least(Memory<float> &numbers, int64_t count) {
    if (int64_t(numbers.size()) < count) numbers.resize(count);
}

// Sequences laid end to end, as rows of queries, keys and values. Sequence i has rows begin[i] ... begin[i + 1] and comes
// after all rows of sequence after[i], unless that is -1; those that others come after come after none themselves.
// Families are `order[family[f]] ... order[family[f + 1]]`: a sequence that comes after none, then all that come after it.
struct Layout {
    int64_t families;
    const int64_t *begin, *after, *family, *order;

    int64_t count(int64_t i) const { return begin[i + 1] - begin[i]; }
    int64_t past(int64_t i) const { return after[i] < 0 ? 0 : count(after[i]); }
};

// Rows of one head, among those of others: element j of row i is at[i * stride + j].
template <typename T> struct Rows {
    T *at;
    int64_t stride;

    T *row(int64_t i) const { return at + i * stride; }
};

// Brings rows near that are read soon: heads lie apart in memory.
template <typename T> static inline void fetch(Rows<T> from, int64_t begin, int64_t count, int64_t width) {
    for (int64_t i = begin; i < begin + count; i++)
        for (int64_t j = 0; j < width; j += 64 / sizeof(T)) __builtin_prefetch(from.row(i) + j);
}

// What a sequence attends to, as float: row by row, and in tiles of 16 tokens as the cache holds keys. Widths are
// padded with zeros to a multiple of 16. A thread's memory, which it uses for one sequence after another.
struct Attended {
    int64_t wide;
    bool with_rows, with_tiles;
    Memory<float> rows, tiles;

    Attended(int64_t width, bool with_rows, bool with_tiles)
        : wide(up_to(width, PAGE)), with_rows(with_rows), with_tiles(with_tiles) {}

    void make_room(int64_t tokens) {
        if (with_rows) at_least(rows, up_to(tokens, PAGE) * wide);
        if (with_tiles) at_least(tiles, up_to(tokens, PAGE) * wide);
    }

    // Zeros after the last token up to a whole page: what is there may be another sequence's, and NaN.
    void end(int64_t tokens) {
        int64_t last = tokens % PAGE;
        if (last == 0) return;
        if (with_rows) std::memset(&rows[tokens * wide], 0, (PAGE - last) * wide * sizeof(float));
        for (int64_t j = 0; j < wide && with_tiles; j++) {
            float *at = &tiles[tokens / PAGE * PAGE * wide + j * PAGE];
            store_lanes(at, first(last, load_lanes(at), 0.0f));
        }
    }

    // Take `count` rows as tokens `first`, `first` + 1, ...
    template <typename T> void put(Rows<const T> from, int64_t begin, int64_t count, int64_t first, int64_t width) {
        if (with_rows)
            for (int64_t i = 0; i < count; i++)
                for (int64_t j = 0; j < width; j++) rows[(first + i) * wide + j] = load(from.row(begin + i)[j]);
        for (int64_t i = 0; i < count && with_tiles;) {
            int64_t token = first + i, done = 0;
            bool whole = token % PAGE == 0 && i + PAGE <= count;
            float *tile = &tiles[token / PAGE * PAGE * wide + token % PAGE];
            for (; whole && done + PAGE <= width; done += PAGE) {
                lanes x[PAGE];
                for (int64_t t = 0; t < PAGE; t++) x[t] = load_lanes(from.row(begin + i + t) + done);
                transpose(x);
                for (int64_t j = 0; j < PAGE; j++) store_lanes(tile + (done + j) * PAGE, x[j]);
            }
            int64_t each = whole ? PAGE : 1;
            for (int64_t t = 0; t < each; t++)
                for (int64_t j = done; j < width; j++) tile[j * PAGE + t] = load(from.row(begin + i + t)[j]);
            i += each;
        }
    }

    // Take the keys of a page of a cache as tokens `first` ...: `width` times 16 numbers.
    template <typename T> void put_tile(const T *page, int64_t first, int64_t width) {
        float *tile = &tiles[first * wide];
        for (int64_t j = 0; j < width * PAGE; j++) tile[j] = load(page[j]);
    }
};

// out[r][16 tokens] = x[r] . tokens, for a tile of rows; in the order of sums of `attend`.
static inline void dots(const float *x, const float *tile, int64_t wide, float *out, int64_t out_stride) {
    lanes even[TILE] = {}, odd[TILE] = {};
    for (int64_t j = 0; j < wide; j += 2) {
        lanes a = load_lanes(tile + j * PAGE), b = load_lanes(tile + (j + 1) * PAGE);
#pragma GCC unroll 8
        for (int r = 0; r < TILE; r++) {
            even[r] = plus_product(even[r], x[r * wide + j], a);
            odd[r] = plus_product(odd[r], x[r * wide + j + 1], b);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < TILE; r++) {
        lanes sum = even[r] + odd[r];
        std::memcpy(out + r * out_stride, &sum, sizeof(sum));
    }
}

// out[a][16 c ...] (+)= sum over b < count of weight[a * by_a + b * by_b] * x[b][16 c ...], for 4 a and C vectors
template <int C>
static inline void weighted(int64_t count, const float *weight, int64_t by_a, int64_t by_b, const float *x,
                            int64_t x_stride, float *out, int64_t out_stride, bool add) {
    lanes sum[4][C] = {};
    if (add)
#pragma GCC unroll 8
        for (int a = 0; a < 4; a++)
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) sum[a][c] = load_lanes(out + a * out_stride + c * PAGE);
    for (int64_t b = 0; b < count; b++) {
        lanes given[C];
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) given[c] = load_lanes(x + b * x_stride + c * PAGE);
#pragma GCC unroll 8
        for (int a = 0; a < 4; a++)
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) sum[a][c] = plus_product(sum[a][c], weight[a * by_a + b * by_b], given[c]);
    }
#pragma GCC unroll 8
    for (int a = 0; a < 4; a++)
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) std::memcpy(out + a * out_stride + c * PAGE, &sum[a][c], sizeof(lanes));
}

// The same for `rows` a, a multiple of 4, and rows of x and out of `wide` numbers, a multiple of 16.
static inline void product(int64_t rows, int64_t count, const float *weight, int64_t by_a, int64_t by_b,
                           const float *x, float *out, int64_t wide, bool add) {
    for (int64_t a = 0; a < rows; a += 4) {
        int64_t done = 0;
        for (; done + 4 * PAGE <= wide; done += 4 * PAGE)
            weighted<4>(count, weight + a * by_a, by_a, by_b, x + done, wide, out + a * wide + done, wide, add);
        for (; done < wide; done += PAGE)
            weighted<1>(count, weight + a * by_a, by_a, by_b, x + done, wide, out + a * wide + done, wide, add);
    }
}

// A tile of rows as float, times `scale`; zeros beyond `count`.
template <typename T>
static inline void take(Rows<const T> from, int64_t begin, int64_t count, int64_t width, int64_t wide, float scale,
                        float *to) {
    std::memset(to, 0, TILE * wide * sizeof(float));
    for (int64_t r = 0; r < count; r++)
        for (int64_t j = 0; j < width; j++) to[r * wide + j] = load(from.row(begin + r)[j]) * scale;
}

template <typename T>
static inline void give(const float *from, int64_t begin, int64_t count, int64_t width, int64_t wide, float scale,
                        Rows<T> to) {
    for (int64_t r = 0; r < count; r++)
        for (int64_t j = 0; j < width; j++) store(to.row(begin + r)[j], from[r * wide + j] * scale);
}

// Memory of a thread for a tile of queries.
struct Scores {
    Memory<float> q, out, score;

    explicit Scores(int64_t wide) : q(TILE * wide), out(TILE * wide) {}
};

// The new tokens of a sequence, for one head: queries and outputs, the first row, and where `to_shares` puts what it gives,
// if anywhere.
template <typename T> struct Queries {
    Rows<const T> query;
    Rows<T> y;
    int64_t begin;
    float *sums;
    int64_t sums_stride;
};

// Outputs of `own` new tokens after `past` others, for the `group` heads that share a key head; `of` gives each.
template <typename T, typename Of>
static inline void attend_to(const Attended &k, const Attended &v, int64_t past, int64_t own, float scale, Scores &desk,
                             Of of, int64_t group, int64_t width) {
    int64_t room = up_to(past + own, PAGE), wide = k.wide;
    at_least(desk.score, TILE * room);
    float *q = desk.q.data(), *out = desk.out.data(), *score = desk.score.data();
    for (int64_t g = 0; g < group; g++) {
        Queries<T> head = of(g);
        for (int64_t t = 0; t < own; t += TILE) {
            int64_t count = own - t < TILE ? own - t : TILE, seen = up_to(past + t + count, PAGE);
            if (t + TILE < own || g + 1 < group) {
                bool on = t + TILE < own;
                int64_t soon = on ? t + TILE : 0;
                fetch(on ? head.query : of(g + 1).query, head.begin + soon, std::min(own - soon, TILE), width);
            }
            take(head.query, head.begin + t, count, width, wide, scale, q);
            for (int64_t s = 0; s < seen; s += PAGE) dots(q, &k.tiles[s * wide], wide, &score[s], room);
            for (int64_t r = 0; r < TILE; r++) {
                int64_t held = r < count ? past + t + r + 1 : 0;
                if (held) {
                    float sum = to_shares(&score[r * room], held);
                    if (head.sums) head.sums[(t + r) * head.sums_stride] = sum;
                }
                int64_t done = up_to(held, PAGE);
                if (done < seen) std::memset(&score[r * room + done], 0, (seen - done) * sizeof(float));
            }
            product(TILE, seen, score, room, 1, v.rows.data(), out, wide, false);
            give(out, head.begin + t, count, width, wide, 1.0f, head.y);
        }
    }
}

// Every token attends to those before it and to itself. query and y are [R, H, d], key and value [R, K, d]; sums[row, head]
// is what `to_shares` gives.
template <typename T>
static void packed_forward(Layout layout, int64_t heads, int64_t key_heads, int64_t width, const T *query, const T *key,
                           const T *value, float scale, T *y, float *sums, int threads) {
    int64_t group = heads / key_heads, sequences = layout.family[layout.families];
    int64_t q_stride = heads * width, k_stride = key_heads * width;
#pragma omp parallel num_threads(threads)
    {
        Attended k(width, false, true), v(width, true, false);
        Scores desk(k.wide);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < sequences * key_heads; item++) {
            int64_t i = layout.order[item / key_heads], key_head = item % key_heads;
            int64_t begin = layout.begin[i], own = layout.count(i), past = layout.past(i), tokens = past + own;
            if (own == 0) continue;
            Rows<const T> k_rows{key + key_head * width, k_stride}, v_rows{value + key_head * width, k_stride};
            for (Attended *held : {&k, &v}) {
                Rows<const T> from = held == &k ? k_rows : v_rows;
                held->make_room(tokens);
                if (past) held->put(from, layout.begin[layout.after[i]], past, 0, width);
                held->put(from, begin, own, past, width);
                held->end(tokens);
            }
            attend_to<T>(k, v, past, own, scale, desk, [&](int64_t g) {
                int64_t head = key_head * group + g;
                return Queries<T>{{query + head * width, q_stride}, {y + head * width, q_stride}, begin,
                                  sums + begin * heads + head, heads};
            }, group, width);
        }
    }
}

// Sequences of which a cache holds the first tokens, and whose new ones are laid end to end: rows begin[b] ... begin[b + 1]
// of sequence b. The same as if the whole sequence were given.
template <typename T>
static void continued_attention(int64_t batch, Heads of, const int64_t *begin, const T *query, const T *key,
                                const T *value, Cache<const T> cache, float scale, T *y, int threads) {
    int64_t width = of.width, group = of.heads / of.key_heads;
    int64_t q_stride = of.heads * width, k_stride = of.key_heads * width;
#pragma omp parallel num_threads(threads)
    {
        Attended k(width, false, true), v(width, true, false);
        Scores desk(k.wide);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < batch * of.key_heads; item++) {
            int64_t b = item / of.key_heads, key_head = item % of.key_heads;
            int64_t first = begin[b], own = begin[b + 1] - first, past = cache.length[b], tokens = past + own;
            if (own == 0) continue;
            const int32_t *pages = cache.table + b * cache.table_width;
            for (Attended *held : {&k, &v}) held->make_room(tokens);
            for (int64_t t = 0; t < past; t += PAGE) {
                const T *tile = cache.keys + (pages[t / PAGE] * of.key_heads + key_head) * width * PAGE;
                k.put_tile(tile, t, width);
                Rows<const T> rows{cache.values + pages[t / PAGE] * PAGE * k_stride + key_head * width, k_stride};
                v.put(rows, 0, past - t < PAGE ? past - t : PAGE, t, width);
            }
            k.put(Rows<const T>{key + key_head * width, k_stride}, first, own, past, width);
            v.put(Rows<const T>{value + key_head * width, k_stride}, first, own, past, width);
            for (Attended *held : {&k, &v}) held->end(tokens);
            attend_to<T>(k, v, past, own, scale, desk, [&](int64_t g) {
                int64_t head = key_head * group + g;
                return Queries<T>{{query + head * width, q_stride}, {y + head * width, q_stride}, first, nullptr, 0};
            }, group, width);
        }
    }
}

// From scores and the gradients of shares: shares and the gradients of scores, for `count` tokens and up to a whole
// vector.
static inline void shares_and_gradients(int64_t count, float log_sum, float mean, float *score, float *grad) {
    in_vectors(up_to(count, PAGE), [&](int64_t s, auto at, auto n) {
        lanes x[n], g[n];
        at.take(score + s, x), at.take(grad + s, g);
        for (int v = 0; v < n; v++) x[v] -= log_sum;
        exponentials(x);
        for (int v = 0; v < n; v++) g[v] = x[v] * (g[v] - mean);
        at.put(x, score + s), at.put(g, grad + s);
    });
}

// Gradients of all three. A thread does a whole family for a key head, because what comes after a prefix adds to the
// gradients of its keys and values, in the order of the family.
template <typename T>
static void packed_backward(Layout layout, int64_t heads, int64_t key_heads, int64_t width, const T *query,
                            const T *key, const T *value, float scale, const T *y, const float *sums, const T *grad,
                            T *grad_query, T *grad_key, T *grad_value, int threads) {
    int64_t group = heads / key_heads, q_stride = heads * width, k_stride = key_heads * width;
#pragma omp parallel num_threads(threads)
    {
        Attended k(width, true, true), v(width, false, true);
        int64_t wide = k.wide;
        Memory<float> q(TILE * wide), dy(TILE * wide), out(TILE * wide), dk, dv, share, ds;
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < layout.families * key_heads; item++) {
            int64_t family = item / key_heads, key_head = item % key_heads;
            int64_t first = layout.family[family], last = layout.family[family + 1];
            int64_t root = layout.order[first], prefix = layout.count(root), longest = 0;
            for (int64_t m = first; m < last; m++) {
                int64_t i = layout.order[m], tokens = layout.past(i) + layout.count(i);
                longest = tokens > longest ? tokens : longest;
            }
            int64_t room = up_to(longest, PAGE);
            k.make_room(longest), v.make_room(longest);
            for (Memory<float> *of_tokens : {&dk, &dv}) at_least(*of_tokens, room * wide);
            for (Memory<float> *of_scores : {&share, &ds}) at_least(*of_scores, TILE * room);
            Rows<const T> k_rows{key + key_head * width, k_stride}, v_rows{value + key_head * width, k_stride};
            Rows<T> k_grads{grad_key + key_head * width, k_stride}, v_grads{grad_value + key_head * width, k_stride};
            for (int64_t m = first; m < last; m++) {
                int64_t i = layout.order[m], begin = layout.begin[i], own = layout.count(i), past = layout.past(i);
                k.put(k_rows, begin, own, past, width);
                v.put(v_rows, begin, own, past, width);
                k.end(past + own), v.end(past + own);
                int64_t used = up_to(past + own, PAGE);
                std::memset(&dk[past * wide], 0, (used - past) * wide * sizeof(float));
                std::memset(&dv[past * wide], 0, (used - past) * wide * sizeof(float));
                for (int64_t head = key_head * group; head < (key_head + 1) * group; head++)
                    for (int64_t t = 0; t < own; t += TILE) {
                        int64_t count = own - t < TILE ? own - t : TILE, seen = up_to(past + t + count, PAGE);
                        Rows<const T> q_rows{query + head * width, q_stride}, y_rows{y + head * width, q_stride};
                        Rows<const T> dy_rows{grad + head * width, q_stride};
                        bool on = t + TILE < own; // the next tile is of the same head, or the first of the next
                        int64_t soon = begin + (on ? t + TILE : 0);
                        for (const Rows<const T> &rows : {q_rows, dy_rows, y_rows})
                            fetch(Rows<const T>{rows.at + (on ? 0 : width), q_stride}, soon,
                                  std::min(begin + own - soon, TILE), width);
                        take(q_rows, begin + t, count, width, wide, scale, q.data());
                        take(dy_rows, begin + t, count, width, wide, 1.0f, dy.data());
                        for (int64_t s = 0; s < seen; s += PAGE) {
                            dots(q.data(), &k.tiles[s * wide], wide, &share[s], room);
                            dots(dy.data(), &v.tiles[s * wide], wide, &ds[s], room);
                        }
                        for (int64_t r = 0; r < TILE; r++) {
                            int64_t held = r < count ? past + t + r + 1 : 0;
                            float *p = &share[r * room], *d = &ds[r * room], mean = 0;
                            if (held) {
                                float sum = sums[(begin + t + r) * heads + head];
                                const T *out_row = y_rows.row(begin + t + r);
#pragma omp simd reduction(+ : mean)
                                for (int64_t j = 0; j < width; j++) mean += dy[r * wide + j] * load(out_row[j]);
                                shares_and_gradients(held, sum, mean, p, d);
                            }
                            std::memset(p + held, 0, (seen - held) * sizeof(float));
                            std::memset(d + held, 0, (seen - held) * sizeof(float));
                        }
                        product(TILE, seen, ds.data(), room, 1, k.rows.data(), out.data(), wide, false);
                        give(out.data(), begin + t, count, width, wide, scale,
                             Rows<T>{grad_query + head * width, q_stride});
                        product(seen, TILE, ds.data(), 1, room, q.data(), dk.data(), wide, true);
                        product(seen, TILE, share.data(), 1, room, dy.data(), dv.data(), wide, true);
                    }
                if (i == root) continue;
                give(&dk[past * wide], begin, own, width, wide, 1.0f, k_grads);
                give(&dv[past * wide], begin, own, width, wide, 1.0f, v_grads);
            }
            give(dk.data(), layout.begin[root], prefix, width, wide, 1.0f, k_grads);
            give(dv.data(), layout.begin[root], prefix, width, wide, 1.0f, v_grads);
        }
    }
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void decode_attention_##NAME(                                                                           \
        int64_t batch, int64_t heads, int64_t key_heads, int64_t width, const T *query, const T *key, const T *value,  \
        T *keys, T *values, const int32_t *table, int64_t table_width, const int64_t *length, float scale, T *y,       \
        int threads) {                                                                                                 \
        decode_attention<T>(batch, {heads, key_heads, width}, query, key, value,                                       \
                            {keys, values, table, table_width, length}, scale, y, threads);                            \
    }                                                                                                                  \
    extern "C" void continued_attention_##NAME(                                                                        \
        int64_t batch, int64_t heads, int64_t key_heads, int64_t width, const int64_t *begin, const T *query,          \
        const T *key, const T *value, const T *keys, const T *values, const int32_t *table, int64_t table_width,       \
        const int64_t *length, float scale, T *y, int threads) {                                                       \
        continued_attention<T>(batch, {heads, key_heads, width}, begin, query, key, value,                             \
                               {keys, values, table, table_width, length}, scale, y, threads);                         \
    }                                                                                                                  \
    extern "C" void packed_forward_##NAME(                                                                             \
        int64_t families, const int64_t *begin, const int64_t *after, const int64_t *family, const int64_t *order,     \
        int64_t heads, int64_t key_heads, int64_t width, const T *query, const T *key, const T *value, float scale,    \
        T *y, float *sums, int threads) {                                                                              \
        packed_forward<T>({families, begin, after, family, order}, heads, key_heads, width, query, key, value, scale,  \
                          y, sums, threads);                                                                           \
    }                                                                                                                  \
    extern "C" void packed_backward_##NAME(                                                                            \
        int64_t families, const int64_t *begin, const int64_t *after, const int64_t *family, const int64_t *order,     \
        int64_t heads, int64_t key_heads, int64_t width, const T *query, const T *key, const T *value, float scale,    \
        const T *y, const float *sums, const T *grad, T *grad_query, T *grad_key, T *grad_value, int threads) {        \
        packed_backward<T>({families, begin, after, family, order}, heads, key_heads, width, query, key, value, scale, \
                           y, sums, grad, grad_query, grad_key, grad_value, threads);                                  \
    }

FOR_EACH_TYPE(EXPORTS)
