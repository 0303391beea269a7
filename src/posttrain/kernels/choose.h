// From logits to a chosen token, for rows that keep all tokens: temperature, then one uniform draw. And the draws
// themselves.
#pragma once

#include "numbers.h"

// e^x for x <= 0 within 2 units in the last place, 0 below -708; without a call, so that loops of it are vectorised. As
// `exponential` of a float, with the Taylor series to degree 13.
static inline double exponential(double x) {
    double near = x < -708.0 ? -708.0 : x, n = std::nearbyint(near * 1.4426950408889634);
    double r = near - n * 0.69314718036912382 - n * 1.9082149292705877e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    int64_t power = (int64_t(n) + 1023) << 52;
    double scale;
    std::memcpy(&scale, &power, 8);
    return x < -708.0 ? 0.0 : p * scale;
}

// A row by the rules of posttrain/engines/_truncation.py, in double. Logits that hold NaN or positive infinity, or nothing
// finite, give NaN. The entropy is that of the whole row: with weights w = e^x and their sum z, ln z - sum(w x) / z.
template <typename T>
static void choose_one(int64_t count, const T *logits, double temperature, double uniform, double *weight,
                       int64_t *token, double *logp, double *entropy) {
    float top = -INFINITY;
    int broken = 0;
#pragma omp simd reduction(max : top) reduction(| : broken)
    for (int64_t i = 0; i < count; i++) {
        float x = load(logits[i]);
        broken |= x != x;
        top = x > top ? x : top;
    }
    int64_t best = 0;
    while (best + 1 < count && load(logits[best]) != top) best++;
    double largest = top, total = 0;
    if (broken || std::isinf(largest)) {
        *token = best;
        *logp = *entropy = NAN;
        return;
    }
    double by = temperature == 0 ? 1.0 : temperature, energy = 0;
#pragma omp simd reduction(+ : energy)
    for (int64_t i = 0; i < count; i++) {
        double x = (load(logits[i]) - largest) / by;
        weight[i] = exponential(x);
        energy += x < -708.0 ? 0.0 : weight[i] * x; // an impossible token adds 0, not 0 times infinity
    }
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
    *entropy = std::log(total) - energy / total;
}

// Philox4x32-10, as in posttrain/engines/_random.py: a number in [0, 1) for a key and a counter.
static inline double drawn(uint64_t key, uint64_t counter) {
    uint32_t c[4] = {uint32_t(counter), uint32_t(counter >> 32), 0, 0}, k[2] = {uint32_t(key), uint32_t(key >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t left = 0xD2511F53ull * c[0], right = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = {uint32_t(right >> 32) ^ c[1] ^ k[0], uint32_t(right), uint32_t(left >> 32) ^ c[3] ^ k[1],
                            uint32_t(left)};
        std::memcpy(c, next, sizeof(c));
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return ((uint64_t(c[0]) << 21) | (c[1] >> 11)) * 0x1p-53;
}
