// A decoder's layer before and after its attention, a few rows at a time, with the gradients of the rows.
//
// What lies between products stays near the processor, written as the next one takes it and by the panel where it can be;
// memory sees what goes in, what comes out and what the backward pass needs. Gradients of matrices are products over all
// rows: the caller makes them from what is given for it here.
//
// Rows R, width D, heads H, key heads K, head width d, width of the MLP F. Matrices come as `lay_out` has them. Every sum
// over rows (gradients of norm weights) is taken in blocks, in order.

#include "row.h"
#include "tiles.h"

#include <omp.h>

// Rows that a thread takes through everything at a time: in whole tiles, so that threads end nearly together, and of such
// sizes the largest, as each block reads the matrices anew; more would not stay near. 730 rows in blocks of 108 are 7, of
// which two threads take 432 and 298 rows; in blocks of 96 they take 384 and 346. It depends on the rows alone: sums over
// rows are by block, and must not change with the number of threads.
static int64_t block_of(int64_t rows) {
    auto longest = [&](int64_t size) { return ((rows + size - 1) / size + 1) / 2 * size; };
    int64_t least = INT64_MAX, best = 0;
    for (int64_t size = 6 * TALL; size <= 18 * TALL; size += TALL) least = std::min(least, longest(size));
    for (int64_t size = 6 * TALL; size <= 18 * TALL; size += TALL)
        if (longest(size) <= least + least / 32) best = size;
    return best;
}

template <typename In, typename Out> static inline void give(int64_t width, const In *in, Out *out) {
#pragma omp simd
    for (int64_t i = 0; i < width; i++) store(out[i], load(in[i]));
}

template <typename T> static inline void add_bias(int64_t width, const T *bias, float *row) {
    if (!bias) return;
#pragma omp simd
    for (int64_t i = 0; i < width; i++) row[i] += load(bias[i]);
}

// Heads of queries and of keys, and their width.
struct HeadSizes {
    int64_t query, key, width;

    int64_t rotated() const { return (query + key) * width; }
    int64_t all() const { return (query + 2 * key) * width; }
};

// A row of queries, keys and values, each a tensor of its own.
template <typename T> struct Projected {
    T *query, *key, *value;

    T *head(const HeadSizes &n, int64_t row, int64_t h) const {
        return h < n.query ? query + (row * n.query + h) * n.width : key + (row * n.key + h - n.query) * n.width;
    }
    T *values(const HeadSizes &n, int64_t row) const { return value + row * n.key * n.width; }
};

// How queries and keys are rotated: weights of their norms, if they are normed, and the angles of each row.
template <typename T> struct Angles {
    const T *query_norm, *key_norm;
    const float *cosine, *sine;
};

// total = x + delta (x alone without a delta), queries, keys and values of its norm. `straight` [R, (H + K) d], if it is
// given, gets queries and keys before they are rotated, `head_rstd` [R, H + K] what scaled them.
template <typename T>
static void before_forward(int64_t rows, int64_t width, HeadSizes n, float eps, float head_eps, const T *x, const T *delta,
                           const T *norm, const Laid<T> *panels, const T *bias, Angles<T> by, T *total, float *rstd,
                           T *straight, float *head_rstd, Projected<T> out, int threads) {
    const int64_t size = block_of(rows);
    const Panels<Laid<T>> matrix{panels, width, n.all()};
#pragma omp parallel num_threads(threads)
    {
        Multiplied<Laid<T>> hidden(size, width);
        Near projected(size, n.all());
        Memory<T> own(n.rotated());
        Soon soon;
#pragma omp for schedule(dynamic, 1)
        for (int64_t begin = 0; begin < rows; begin += size) {
            int64_t count = rows - begin < size ? rows - begin : size;
            soon.clear();
            for (T *head : {out.query, out.key, out.value}) {
                int64_t wide = (head == out.query ? n.query : n.key) * n.width;
                soon.add(head + begin * wide, count * wide);
            }
            if (straight) soon.add(straight + begin * n.rotated(), count * n.rotated());
            int64_t next = begin + omp_get_num_threads() * size, more = rows - next < size ? rows - next : size;
            for (const T *of_width : {x, delta, (const T *)total})
                if (of_width && more > 0) soon.add(of_width + next * width, more * width);
            for (int64_t r = 0; r < count; r++) {
                const T *in = x + (begin + r) * width;
                T *sum = total + (begin + r) * width;
                if (delta) {
                    const T *more = delta + (begin + r) * width;
#pragma omp simd
                    for (int64_t i = 0; i < width; i++) store(sum[i], load(in[i]) + load(more[i]));
                } else {
                    std::memcpy(sum, in, width * sizeof(T));
                }
                rstd[begin + r] = normed(width, eps, sum, norm, hidden.row(r));
            }
            matrix.multiply(count, hidden, projected, soon);
            for (int64_t r = 0; r < count; r++) {
                int64_t row = begin + r;
                float *in = projected.row(r);
                T *before = straight ? straight + row * n.rotated() : own.data();
                add_bias(n.all(), bias, in);
                give(n.rotated(), in, before);
                give(n.key * n.width, in + n.rotated(), out.values(n, row));
                for (int64_t h = 0; h < n.query + n.key; h++) {
                    int64_t angle = row * (n.width / 2);
                    head_rstd[row * (n.query + n.key) + h] =
                        rotate(n.width, head_eps, before + h * n.width, h < n.query ? by.query_norm : by.key_norm,
                             by.cosine + angle, by.sine + angle, out.head(n, row, h));
                }
            }
        }
    }
}

// From the gradients of queries, keys, values and total (which may be none): that of x, which is that of delta too; of the
// projections, [R, (H + 2 K) d], with what they were applied to, for the gradient of their matrix; and for each block what
// its rows add to those of the norms' weights, [D + 2 d]. `straight` may be none where heads are not normed.
template <typename T>
static void before_backward(int64_t rows, int64_t width, HeadSizes n, const T *total, const float *rstd, const T *norm,
                            const Laid<T> *panels, Angles<T> by, const T *straight, const float *head_rstd,
                            Projected<const T> grad, const T *grad_total, T *grad_projected, T *hidden, T *grad_x,
                            float *partial, int threads) {
    const int64_t size = block_of(rows);
    const Panels<Laid<T>> matrix{panels, n.all(), width};
#pragma omp parallel num_threads(threads)
    {
        Multiplied<Laid<T>> projected(size, n.all());
        Near grad_hidden(size, width);
        Memory<float> room(n.width);
        Soon soon;
#pragma omp for schedule(dynamic, 1)
        for (int64_t begin = 0; begin < rows; begin += size) {
            int64_t count = rows - begin < size ? rows - begin : size;
            soon.clear();
            for (const T *of_width : {total, grad_total, (const T *)hidden, (const T *)grad_x})
                if (of_width) soon.add(of_width + begin * width, count * width);
            int64_t next = begin + omp_get_num_threads() * size, more = rows - next < size ? rows - next : size;
            if (more > 0) {
                for (const T *head : {grad.query, grad.key, grad.value}) {
                    int64_t wide = (head == grad.query ? n.query : n.key) * n.width;
                    soon.add(head + next * wide, more * wide);
                }
                if (straight) soon.add(straight + next * n.rotated(), more * n.rotated());
                soon.add(grad_projected + next * n.all(), more * n.all());
            }
            float *sums = partial + begin / size * (width + 2 * n.width);
            std::memset(sums, 0, (width + 2 * n.width) * sizeof(float));
            for (int64_t r = 0; r < count; r++) {
                int64_t row = begin + r, angle = row * (n.width / 2);
                Laid<T> *out = projected.row(r);
                const T *before = straight ? straight + row * n.rotated() : nullptr;
                for (int64_t h = 0; h < n.query + n.key; h++)
                    rotate_back(n.width, head_rstd[row * (n.query + n.key) + h], before ? before + h * n.width : nullptr,
                              h < n.query ? by.query_norm : by.key_norm, by.cosine + angle, by.sine + angle,
                              grad.head(n, row, h), room.data(), out + h * n.width,
                              sums + width + (h < n.query ? 0 : n.width));
                give(n.key * n.width, grad.values(n, row), out + n.rotated());
                give(n.all(), out, grad_projected + row * n.all());
            }
            matrix.multiply(count, projected, grad_hidden, soon);
            for (int64_t r = 0; r < count; r++) {
                int64_t at = (begin + r) * width;
                float scale = rstd[begin + r];
                scaled(width, scale, total + at, norm, hidden + at);
                norm_back(width, scale, total + at, norm, grad_hidden.row(r), grad_total ? grad_total + at : nullptr,
                          grad_x + at, sums);
            }
        }
    }
}

// The matrices of `after_forward` and its biases, which may be none. The gate and what it multiplies have one bias.
template <typename T> struct AfterWeights {
    const Laid<T> *output, *gate, *up, *down;
    const T *output_bias, *gate_up_bias, *down_bias, *norm;
};

// total = x + output(attended), delta = the MLP of its norm. `kept_gate` and `kept_up` [R, F], if they are given, get
// what is gated: two tensors, since the C library keeps freed memory for the next only up to a size.
template <typename T>
static void after_forward(int64_t rows, int64_t width, int64_t attended_width, int64_t mlp_width, float eps, const T *x,
                          const T *attended, AfterWeights<T> by, T *total, float *rstd, T *kept_gate,
                          T *kept_up, T *delta, int threads) {
    const int64_t size = block_of(rows);
    const Panels<Laid<T>> output{by.output, attended_width, width}, to_gate{by.gate, width, mlp_width},
        up{by.up, width, mlp_width}, down{by.down, mlp_width, width};
#pragma omp parallel num_threads(threads)
    {
        Multiplied<Laid<T>> seen(size, attended_width), hidden(size, width), gated(size, mlp_width);
        Near added(size, width), gates(size, COLUMNS), ups(size, COLUMNS);
        Soon soon;
#pragma omp for schedule(dynamic, 1)
        for (int64_t begin = 0; begin < rows; begin += size) {
            int64_t count = rows - begin < size ? rows - begin : size;
            soon.clear();
            soon.add(x + begin * width, count * width);
            soon.add(total + begin * width, count * width);
            if (kept_gate)
                for (const T *half : {kept_gate, kept_up}) soon.add(half + begin * mlp_width, count * mlp_width);
            soon.add(delta + begin * width, count * width);
            for (int64_t r = 0; r < count; r++)
                give(attended_width, attended + (begin + r) * attended_width, seen.row(r));
            output.multiply(count, seen, added, soon);
            for (int64_t r = 0; r < count; r++) {
                float *row = added.row(r);
                const T *in = x + (begin + r) * width;
                T *sum = total + (begin + r) * width;
                add_bias(width, by.output_bias, row);
#pragma omp simd
                for (int64_t i = 0; i < width; i++) store(sum[i], load(in[i]) + row[i]);
                rstd[begin + r] = normed(width, eps, sum, by.norm, hidden.row(r));
            }
            for (int64_t o = 0; o < mlp_width; o += COLUMNS) { // gated while they are near
                int64_t some = up.count(o);
                to_gate.multiply(count, hidden, o, gates.row(0), gates.stride, soon, up.from(o));
                up.multiply(count, hidden, o, ups.row(0), ups.stride, soon, to_gate.from(o + COLUMNS));
                for (int64_t r = 0; r < count; r++) {
                    float *a = gates.row(r), *b = ups.row(r);
                    int64_t at = (begin + r) * mlp_width + o;
                    if (by.gate_up_bias) {
                        add_bias(some, by.gate_up_bias + o, a);
                        add_bias(some, by.gate_up_bias + mlp_width + o, b);
                    }
                    if (kept_gate) {
                        give(some, a, kept_gate + at);
                        give(some, b, kept_up + at);
                    }
                    gate(some, a, b, gated.row(r) + o);
                }
            }
            down.multiply(count, gated, gates, soon, [&](int64_t r, int64_t o, int64_t some, float *row) {
                if (by.down_bias) add_bias(some, by.down_bias + o, row);
                give(some, row, delta + (begin + r) * width + o);
            });
        }
    }
}

// From the gradients of delta and total (which may be none): those of x and of attended; those of what is gated in its
// place, with what it and `down` were applied to, for the gradients of the matrices; and for each block what its rows
// add to that of the norm's weight.
template <typename T>
static void after_backward(int64_t rows, int64_t width, int64_t attended_width, int64_t mlp_width,
                           const Laid<T> *output_panels, const Laid<T> *gate_up_panels, const Laid<T> *down_panels,
                           const T *norm, const T *total, const float *rstd, T *kept_gate, T *kept_up,
                           const T *grad_delta, const T *grad_total, T *gated, T *hidden, T *grad_x, T *grad_attended,
                           float *partial, int threads) {
    const int64_t size = block_of(rows);
    const Panels<Laid<T>> output{output_panels, width, attended_width}, gate_up{gate_up_panels, 2 * mlp_width, width},
        down{down_panels, width, mlp_width};
#pragma omp parallel num_threads(threads)
    {
        Multiplied<Laid<T>> given(size, width), both(size, 2 * mlp_width);
        Near grad_hidden(size, width), panel(size, COLUMNS);
        Soon soon;
#pragma omp for schedule(dynamic, 1)
        for (int64_t begin = 0; begin < rows; begin += size) {
            int64_t count = rows - begin < size ? rows - begin : size;
            float *sums = partial + begin / size * width;
            std::memset(sums, 0, width * sizeof(float));
            soon.clear();
            for (const T *of_mlp : {kept_gate, kept_up, gated}) soon.add(of_mlp + begin * mlp_width, count * mlp_width);
            for (const T *of_width : {total, grad_total, (const T *)hidden, (const T *)grad_x})
                if (of_width) soon.add(of_width + begin * width, count * width);
            soon.add(grad_attended + begin * attended_width, count * attended_width);
            for (int64_t r = 0; r < count; r++) give(width, grad_delta + (begin + r) * width, given.row(r));
            down.multiply(count, given, panel, soon, [&](int64_t r, int64_t o, int64_t some, const float *grad_gated) {
                int64_t at = (begin + r) * mlp_width + o;
                Laid<T> *to_gate = both.row(r) + o, *to_up = to_gate + mlp_width;
                gate_back(some, kept_gate + at, kept_up + at, grad_gated, to_gate, to_up, gated + at);
                give(some, to_gate, kept_gate + at);
                give(some, to_up, kept_up + at);
            });
            gate_up.multiply(count, both, grad_hidden, soon);
            for (int64_t r = 0; r < count; r++) {
                int64_t at = (begin + r) * width;
                float scale = rstd[begin + r];
                scaled(width, scale, total + at, norm, hidden + at);
                norm_back(width, scale, total + at, norm, grad_hidden.row(r), grad_total ? grad_total + at : nullptr,
                          grad_x + at, sums);
                give(width, grad_x + at, given.row(r));
            }
            output.multiply(count, given, panel, soon, [&](int64_t r, int64_t o, int64_t some, const float *row) {
                give(some, row, grad_attended + (begin + r) * attended_width + o);
            });
        }
    }
}

// Lays out parts of matrices, in the numbers of `Entry` each: whether it is in half precision, the place of its panels among
// all, where it begins, and what else `Part` has. Threads take some inputs each where outputs lie side by side in memory,
// so that it is read in its order, and else some panels.
struct Entry {
    int64_t half, place, from, by_input, by_output, inputs, outputs, all_inputs, first_input, first_output;
};

template <typename T, typename Out> static void lay_out_entry(const Entry &given, Out *panels) {
    const int64_t SOME = 16; // inputs
    Part<T> part{(const T *)given.from, given.by_input,   given.by_output,   given.inputs,
                 given.outputs,         given.all_inputs, given.first_input, given.first_output};
    int64_t first = part.first_panel(), last = part.last_panel();
    if (part.by_output == 1) {
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t begin = 0; begin < part.inputs; begin += SOME)
            for (int64_t number = first; number < last; number++)
                lay_out(part, number, begin, std::min(begin + SOME, part.inputs), panels + given.place);
    } else {
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t number = first; number < last; number++)
            lay_out(part, number, 0, part.inputs, panels + given.place);
    }
}

template <typename Out> static void lay_out_all(int64_t count, const Entry *entries, Out *panels, int threads) {
#pragma omp parallel num_threads(threads)
    for (const Entry *entry = entries; entry < entries + count; entry++) {
        if constexpr (std::is_same_v<Out, float>) {
            if (!entry->half) {
                lay_out_entry<float>(*entry, panels);
                continue;
            }
        }
        lay_out_entry<bfloat16>(*entry, panels);
    }
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void lay_out_##NAME(int64_t count, const int64_t *entries, T *panels, int threads) {                    \
        lay_out_all<T>(count, (const Entry *)entries, panels, threads);                                                \
    }                                                                                                                  \
    extern "C" void before_forward_##NAME(                                                                             \
        int64_t rows, int64_t width, int64_t heads, int64_t key_heads, int64_t head_width, float eps, float head_eps,  \
        const T *x, const T *delta, const T *norm, const Laid<T> *panels, const T *bias, const T *query_norm,            \
        const T *key_norm, const float *cosine, const float *sine, T *total, float *rstd, T *straight,                 \
        float *head_rstd, T *query, T *key, T *value, int threads) {                                                   \
        before_forward<T>(rows, width, {heads, key_heads, head_width}, eps, head_eps, x, delta, norm, panels, bias,    \
                          {query_norm, key_norm, cosine, sine}, total, rstd, straight, head_rstd, {query, key, value}, \
                          threads);                                                                                    \
    }                                                                                                                  \
    extern "C" void before_backward_##NAME(                                                                            \
        int64_t rows, int64_t width, int64_t heads, int64_t key_heads, int64_t head_width, const T *total,             \
        const float *rstd, const T *norm, const Laid<T> *panels, const T *query_norm, const T *key_norm,                 \
        const float *cosine, const float *sine, const T *straight, const float *head_rstd, const T *grad_query,        \
        const T *grad_key, const T *grad_value, const T *grad_total, T *grad_projected, T *hidden, T *grad_x,          \
        float *partial, int threads) {                                                                                 \
        before_backward<T>(rows, width, {heads, key_heads, head_width}, total, rstd, norm, panels,                     \
                           {query_norm, key_norm, cosine, sine}, straight, head_rstd,                                  \
                           {grad_query, grad_key, grad_value}, grad_total, grad_projected, hidden, grad_x, partial,    \
                           threads);                                                                                   \
    }                                                                                                                  \
    extern "C" void after_forward_##NAME(                                                                              \
        int64_t rows, int64_t width, int64_t attended_width, int64_t mlp_width, float eps, const T *x,                 \
        const T *attended, const Laid<T> *output, const Laid<T> *gate, const Laid<T> *up, const Laid<T> *down,         \
        const T *output_bias, const T *gate_up_bias, const T *down_bias, const T *norm, T *total, float *rstd,         \
        T *kept_gate, T *kept_up, T *delta, int threads) {                                                             \
        after_forward<T>(rows, width, attended_width, mlp_width, eps, x, attended,                                     \
                         {output, gate, up, down, output_bias, gate_up_bias, down_bias, norm}, total, rstd,            \
                         kept_gate, kept_up, delta, threads);                                                          \
    }                                                                                                                  \
    extern "C" void after_backward_##NAME(                                                                             \
        int64_t rows, int64_t width, int64_t attended_width, int64_t mlp_width, const Laid<T> *output,                 \
        const Laid<T> *gate_up_panels, const Laid<T> *down, const T *norm, const T *total, const float *rstd,              \
        T *kept_gate, T *kept_up, const T *grad_delta, const T *grad_total, T *gated, T *hidden, T *grad_x,            \
        T *grad_attended, float *partial, int threads) {                                                               \
        after_backward<T>(rows, width, attended_width, mlp_width, output, gate_up_panels, down, norm, total, rstd,     \
                          kept_gate, kept_up, grad_delta, grad_total, gated, hidden, grad_x, grad_attended, partial,   \
                          threads);                                                                                    \
    }

FOR_EACH_TYPE(EXPORTS)

// Whether the processor has the registers for `tile`.
extern "C" int has_wide_vectors() {
#ifdef __AVX512F__
    return 1;
#else
    return 0;
#endif
}

// Over how many rows sums are taken by themselves.
extern "C" int64_t rows_of_block(int64_t rows) { return block_of(rows); }

// Whether panels of bfloat16 are in pairs.
extern "C" int lays_out_pairs() { return PAIRS<bfloat16>; }
