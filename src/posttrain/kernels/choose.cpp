// From logits to a chosen token, for rows that keep all tokens: temperature, then one uniform draw.

#include "numbers.h"

// A row by the rules of posttrain/engines/_truncation.py, in double. Logits that hold NaN or positive infinity, or nothing
// finite, give a log-probability of NaN.
template <typename T>
static void choose_one(int64_t count, const T *logits, double temperature, double uniform, double *weight,
                       int64_t *token, double *logp) {
    int64_t best = 0;
    bool broken = false;
    for (int64_t i = 0; i < count; i++) {
        float x = load(logits[i]);
        broken |= std::isnan(x);
        if (x > load(logits[best])) best = i;
    }
    double largest = load(logits[best]), total = 0;
    if (broken || std::isinf(largest)) {
        *token = best;
        *logp = NAN;
        return;
    }
    double by = temperature == 0 ? 1.0 : temperature;
    for (int64_t i = 0; i < count; i++) weight[i] = std::exp((load(logits[i]) - largest) / by);
    for (int64_t i = 0; i < count; i++) total += weight[i];
    int64_t chosen = best;
    if (temperature != 0) {
        double target = uniform * total, reached = 0;
        for (int64_t i = 0; i < count; i++) {
            if (weight[i] > 0) chosen = i; // the last possible one, where rounding leaves none above the target
            reached += weight[i];
            if (reached > target) break;
        }
    }
    *token = chosen;
    *logp = (load(logits[chosen]) - largest) / by - std::log(total);
}

template <typename T>
static void choose(int64_t rows, int64_t count, const T *logits, const double *temperature, const double *uniform,
                   int64_t *token, double *logp, int threads) {
#pragma omp parallel num_threads(threads)
    {
        Memory<double> weight(count);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++)
            choose_one(count, logits + r * count, temperature[r], uniform[r], weight.data(), token + r, logp + r);
    }
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" void choose_##NAME(int64_t rows, int64_t count, const T *logits, const double *temperature,             \
                                  const double *uniform, int64_t *token, double *logp, int threads) {                  \
        choose<T>(rows, count, logits, temperature, uniform, token, logp, threads);                                    \
    }

FOR_EACH_TYPE(EXPORTS)
