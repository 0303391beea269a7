// Rotary positions.
#pragma once

#include "numbers.h"

// A head, normed where there is a weight, with the pair (i, i + d / 2) turned by an angle. Gives 1 / rms.
template <typename T>
static inline float turn(int64_t width, float eps, const T *in, const T *weight, const float *cosine, const float *sine,
                         T *out) {
    int64_t half = width / 2;
    if (!weight) {
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            float a = load(in[i]), b = load(in[i + half]);
            store(out[i], a * cosine[i] - b * sine[i]);
            store(out[i + half], b * cosine[i] + a * sine[i]);
        }
        return 1.0f;
    }
    float scale = 1.0f / std::sqrt(squared(in, width) / width + eps);
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float a = load(in[i]) * scale * load(weight[i]);
        float b = load(in[i + half]) * scale * load(weight[i + half]);
        store(out[i], a * cosine[i] - b * sine[i]);
        store(out[i + half], b * cosine[i] + a * sine[i]);
    }
    return scale;
}
