// The parts of a decoder that work on each row by itself: each reads its input once and writes its output once.
//
// Every row is computed by one thread in one order, so that a number depends on its own row alone, never on what else
// is in the batch nor on how many threads there are. Sums over rows (gradients of norm weights) are taken in blocks of
// fixed size, in order.
//
// Rows R, width D, heads H, head width d.

#include "row.h"

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
        float scale = normed(width, eps, in, weight, y + row * width);
        if (rstd) rstd[row] = scale;
    }
}

// grad_x from that of y, and that of the sum (where there is one); partial[block] = what the block's rows add to the
// gradient of the weight
template <typename T>
static void norm_backward(int64_t rows, int64_t width, const T *x, const T *weight, const float *rstd, const T *grad,
                          const T *grad_sum, T *grad_x, float *partial, int threads) {
    int64_t blocks = (rows + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        float *total = partial + block * width;
        std::memset(total, 0, width * sizeof(float));
        for (int64_t row = block * BLOCK; row < rows && row < (block + 1) * BLOCK; row++)
            norm_back(width, rstd[row], x + row * width, weight, grad + row * width,
                      grad_sum ? grad_sum + row * width : nullptr, grad_x + row * width, total);
    }
}

template <typename T>
static void rotate_forward(int64_t rows, int64_t heads, int64_t width, float eps, const T *x, const T *weight,
                         const float *cosine, const float *sine, T *y, float *rstd, int threads) {
    int64_t half = width / 2;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < heads; head++) {
            int64_t at = row * heads + head;
            rstd[at] = rotate(width, eps, x + at * width, weight, cosine + row * half, sine + row * half, y + at * width);
        }
}

template <typename T>
static void rotate_backward(int64_t rows, int64_t heads, int64_t width, const T *x, const T *weight, const float *rstd,
                          const float *cosine, const float *sine, const T *grad, T *grad_x, float *partial,
                          int threads) {
    int64_t half = width / 2, blocks = (rows + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        Memory<float> straight(width);
        float *total = partial ? partial + block * width : nullptr;
        if (total) std::memset(total, 0, width * sizeof(float));
        for (int64_t row = block * BLOCK; row < rows && row < (block + 1) * BLOCK; row++)
            for (int64_t head = 0; head < heads; head++) {
                int64_t at = row * heads + head;
                rotate_back(width, rstd[at], x + at * width, weight, cosine + row * half, sine + row * half,
                          grad + at * width, straight.data(), grad_x + at * width, total);
            }
    }
}

template <typename T>
static void gate_forward(int64_t rows, int64_t width, const T *a, const T *b, T *y, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) gate(width, a + row * width, b + row * width, y + row * width);
}

template <typename T>
static void gate_backward(int64_t rows, int64_t width, const T *a, const T *b, const T *grad, T *grad_a, T *grad_b,
                          int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * width;
        gate_back(width, a + at, b + at, grad + at, grad_a + at, grad_b + at);
    }
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void norm_forward_##NAME(int64_t rows, int64_t width, float eps, const T *x, const T *delta,            \
                                        const T *weight, T *sum, T *y, float *rstd, int threads) {                     \
        norm_forward<T>(rows, width, eps, x, delta, weight, sum, y, rstd, threads);                                    \
    }                                                                                                                  \
    extern "C" void norm_backward_##NAME(int64_t rows, int64_t width, const T *x, const T *weight, const float *rstd,  \
                                         const T *grad, const T *grad_sum, T *grad_x, float *partial, int threads) {   \
        norm_backward<T>(rows, width, x, weight, rstd, grad, grad_sum, grad_x, partial, threads);                      \
    }                                                                                                                  \
    extern "C" void rotate_forward_##NAME(int64_t rows, int64_t heads, int64_t width, float eps, const T *x,           \
                                        const T *weight, const float *cosine, const float *sine, T *y, float *rstd,    \
                                        int threads) {                                                                 \
        rotate_forward<T>(rows, heads, width, eps, x, weight, cosine, sine, y, rstd, threads);                         \
    }                                                                                                                  \
    extern "C" void rotate_backward_##NAME(int64_t rows, int64_t heads, int64_t width, const T *x, const T *weight,    \
                                         const float *rstd, const float *cosine, const float *sine, const T *grad,     \
                                         T *grad_x, float *partial, int threads) {                                     \
        rotate_backward<T>(rows, heads, width, x, weight, rstd, cosine, sine, grad, grad_x, partial, threads);         \
    }                                                                                                                  \
    extern "C" void gate_forward_##NAME(int64_t rows, int64_t width, const T *gate, const T *up, T *y, int threads) {  \
        gate_forward<T>(rows, width, gate, up, y, threads);                                                            \
    }                                                                                                                  \
    extern "C" void gate_backward_##NAME(int64_t rows, int64_t width, const T *gate, const T *up, const T *grad,       \
                                         T *grad_gate, T *grad_up, int threads) {                                      \
        gate_backward<T>(rows, width, gate, up, grad, grad_gate, grad_up, threads);                                    \
    }

FOR_EACH_TYPE(EXPORTS)
