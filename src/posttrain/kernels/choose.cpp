// Tokens chosen from logits, and uniform draws, for many rows at once.

#include "choose.h"

template <typename T>
static void choose(int64_t rows, int64_t count, const T *logits, const double *temperature, const double *uniform,
                   int64_t *token, double *logp, double *entropy, int threads) {
#pragma omp parallel num_threads(threads)
    {
        Memory<double> weight(count);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++)
            choose_one(count, logits + r * count, temperature[r], uniform[r], weight.data(), token + r, logp + r,
                       entropy + r);
    }
}

extern "C" void uniform_float64(int64_t count, const uint64_t *key, const uint64_t *counter, double *to) {
    for (int64_t i = 0; i < count; i++) to[i] = drawn(key[i], counter[i]);
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void choose_##NAME(int64_t rows, int64_t count, const T *logits, const double *temperature,             \
                                  const double *uniform, int64_t *token, double *logp, double *entropy, int threads) { \
        choose<T>(rows, count, logits, temperature, uniform, token, logp, entropy, threads);                           \
    }

FOR_EACH_TYPE(EXPORTS)
