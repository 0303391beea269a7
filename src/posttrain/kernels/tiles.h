// Products of some rows with a matrix that is laid out in panels, for matrices that are used by many rows.
//
// Each sum runs over the inputs in their order, whatever row it is of, so that a row's numbers depend on that row alone.
#pragma once

#include "numbers.h"

#include <memory>
#include <tuple>

const int64_t COLUMNS = 64; // outputs that are computed together: 4 vectors
const int64_t SOON = 12;    // inputs after which what is fetched is needed
const int64_t TALL = 6;     // rows that are: 24 sums, 4 vectors of the panel and a number of a row fill 32 registers

// Lays out [inputs][outputs], given by its strides, as panels [outputs / 64][inputs][64]; what a panel lacks is zero.
template <typename T>
static void lay_out(int64_t inputs, int64_t outputs, const T *from, int64_t by_input, int64_t by_output, float *panels,
                    int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t o = 0; o < outputs; o += COLUMNS) {
        int64_t count = outputs - o < COLUMNS ? outputs - o : COLUMNS;
        float *panel = panels + o * inputs, square[PAGE][PAGE];
        const T *at = from + o * by_output;
        if (count < COLUMNS) std::memset(panel, 0, inputs * COLUMNS * sizeof(float));
        if (by_output == 1) {
            for (int64_t i = 0; i < inputs; i++)
                for (int64_t j = 0; j < count; j++) panel[i * COLUMNS + j] = load(at[i * by_input + j]);
            continue;
        }
        for (int64_t i = 0; i < inputs; i += PAGE) // in squares: lines of the cache are read and written whole
            for (int64_t j = 0; j < count; j += PAGE) {
                int64_t down = inputs - i < PAGE ? inputs - i : PAGE, across = count - j < PAGE ? count - j : PAGE;
                const T *corner = at + i * by_input + j * by_output;
                for (int64_t b = 0; b < across; b++)
                    for (int64_t a = 0; a < down; a++) square[b][a] = load(corner[a * by_input + b * by_output]);
                for (int64_t a = 0; a < down; a++)
                    for (int64_t b = 0; b < across; b++) panel[(i + a) * COLUMNS + j + b] = square[b][a];
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

// y[R][64] = x[R] . panel
template <int R>
static inline void tile(const float *x, int64_t stride, const float *panel, int64_t inputs, float *y, int64_t y_stride,
                        Soon &soon) {
    const int V = COLUMNS / PAGE;
    lanes sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __builtin_prefetch(y + r * y_stride + v * PAGE, 1);
            sum[r][v] = lanes{};
        }
    for (int64_t from = 0; from < inputs; from += 32) {
        int64_t to = from + 32 < inputs ? from + 32 : inputs;
        for (int f = 0; f < 8; f++) soon.fetch();
        for (int64_t i = from; i < to; i++) {
            lanes of_panel[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) __builtin_prefetch(panel + (i + SOON) * COLUMNS + v * PAGE);
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) of_panel[v] = load_lanes(panel + i * COLUMNS + v * PAGE);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                float given = x[r * stride + i];
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) sum[r][v] += given * of_panel[v];
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) store_lanes(y + r * y_stride + v * PAGE, sum[r][v]);
}

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

// y = x . matrix for `rows` rows.
static void multiply(int64_t rows, Near &x, int64_t inputs, const float *panels, int64_t outputs, Near &y,
                     Soon &soon) {
    for (int64_t o = 0; o < outputs; o += COLUMNS) {
        const float *panel = panels + o * inputs;
        for (int64_t r = 0; r < rows; r += TALL) {
            const float *in = x.row(r);
            float *out = y.row(r) + o;
            switch (rows - r) {
            case 1: tile<1>(in, x.stride, panel, inputs, out, y.stride, soon); break;
            case 2: tile<2>(in, x.stride, panel, inputs, out, y.stride, soon); break;
            case 3: tile<3>(in, x.stride, panel, inputs, out, y.stride, soon); break;
            case 4: tile<4>(in, x.stride, panel, inputs, out, y.stride, soon); break;
            case 5: tile<5>(in, x.stride, panel, inputs, out, y.stride, soon); break;
            default: tile<TALL>(in, x.stride, panel, inputs, out, y.stride, soon);
            }
        }
    }
}

// out[R][64] += the sum over `count` rows of x[row][R] times y[row][64].
template <int R>
static inline void outer_tile(int64_t count, const float *x, int64_t x_stride, const float *y, int64_t y_stride,
                              float *out, int64_t out_stride) {
    const int V = COLUMNS / PAGE;
    lanes sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __builtin_prefetch(out + r * out_stride + v * PAGE, 1);
            sum[r][v] = lanes{};
        }
    for (int64_t i = 0; i < count; i++) {
        lanes of_y[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) of_y[v] = load_lanes(y + i * y_stride + v * PAGE);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            float given = x[i * x_stride + r];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) sum[r][v] += given * of_y[v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            float *at = out + r * out_stride + v * PAGE;
            store_lanes(at, load_lanes(at) + sum[r][v]);
        }
}
