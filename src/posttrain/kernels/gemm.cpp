// Products of matrices that are used once, given by their strides: gradients of weights, logits and their gradients.
//
// Blocks of both matrices are copied to where tiles read them in order, by all threads; then the threads share tasks of
// some rows and 64 columns, all columns of some rows before the next rows, which stay near. Each sum runs over its terms in
// order, in blocks of a size that depends on their number alone.

#include "tiles.h"

#include <omp.h>

const int64_t HIGH = 1536;  // rows that are copied before they are multiplied
const int64_t BROAD = 1024; // columns that are
const int64_t BLOCK = 48;   // rows of a task
const int64_t WIDE = 8;     // numbers of a step that are copied for a tile, more than it has rows
const int64_t COPIED = 96;  // rows that are copied together: whole tiles, and whole lines of what is transposed
const int64_t SOON = 8;     // steps by which their numbers are fetched ahead

// Number (i, j) of a matrix is at[i * by_row + j * by_column].
template <typename T> struct Matrix {
    const T *at;
    int64_t by_row, by_column;

    const T *from(int64_t row, int64_t column) const { return at + row * by_row + column * by_column; }
};

// What a tile is given: floats, or pairs of bfloat16.
#ifdef __AVX512BF16__
template <typename T> using GivenOf = std::conditional_t<PAIRS<T>, GivenPairs, Given>;
#else
template <typename T> using GivenOf = Given;
#endif
template <typename T> using Number = std::conditional_t<PAIRS<T>, int32_t, float>;
template <typename T> const int64_t STEP = PAIRS<T> ? 2 : 1; // terms that are multiplied at once
// Terms of a sum between two stores: a panel of so many stays in the second cache.
template <typename T> const int64_t DEEP = 640 * STEP<T>;

template <typename T> static Number<T> number(Matrix<T> a, int64_t row, int64_t column, int64_t columns) {
    if constexpr (PAIRS<T>) {
        uint32_t first = a.from(row, column)->bits;
        return first | (column + 1 < columns ? uint32_t(a.from(row, column + 1)->bits) << 16 : 0);
    } else {
        return load(*a.from(row, column));
    }
}

// What a tile is given of two terms of `WIDE` rows that lie side by side, or of one.
template <typename T> static inline void copy_step(const T *first, const T *second, Number<T> *to) {
    if constexpr (PAIRS<T>)
        for (int64_t r = 0; r < WIDE; r++) to[r] = uint32_t(first[r].bits) | uint32_t(second[r].bits) << 16;
    else
        for (int64_t r = 0; r < WIDE; r++) to[r] = load(first[r]);
}

// The numbers of some rows as tiles take them: [tiles][steps][WIDE], with `by_tile` numbers a tile. `terms` are those of the
// matrix, `left` the rows that it has from here on.
template <typename T>
static void copy_rows(Matrix<T> a, int64_t row, int64_t rows, int64_t left, int64_t column, int64_t end, int64_t terms,
                      Number<T> *to, int64_t by_tile) {
    for (; column < end; column += STEP<T>, to += WIDE) {
        int64_t done = 0;
        if (a.by_row == 1 && column + STEP<T> <= terms) { // all rows of a term lie in a few lines of memory
            const T *first = a.from(row, column), *second = first + (STEP<T> - 1) * a.by_column;
            const T *soon = first + SOON * STEP<T> * a.by_column;
            for (int64_t line = 0; line < rows; line += 64 / sizeof(T)) {
                __builtin_prefetch(soon + line);
                if (STEP<T> == 2) __builtin_prefetch(soon + a.by_column + line);
            }
            for (; done < rows && done + WIDE <= left; done += TALL)
                copy_step(first + done, second + done, to + done / TALL * by_tile);
        }
        for (int64_t r = done; r < rows; r++)
            to[r / TALL * by_tile + r % TALL] = number(a, row + r, column, terms);
    }
}

// 64 columns, or fewer, as a tile takes them.
template <typename T>
static void copy_columns(Matrix<T> b, int64_t row, int64_t rows, int64_t column, int64_t columns, Laid<T> *to) {
    if (PAIRS<T> && rows % 2) std::fill_n(to + (rows - 1) * COLUMNS, 2 * COLUMNS, Laid<T>{});
    lay_out(Part<T>{b.from(row, column), b.by_row, b.by_column, rows, columns, rows}, 0, 0, rows, to);
}

// Memory that is kept from call to call, grown where it is too small.
template <typename T> static T *at_least(int64_t size, Memory<T> &kept) {
    if ((int64_t)kept.size() < size) kept = Memory<T>(size);
    return kept.data();
}

// What becomes of a sum: whether it is added to what is there, and whether it is rounded to the type of its terms before.
struct Sum {
    bool add, rounded;
};

// Some rows of up to 64 columns of `out`. `given` is that of the first tile, and that of the next is `by_tile` on.
template <typename T, typename Out>
static void block(int64_t rows, int64_t steps, int64_t columns, GivenOf<T> given, int64_t by_tile, const Laid<T> *panel,
                  Out *out, int64_t out_stride, Sum sum) {
    Soon nothing;
    NextPanel none;
    float aside[TALL * COLUMNS];
    for (int64_t row = 0; row < rows; row += TALL, given.at += by_tile, out += TALL * out_stride) {
        for (int64_t r = 0; sum.add && r < std::min(TALL, rows - row); r++) // they come while the sums are made
            for (int64_t c = 0; c < columns; c += 64 / sizeof(Out)) __builtin_prefetch(out + r * out_stride + c, 1);
        if constexpr (std::is_same_v<Out, float>)
            if (columns == COLUMNS && !sum.rounded) {
                tile_of(rows - row, steps, given, panel, STEP<T> * COLUMNS, out, out_stride, sum.add, nothing, none);
                continue;
            }
        tile_of(rows - row, steps, given, panel, STEP<T> * COLUMNS, aside, COLUMNS, false, nothing, none);
        for (int64_t r = 0; r < std::min(TALL, rows - row); r++)
            for (int64_t c = 0; c < columns; c++) {
                float found = aside[r * COLUMNS + c];
                Out *to = out + r * out_stride + c;
                T whole;
                store(whole, found);
                if (sum.rounded) found = load(whole);
                store(*to, sum.add ? load(*to) + found : found);
            }
    }
}

// out [rows][columns] = a . b. Sums of more than `DEEP` terms are not rounded, and are stored as floats.
template <typename T, typename Out>
static void gemm(int64_t rows, int64_t columns, int64_t terms, Matrix<T> a, Matrix<T> b, Out *out, int64_t out_stride,
                 Sum sum, int threads) {
    int64_t parts = (terms + DEEP<T> - 1) / DEEP<T>, deep = up_to((terms + parts - 1) / parts, 2);
    // Rows are read where they are if they are what a tile is given: floats, or whole pairs.
    bool in_place = a.by_column == 1 && sizeof(Number<T>) == STEP<T> * sizeof(T) && a.by_row % STEP<T> == 0 &&
                    terms % STEP<T> == 0;
    static thread_local Memory<Laid<T>> kept_panels;
    static thread_local Memory<Number<T>> kept_tiles;
    int64_t panel = deep * COLUMNS, tile = deep / STEP<T> * WIDE;
    Laid<T> *panels = at_least(std::min(BROAD, up_to(columns, COLUMNS)) / COLUMNS * panel, kept_panels);
    Number<T> *tiles = in_place ? nullptr : at_least((std::min(HIGH, rows) + TALL - 1) / TALL * tile, kept_tiles);
#pragma omp parallel num_threads(threads)
    for (int64_t begin = 0; begin < terms; begin += deep) {
        int64_t end = std::min(begin + deep, terms), steps = (end - begin + STEP<T> - 1) / STEP<T>;
        for (int64_t high = 0; high < rows; high += HIGH) {
            int64_t low = std::min(high + HIGH, rows), blocks = (low - high + BLOCK - 1) / BLOCK;
            if (!in_place) {
#pragma omp for schedule(dynamic, 1)
                for (int64_t row = high; row < low; row += COPIED)
                    copy_rows(a, row, std::min(COPIED, low - row), rows - row, begin, end, terms,
                              tiles + (row - high) / TALL * tile, tile);
            }
            for (int64_t left = 0; left < columns; left += BROAD) {
                int64_t right = std::min(left + BROAD, columns), across = (right - left + COLUMNS - 1) / COLUMNS;
                if (high == 0 || columns > BROAD) {
#pragma omp for schedule(dynamic, 1)
                    for (int64_t column = left; column < right; column += COLUMNS)
                        copy_columns(b, begin, end - begin, column, std::min(COLUMNS, right - column),
                                     panels + (column - left) / COLUMNS * panel);
                }
#pragma omp for schedule(dynamic, 4)
                for (int64_t task = 0; task < across * blocks; task++) {
                    int64_t column = left + task % across * COLUMNS, row = high + task / across * BLOCK;
                    GivenOf<T> given = {(const Number<T> *)a.from(row, begin), a.by_row / STEP<T>, 1};
                    if (!in_place) given = {tiles + (row - high) / TALL * tile, 1, WIDE};
                    block<T>(std::min(BLOCK, low - row), steps, std::min(COLUMNS, right - column), given,
                             in_place ? TALL * given.by_row : tile, panels + task % across * panel,
                             out + row * out_stride + column, out_stride, {sum.add || begin > 0, sum.rounded});
                }
            }
        }
    }
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void gemm_##NAME(int64_t rows, int64_t columns, int64_t terms, const T *a, int64_t a_by_row,            \
                                int64_t a_by_column, const T *b, int64_t b_by_row, int64_t b_by_column, float *out,    \
                                int64_t add, int64_t rounded, int threads) {                                           \
        gemm<T>(rows, columns, terms, {a, a_by_row, a_by_column}, {b, b_by_row, b_by_column}, out, columns,            \
                {add != 0, rounded != 0}, threads);                                                                    \
    }                                                                                                                  \
    extern "C" int64_t deepest_##NAME() { return DEEP<T>; }                                                            \
    extern "C" void gemm_rounded_##NAME(int64_t rows, int64_t columns, int64_t terms, const T *a, int64_t a_by_row,      \
                                      int64_t a_by_column, const T *b, int64_t b_by_row, int64_t b_by_column, T *out,  \
                                      int threads) {                                                                   \
        gemm<T>(rows, columns, terms, {a, a_by_row, a_by_column}, {b, b_by_row, b_by_column}, out, columns,            \
                {false, false}, threads);                                                                              \
    }

FOR_EACH_TYPE(EXPORTS)
