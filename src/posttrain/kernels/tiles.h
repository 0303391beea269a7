// Products of some rows with a matrix that is laid out in panels, for matrices that are used by many rows.
//
// Each sum runs over the inputs in their order, whatever row it is of, so that a row's numbers depend on that row alone.
#pragma once

#include "numbers.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <type_traits>

const int64_t COLUMNS = 64; // outputs that are computed together: 4 vectors
const int64_t TALL = 6;     // rows that are: 24 sums, 4 vectors of the panel and a number of a row fill 32 registers
const int64_t STEPS = 32;   // inputs between two looks at what else is to be fetched
const int64_t LINES = 8;    // lines that are fetched at each
const int64_t EARLY = 12;   // inputs by which a panel is fetched ahead
const int64_t NEXT = 12;    // lines of the next panel that are fetched between two looks

// Whether two products of this type and their sum are one instruction: then panels are in pairs of inputs, [pairs][64][2],
// and rows are rounded to it before they are multiplied, as a layer of torch would have rounded them.
#ifdef __AVX512BF16__
template <typename T> const bool PAIRS = sizeof(T) == 2;
#else
template <typename T> const bool PAIRS = false;
#endif

// What panels are made of, for numbers of a type.
template <typename T> using Laid = std::conditional_t<PAIRS<T>, bfloat16, float>;

// Number j of two rows becomes pair j. Without the second, its numbers stay as they are.
static inline void interleave(int64_t count, const bfloat16 *first, const bfloat16 *second, bfloat16 *to) {
    int64_t j = 0;
    for (; second && j + PAGE <= count; j += PAGE) {
        half_lanes a, b;
        std::memcpy(&a, first + j, sizeof(a));
        std::memcpy(&b, second + j, sizeof(b));
        wide_lanes both = __builtin_convertvector(a, wide_lanes) | __builtin_convertvector(b, wide_lanes) << 16;
        std::memcpy(to + 2 * j, &both, sizeof(both));
    }
    for (; j < count; j++) {
        to[2 * j] = first[j];
        if (second) to[2 * j + 1] = second[j];
    }
}

// [inputs][outputs], given by its strides: a part of a matrix of `all_inputs` that begins at an input and an output of it.
template <typename T> struct Part {
    const T *from;
    int64_t by_input, by_output, inputs, outputs, all_inputs, first_input = 0, first_output = 0;

    // Panels of the matrix that it has outputs in: from the first up to the last.
    int64_t first_panel() const { return first_output / COLUMNS; }
    int64_t last_panel() const { return up_to(first_output + outputs, COLUMNS) / COLUMNS; }
    // Its own outputs in a panel.
    int64_t begin_in(int64_t panel) const { return std::max(first_output, panel * COLUMNS) - first_output; }
    int64_t end_in(int64_t panel) const { return std::min(first_output + outputs, (panel + 1) * COLUMNS) - first_output; }
};

const int64_t LATER = 4; // squares by which rows of a matrix are fetched ahead

// Lays out a part's inputs from `input` up to `end`, an even number or the last, as far as they are in a panel: panels are
// [all outputs / 64][all inputs][64].
template <typename T>
static void lay_out(const Part<T> &part, int64_t number, int64_t input, int64_t end, float *panels) {
    int64_t begin = part.begin_in(number), count = part.end_in(number) - begin;
    float square[PAGE][PAGE];
    float *panel = panels + (number * part.all_inputs + part.first_input) * COLUMNS + (part.first_output + begin) % COLUMNS;
    const T *at = part.from + begin * part.by_output;
    if (part.by_output == 1) {
        for (int64_t i = input; i < end; i++)
            for (int64_t j = 0; j < count; j++) panel[i * COLUMNS + j] = load(at[i * part.by_input + j]);
        return;
    }
    for (int64_t i = input; i < end; i += PAGE) // in squares: lines of the cache are read and written whole
        for (int64_t j = 0; j < count; j += PAGE) {
            int64_t down = std::min(end - i, PAGE), across = std::min(count - j, PAGE);
            const T *corner = at + i * part.by_input + j * part.by_output;
            if (part.by_input == 1 && down == PAGE && across == PAGE) {
                lanes x[PAGE];
                for (int64_t b = 0; b < PAGE; b++) x[b] = load_lanes(corner + b * part.by_output);
                for (int64_t b = 0; b < PAGE; b++) __builtin_prefetch(corner + b * part.by_output + LATER * PAGE);
                transpose(x);
                for (int64_t a = 0; a < PAGE; a++) store_lanes(panel + (i + a) * COLUMNS + j, x[a]);
                continue;
            }
            for (int64_t b = 0; b < across; b++)
                for (int64_t a = 0; a < down; a++) square[b][a] = load(corner[a * part.by_input + b * part.by_output]);
            for (int64_t a = 0; a < down; a++)
                for (int64_t b = 0; b < across; b++) panel[(i + a) * COLUMNS + j + b] = square[b][a];
        }
}

// The same in pairs.
static void lay_out(const Part<bfloat16> &part, int64_t number, int64_t input, int64_t end, bfloat16 *panels) {
    int64_t begin = part.begin_in(number), count = part.end_in(number) - begin;
    bfloat16 *panel = panels + number * up_to(part.all_inputs, 2) * COLUMNS + (part.first_output + begin) % COLUMNS * 2;
    const bfloat16 *at = part.from + begin * part.by_output;
    if (part.by_output == 1 && part.first_input % 2 == 0) { // two inputs are two rows of memory
        for (int64_t i = input; i < end; i += 2)
            interleave(count, at + i * part.by_input, i + 1 < part.inputs ? at + (i + 1) * part.by_input : nullptr,
                       panel + (part.first_input + i) * COLUMNS);
        return;
    }
    bool squares = part.by_input == 1 && part.first_input % 2 == 0;
    for (int64_t i = input; i < end; i += 2 * PAGE)
        for (int64_t j = 0; j < count; j += PAGE) {
            int64_t down = std::min(end - i, 2 * PAGE), across = std::min(count - j, PAGE);
            const bfloat16 *corner = at + i * part.by_input + j * part.by_output;
            if (squares && down == 2 * PAGE && across == PAGE) { // a pair is moved as a float would be
                lanes x[PAGE];
                for (int64_t b = 0; b < PAGE; b++) std::memcpy(&x[b], corner + b * part.by_output, sizeof(lanes));
                for (int64_t b = 0; b < PAGE; b++) __builtin_prefetch(corner + b * part.by_output + LATER * 2 * PAGE);
                transpose(x);
                for (int64_t a = 0; a < PAGE; a++)
                    std::memcpy(panel + ((part.first_input + i) / 2 + a) * 2 * COLUMNS + j * 2, &x[a], sizeof(lanes));
                continue;
            }
            for (int64_t a = 0; a < down; a++) {
                int64_t number = part.first_input + i + a;
                bfloat16 *to = panel + number / 2 * 2 * COLUMNS + j * 2 + number % 2;
                for (int64_t b = 0; b < across; b++) to[2 * b] = corner[a * part.by_input + b * part.by_output];
            }
        }
}

// Memory that will soon be read or written: brought near a line at a time, while products leave it idle.
class Soon {
    std::vector<std::pair<const char *, const char *>> spans;
    size_t next = 0;
    const char *at = nullptr, *end = nullptr;

  public:
    template <typename T> void add(const T *from, int64_t count) {
        if (from) spans.emplace_back((const char *)from, (const char *)(from + count));
    }
    void fetch() {
        if (at >= end) {
            if (next == spans.size()) return;
            std::tie(at, end) = spans[next++];
        }
        __builtin_prefetch(at, 0, 2);
        at += 64;
    }
    void clear() {
        spans.clear();
        next = 0;
        at = end = nullptr;
    }
};

// The panel after the one that is being read, brought near in the same way: the outer cache is slow where others use it.
struct NextPanel {
    const char *at = nullptr, *end = nullptr;

    void fetch() {
        for (int line = 0; line < NEXT && at < end; line++, at += 64) __builtin_prefetch(at, 0, 2);
    }
};

// A few rows of numbers near the processor. Columns up to the next panel may be written; rows begin on lines of their own,
// and not all in the same places of the cache.
class Near {
    std::unique_ptr<float[], void (*)(float *)> numbers;

  public:
    int64_t stride;

    Near(int64_t rows, int64_t width)
        : numbers(nullptr, [](float *at) { Aligned<float>().deallocate(at, 0); }),
          stride(up_to(width, COLUMNS) + PAGE) {
        numbers.reset(Aligned<float>().allocate(rows * stride));
    }
    float *row(int64_t r) { return &numbers[r * stride]; }
};

// Numbers of some rows, for a sum over steps: that of row r and step i is at[r * by_row + i * by_step].
struct Given {
    const float *at;
    int64_t by_row, by_step;
};

// out[R][64] = the sum over steps of given[R] times panel[step][64], and what was there before where it is to `add`.
template <int R>
static inline void tile(int64_t steps, Given given, const float *panel, int64_t panel_stride, float *out,
                        int64_t out_stride, bool add, Soon &soon, NextPanel &next) {
    const int V = COLUMNS / PAGE;
    lanes sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __builtin_prefetch(out + r * out_stride + v * PAGE, 1);
            sum[r][v] = lanes{};
        }
    for (int64_t from = 0; from < steps; from += STEPS) {
        int64_t to = from + STEPS < steps ? from + STEPS : steps;
        for (int line = 0; line < LINES; line++) soon.fetch();
        next.fetch();
        for (int64_t i = from; i < to; i++) {
            lanes of_panel[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) __builtin_prefetch(panel + (i + EARLY) * panel_stride + v * PAGE);
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) of_panel[v] = load_lanes(panel + i * panel_stride + v * PAGE);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                float x = given.at[r * given.by_row + i * given.by_step];
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) sum[r][v] = plus_product(sum[r][v], x, of_panel[v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            float *to = out + r * out_stride + v * PAGE;
            store_lanes(to, add ? load_lanes(to) + sum[r][v] : sum[r][v]);
        }
}

// The same for as many rows as there are, 1 to `TALL`.
static inline void tile_of(int64_t rows, int64_t steps, Given given, const float *panel, int64_t panel_stride, float *out,
                           int64_t out_stride, bool add, Soon &soon, NextPanel &next) {
    switch (rows) {
    case 1: return tile<1>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 2: return tile<2>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 3: return tile<3>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 4: return tile<4>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 5: return tile<5>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    default: return tile<TALL>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    }
}

#ifdef __AVX512BF16__
// Pairs of numbers of some rows: that of row r and step i is at[r * by_row + i * by_step].
struct GivenPairs {
    const int32_t *at;
    int64_t by_row, by_step;
};

// As `tile`, of pairs.
template <int R>
static inline void tile_pairs(int64_t steps, GivenPairs given, const bfloat16 *panel, int64_t panel_stride, float *out,
                              int64_t out_stride, bool add, Soon &soon, NextPanel &next) {
    const int V = COLUMNS / PAGE;
    __m512 sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __builtin_prefetch(out + r * out_stride + v * PAGE, 1);
            sum[r][v] = _mm512_setzero_ps();
        }
    for (int64_t from = 0; from < steps; from += STEPS) {
        int64_t to = from + STEPS < steps ? from + STEPS : steps;
        for (int line = 0; line < LINES; line++) soon.fetch();
        next.fetch();
        for (int64_t i = from; i < to; i++) {
            __m512bh of_panel[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) __builtin_prefetch(panel + (i + EARLY) * panel_stride + 2 * v * PAGE);
#pragma GCC unroll 8
            for (int v = 0; v < V; v++)
                of_panel[v] = (__m512bh)_mm512_loadu_si512(panel + i * panel_stride + 2 * v * PAGE);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                __m512bh x = (__m512bh)_mm512_set1_epi32(given.at[r * given.by_row + i * given.by_step]);
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, of_panel[v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            float *to = out + r * out_stride + v * PAGE;
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]) : sum[r][v]);
        }
}

static inline void tile_of(int64_t rows, int64_t steps, GivenPairs given, const bfloat16 *panel, int64_t panel_stride,
                           float *out, int64_t out_stride, bool add, Soon &soon, NextPanel &next) {
    switch (rows) {
    case 1: return tile_pairs<1>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 2: return tile_pairs<2>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 3: return tile_pairs<3>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 4: return tile_pairs<4>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    case 5: return tile_pairs<5>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    default: return tile_pairs<TALL>(steps, given, panel, panel_stride, out, out_stride, add, soon, next);
    }
}

#endif

// Rows that are multiplied, near the processor and in the type of their panels; a last pair is filled up with zero. They
// begin not all in the same places of the cache.
template <typename L> class Multiplied {
    Memory<L> numbers;

  public:
    int64_t stride;

    Multiplied(int64_t rows, int64_t width) : stride(up_to(width, COLUMNS) + 2 * PAGE) {
        numbers = Memory<L>(rows * stride);
    }
    L *row(int64_t r) { return &numbers[r * stride]; }
};

#ifdef __AVX512BF16__
static inline GivenPairs given_of(const bfloat16 *row, int64_t stride) { return {(const int32_t *)row, stride / 2, 1}; }
#endif
static inline Given given_of(const float *row, int64_t stride) { return {row, stride, 1}; }

// A matrix in panels of `Laid` numbers.
template <typename L> struct Panels {
    const L *at;
    int64_t inputs, outputs;

    static constexpr int64_t STEP = sizeof(float) / sizeof(L); // inputs that are multiplied at once
    const L *panel(int64_t output) const { return at + output * up_to(inputs, STEP); }
    NextPanel from(int64_t output) const { // nothing beyond the last
        return {(const char *)panel(output), (const char *)panel(output < outputs ? output + COLUMNS : output)};
    }
    // Outputs of a panel.
    int64_t count(int64_t output) const { return std::min(COLUMNS, outputs - output); }

    // y[rows][64] = rows of x . the panel of an output. Meanwhile `next` is fetched.
    void multiply(int64_t rows, Multiplied<L> &x, int64_t output, float *y, int64_t y_stride, Soon &soon,
                  NextPanel next) const {
        int64_t steps = up_to(inputs, STEP) / STEP;
        for (int64_t r = 0; r < rows; r += TALL)
            tile_of(rows - r, steps, given_of(x.row(r), x.stride), panel(output), STEP * COLUMNS, y + r * y_stride, y_stride,
                    false, soon, next);
    }
    // y = x . matrix
    void multiply(int64_t rows, Multiplied<L> &x, Near &y, Soon &soon) const {
        for (int64_t o = 0; o < outputs; o += COLUMNS)
            multiply(rows, x, o, y.row(0) + o, y.stride, soon, from(o + COLUMNS));
    }
    // The same, given panel by panel: each(row, output, count, sums).
    template <typename Each> void multiply(int64_t rows, Multiplied<L> &x, Near &panel, Soon &soon, Each each) const {
        for (int64_t o = 0; o < outputs; o += COLUMNS) {
            multiply(rows, x, o, panel.row(0), panel.stride, soon, from(o + COLUMNS));
            for (int64_t r = 0; r < rows; r++) each(r, o, count(o), panel.row(r));
        }
    }
};
