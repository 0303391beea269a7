// One new token of each sequence through all layers of a decoder, and from there the draw of the next, as often as asked.
//
// Where there are rows enough, every thread takes its own rows through all layers, and never waits for another; where
// there are few, the threads share the outputs of each matrix. Matrices are laid out once, in the order in which they are
// read. A row's numbers depend on its own row alone: each sum runs over the inputs in their order, wherever the row is and
// however many threads there are.
//
// Products are bound by arithmetic, attention by the speed of the processor's outer cache. So rows go through attention a few
// at a time where its matrices stay near, and products fetch by turns their next panels and what will be attended to.
//
// In bfloat16 products are made by the processor's matrix unit (AMX) where it has one, or by its vectors of pairs
// (AVX-512 BF16), and else in float.

#include "attend.h"
#include "choose.h"

#include <omp.h>

#ifdef __AMX_BF16__
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

const int64_t PANEL = 32; // outputs that are computed together
const int64_t ROWS = 16;  // rows that belong to one thread
const int64_t NEAR = 1 << 19; // bytes that are fetched ahead at most: a part of what a core's own cache holds

// The matrix unit must be asked for, once a process (arch_prctl(2), ARCH_REQ_XCOMP_PERM for XTILE_DATA).
static bool has_matrix_unit() {
#ifdef __AMX_BF16__
    static const bool granted = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    return granted;
#else
    return false;
#endif
}

template <typename T> static bool by_matrix_unit() { return sizeof(T) == 2 && has_matrix_unit(); }

// Whether two products of bfloat16 and their sum are one instruction.
template <typename T> static bool in_pairs() {
#ifdef __AVX512BF16__
    return sizeof(T) == 2;
#else
    return by_matrix_unit<T>();
#endif
}

// Panels of 32 outputs. As float: [inputs][32]. In pairs: [inputs / 32][2 halves][16 pairs][16 outputs][2], which is what the
// matrix unit takes as its second operand, and a line is a vector of pairs. What a panel lacks is zero.
template <typename T> static int64_t packed_bytes(int64_t outputs, int64_t inputs) {
    int64_t each = in_pairs<T>() ? up_to(inputs, 32) * 2 : inputs * 4;
    return up_to(outputs, PANEL) * each;
}

template <typename T> static void pack(int64_t outputs, int64_t inputs, const T *weight, char *packed, int threads) {
    int64_t size = packed_bytes<T>(PANEL, inputs);
#pragma omp parallel for num_threads(threads)
    for (int64_t first = 0; first < outputs; first += PANEL) {
        char *own = packed + first / PANEL * size;
        if (first + PANEL > outputs || inputs % 32) std::memset(own, 0, size);
        for (int64_t o = 0; o < std::min(PANEL, outputs - first); o++) {
            const T *row = weight + (first + o) * inputs;
            T *pairs = (T *)own + o / 16 * 512 + o % 16 * 2;
            for (int64_t i = 0; in_pairs<T>() && i < inputs; i++) pairs[i / 32 * 1024 + i % 32 / 2 * 32 + i % 2] = row[i];
            for (int64_t i = 0; !in_pairs<T>() && i < inputs; i++) ((float *)own)[i * PANEL + o] = load(row[i]);
        }
    }
}

template <typename T> struct Matrix {
    const char *packed;
    const T *bias;
    int64_t outputs, inputs;
};

// Rows of numbers, each beginning `stride` after the one before; columns beyond what is used are zeros.
template <typename T> struct Sheet {
    int64_t rows = 0, width = 0, stride = 0;
    Memory<T> numbers;

    Sheet() = default;
    Sheet(int64_t rows, int64_t width)
        : rows(rows), width(width), stride(up_to(width, 32)), numbers(up_to(rows, 32) * stride) {}
    T *row(int64_t r) { return &numbers[r * stride]; }
};

// sum[8][32] = 8 rows . the panel
static inline void by_vectors(const float *x, int64_t stride, const float *panel, int64_t inputs, float *sum,
                              Ahead &panels, Ahead &later) {
    lanes low[8] = {}, high[8] = {};
    for (int64_t i = 0; i < inputs; i++) {
        (i % 2 ? later : panels).fetch();
        lanes a = load_lanes(panel + i * PANEL), b = load_lanes(panel + i * PANEL + PAGE);
        for (int r = 0; r < 8; r++) {
            float given = x[r * stride + i];
            low[r] = plus_product(low[r], given, a);
            high[r] = plus_product(high[r], given, b);
        }
    }
    for (int r = 0; r < 8; r++) {
        std::memcpy(sum + r * PANEL, &low[r], sizeof(lanes));
        std::memcpy(sum + r * PANEL + PAGE, &high[r], sizeof(lanes));
    }
}

#ifdef __AVX512BF16__
// The same of rows and a panel in pairs.
static inline void by_vectors_of_pairs(const bfloat16 *x, int64_t stride, const bfloat16 *panel, int64_t inputs,
                                       float *sum, Ahead &panels, Ahead &later) {
    __m512 low[8], high[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) low[r] = high[r] = _mm512_setzero_ps();
    for (int64_t from = 0; from < inputs; from += 32, panel += 1024) {
        for (int line = 0; line < 8; line++) panels.fetch(), later.fetch();
        for (int64_t i = 0; i < 32; i += 2) {
            const bfloat16 *line = panel + i * PAGE;
            __builtin_prefetch(line + 1024);
            __builtin_prefetch(line + 1536);
            __m512bh a = (__m512bh)_mm512_loadu_si512(line), b = (__m512bh)_mm512_loadu_si512(line + 512);
#pragma GCC unroll 8
            for (int r = 0; r < 8; r++) {
                int32_t pair;
                std::memcpy(&pair, x + r * stride + from + i, sizeof(pair));
                __m512bh given = (__m512bh)_mm512_set1_epi32(pair);
                low[r] = _mm512_dpbf16_ps(low[r], given, a);
                high[r] = _mm512_dpbf16_ps(high[r], given, b);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) {
        _mm512_storeu_ps(sum + r * PANEL, low[r]);
        _mm512_storeu_ps(sum + r * PANEL + PAGE, high[r]);
    }
}
#endif

#ifdef __AMX_BF16__
struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// sum[16 * HALVES][32] = 16 or 32 rows . the panel
template <int HALVES>
static inline void by_tiles(const bfloat16 *x, int64_t stride, const bfloat16 *panel, int64_t inputs, float *sum) {
    _tile_zero(0);
    _tile_zero(1);
    if (HALVES == 2) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < inputs; i += 32) {
        _tile_loadd(6, panel + i * 32, 64);
        _tile_loadd(7, panel + i * 32 + 512, 64);
        _tile_loadd(4, x + i, stride * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (HALVES == 2) {
            _tile_loadd(5, x + 16 * stride + i, stride * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sum, PANEL * 4);
    _tile_stored(1, sum + 16, PANEL * 4);
    if (HALVES == 2) {
        _tile_stored(2, sum + 16 * PANEL, PANEL * 4);
        _tile_stored(3, sum + 16 * PANEL + 16, PANEL * 4);
    }
}
#endif

// What a thread does: its rows, and which panels of every matrix (those of its number among all who share the rows).
struct Share {
    int64_t begin, end, number, of;

    int64_t until(int64_t row) const { return row < end ? row : end; }

    void wait() const {
        if (of > 1) {
#pragma omp barrier
        }
    }
};

// Rows of a share as float, each beginning `stride` after the one before, up to a multiple of 8: where they are, or copies.
static inline const float *as_float(Sheet<float> &from, const Share &share, int64_t) {
    return share.begin < share.end ? from.row(share.begin) : nullptr;
}

static inline const float *as_float(Sheet<bfloat16> &from, const Share &share, int64_t inputs) {
    static thread_local Memory<float> copies;
    int64_t rows = share.end - share.begin;
    if ((int64_t)copies.size() < up_to(rows, 8) * from.stride) copies.resize(up_to(rows, 8) * from.stride);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < inputs; i++) copies[r * from.stride + i] = load(from.row(share.begin + r)[i]);
    return copies.data();
}

// to[rows] = from[rows] . matrix^T + bias. Meanwhile the matrix's next panel is fetched, and what is given.
template <typename T>
static void multiply(const Share &share, const Matrix<T> &matrix, Sheet<T> &from, Sheet<T> &to, Ahead *meanwhile = {}) {
    Ahead nothing, &later = meanwhile ? *meanwhile : nothing;
    alignas(64) float sum[32 * PANEL];
    bool tiles = by_matrix_unit<T>(), pairs = in_pairs<T>();
    int64_t inputs = pairs ? up_to(matrix.inputs, 32) : matrix.inputs, panel_bytes = PANEL * inputs * (pairs ? 2 : 4);
    const float *floats = pairs ? nullptr : as_float(from, share, inputs);
    for (int64_t o = share.number * PANEL; o < matrix.outputs; o += share.of * PANEL) {
        const char *panel = matrix.packed + o / PANEL * panel_bytes;
        int64_t count = matrix.outputs - o < PANEL ? matrix.outputs - o : PANEL;
        const char *next = panel + share.of * panel_bytes;
        Ahead panels{&next, &next + (o + share.of * PANEL < matrix.outputs), panel_bytes};
        for (int64_t r = share.begin; r < share.end;) {
            int64_t step = 8, s = from.stride;
            if (!pairs)
                by_vectors(floats + (r - share.begin) * s, s, (const float *)panel, inputs, sum, panels, later);
#ifdef __AVX512BF16__
            else if (!tiles)
                by_vectors_of_pairs((const bfloat16 *)from.row(r), s, (const bfloat16 *)panel, inputs, sum, panels, later);
#endif
#ifdef __AMX_BF16__
            else if (share.end - r > 16) {
                by_tiles<2>((const bfloat16 *)from.row(r), s, (const bfloat16 *)panel, inputs, sum);
                step = 32;
            } else {
                by_tiles<1>((const bfloat16 *)from.row(r), s, (const bfloat16 *)panel, inputs, sum);
                step = 16;
            }
#endif
            for (int64_t i = 0; i < step && r + i < share.end; i++) {
                T *out = to.row(r + i) + o;
                const float *in = sum + i * PANEL;
                if (!matrix.bias && count == PANEL) {
                    store_lanes(out, load_lanes(in));
                    store_lanes(out + PAGE, load_lanes(in + PAGE));
                } else {
                    for (int64_t j = 0; j < count; j++) store(out[j], in[j] + (matrix.bias ? load(matrix.bias[o + j]) : 0));
                }
            }
            r += step;
        }
    }
    share.wait();
}

// x += delta, y = norm of x; as in norm_forward
template <typename T>
static void add_norm(const Share &share, int64_t width, float eps, Sheet<T> &x, Sheet<T> *delta, const T *weight,
                     Sheet<T> &y) {
    for (int64_t r = share.begin + share.number; r < share.end; r += share.of) {
        T *in = x.row(r), *out = y.row(r);
        if (delta) {
            const T *more = delta->row(r);
#pragma omp simd
            for (int64_t i = 0; i < width; i++) store(in[i], load(in[i]) + load(more[i]));
        }
        float scale = 1.0f / std::sqrt(squared(in, width) / width + eps);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) store(out[i], load(in[i]) * scale * load(weight[i]));
    }
    share.wait();
}

// A layer, as Python gives it: addresses, in this order. A bias, or the norm of queries and keys, may be null.
template <typename T> struct Layer {
    const T *input_norm, *attention_norm, *query_norm, *key_norm;
    T *keys, *values;
    struct {
        const char *packed;
        const T *bias;
    } query, key, value, output, gate, up, down;
};

struct Sizes {
    int64_t layers, batch, width, heads, key_heads, head_width, mlp_width;
    float eps, head_eps;
};

// What is between a step's products, for all rows. It stays where it is from step to step: memory that is new comes as zeros,
// and to another core than the one that needs it.
template <typename T> struct Sheets {
    Sheet<T> stream, normed, delta, q, k, v, attended, gate, up, logits;

    void fit(const Sizes &n, int64_t vocabulary) {
        int64_t q_width = n.heads * n.head_width, k_width = n.key_heads * n.head_width;
        for (Sheet<T> *sheet : {&stream, &normed, &delta}) fit(*sheet, n.batch, n.width);
        for (Sheet<T> *sheet : {&q, &attended}) fit(*sheet, n.batch, q_width);
        for (Sheet<T> *sheet : {&k, &v}) fit(*sheet, n.batch, k_width);
        for (Sheet<T> *sheet : {&gate, &up}) fit(*sheet, n.batch, n.mlp_width);
        if (vocabulary) fit(logits, n.batch, vocabulary);
    }

  private:
    static void fit(Sheet<T> &sheet, int64_t rows, int64_t width) {
        if (sheet.width != width || sheet.rows < rows) sheet = Sheet<T>(rows, width);
    }
};

// Rows that go through attention together: few, so that what they attend to is near, but enough for their matrices to come
// along in the meantime. Matrices that do not stay near are read anew for each block of rows, so that those are larger.
template <typename T> static int64_t block_rows(const Sizes &n) {
    int64_t q_width = n.heads * n.head_width, k_width = n.key_heads * n.head_width;
    int64_t bytes = packed_bytes<T>(2 * q_width + 2 * k_width, n.width);
    if (bytes > 2 * NEAR) return 32;
    return up_to(bytes / (NEAR / 2) + 1, by_matrix_unit<T>() ? 32 : 8);
}

// Collects the pages that some rows attend to, but for those of the row before.
template <typename T>
static Ahead pages_of(const Cache<T> &cache, int64_t stride, const Share &rows, std::vector<const char *> &pages) {
    int64_t bytes = PAGE * stride * sizeof(T);
    pages.clear();
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const int32_t *now = cache.table + r * cache.table_width;
        for (int64_t p = 0; p <= cache.length[r] / PAGE && (int64_t)pages.size() * bytes < NEAR; p++) {
            if (r > rows.begin && now[p] == now[p - cache.table_width]) continue;
            pages.push_back((const char *)(cache.keys + now[p] * PAGE * stride));
            pages.push_back((const char *)(cache.values + now[p] * PAGE * stride));
        }
    }
    return {pages.data(), pages.data() + pages.size(), bytes};
}

// What becomes of the last hidden states. With `head`, a token is drawn from its logits, and goes through the decoder in its
// turn until each sequence has `steps` of them; else the states are given after one step.
template <typename T> struct End {
    T *hidden; // [batch, width]
    const char *head;
    int64_t vocabulary, steps;
    const double *temperature;
    const uint64_t *key, *counter; // the draws of a sequence have its key and consecutive counters
    int64_t *token;                // [batch, steps]
    double *logp, *entropy;
};

// The part of a thread: its rows, through all layers.
template <typename T> struct Worker {
    const Sizes &n;
    const Layer<T> *layers;
    const T *last_norm;
    const int32_t *table;
    int64_t table_width;
    const int64_t *length;
    const float *cosine, *sine;
    Share share;
    Sheets<T> &sheets;
    int64_t block_rows;
    Desk<T> desk = {};
    std::vector<const char *> pages = {};

    int64_t q_width() const { return n.heads * n.head_width; }
    int64_t k_width() const { return n.key_heads * n.head_width; }
    Cache<T> cache(int64_t l) const { return {layers[l].keys, layers[l].values, table, table_width, length}; }

    // What the rows from `begin` on will attend to, or where there are no more, the first ones in the next layer.
    Ahead pages_from(int64_t l, int64_t begin) {
        if (begin >= share.end) begin = share.begin, l++;
        Share block{begin, l < n.layers && share.of == 1 ? share.until(begin + block_rows) : begin, 0, 1};
        return pages_of(cache(l < n.layers ? l : 0), k_width(), block, pages);
    }

    // stream holds embeddings; normed gets the last hidden states.
    void through_layers() {
        auto &[stream, normed, delta, q, k, v, attended, gate, up, logits] = sheets;
        for (int64_t l = 0; l < n.layers; l++) {
            attention(l);
            const Layer<T> &layer = layers[l];
            add_norm(share, n.width, n.eps, stream, &delta, layer.attention_norm, normed);
            multiply(share, matrix(layer.gate, n.mlp_width, n.width), normed, gate);
            multiply(share, matrix(layer.up, n.mlp_width, n.width), normed, up);
            for (int64_t r = share.begin + share.number; r < share.end; r += share.of)
                ::gate(n.mlp_width, gate.row(r), up.row(r), gate.row(r));
            share.wait();
            Ahead ahead = pages_from(l, share.end);
            multiply(share, matrix(layer.down, n.width, n.mlp_width), gate, delta, &ahead);
        }
        add_norm(share, n.width, n.eps, stream, &delta, last_norm, normed);
    }

    // A token of each row, its log-probability and the row's entropy, from the last hidden states.
    void draw(const End<T> &end, int64_t step, double *weight) {
        multiply(share, Matrix<T>{end.head, nullptr, end.vocabulary, n.width}, sheets.normed, sheets.logits);
        for (int64_t r = share.begin + share.number; r < share.end; r += share.of) {
            int64_t at = r * end.steps + step;
            choose_one(end.vocabulary, sheets.logits.row(r), end.temperature[r], drawn(end.key[r], end.counter[r] + step),
                       weight, end.token + at, end.logp + at, end.entropy + at);
        }
    }

  private:
    template <typename M> static Matrix<T> matrix(const M &m, int64_t outputs, int64_t inputs) {
        return {m.packed, m.bias, outputs, inputs};
    }

    void attention(int64_t l) {
        auto &[stream, normed, delta, q, k, v, attended, gate, up, logits] = sheets;
        const Layer<T> &layer = layers[l];
        Rotary<T> rotary{layer.query_norm, layer.key_norm, n.head_eps, cosine, sine};
        float scale = 1.0f / std::sqrt((float)n.head_width);
        for (int64_t begin = share.begin; begin < share.end;) {
            Share block{begin, share.of == 1 ? share.until(begin + block_rows) : share.end, share.number, share.of};
            begin = block.end;
            Ahead ahead = pages_from(l, begin);
            add_norm(block, n.width, n.eps, stream, l ? &delta : nullptr, layer.input_norm, normed);
            multiply(block, matrix(layer.query, q_width(), n.width), normed, q, &ahead);
            multiply(block, matrix(layer.key, k_width(), n.width), normed, k, &ahead);
            multiply(block, matrix(layer.value, k_width(), n.width), normed, v, &ahead);
            for (int64_t r = block.begin + block.number; r < block.end; r += block.of)
                attend(cache(l), rotary, {n.heads, n.key_heads, n.head_width}, r, q.row(r), k.row(r), v.row(r), scale,
                       attended.row(r), desk, ahead);
            block.wait();
            multiply(block, matrix(layer.output, n.width, q_width()), attended, delta, &ahead);
        }
    }
};

// token [batch] are the new tokens, rows of `embedding`; `length` grows with what is added.
template <typename T>
static void decode(Sizes n, const Layer<T> *layers, const int64_t *token, const T *embedding, const T *last_norm,
                   const int32_t *table, int64_t table_width, int64_t *length, const float *cosine, const float *sine,
                   const End<T> &end, int threads) {
    static thread_local Sheets<T> sheets;
    sheets.fit(n, end.head ? end.vocabulary : 0);
    Sheets<T> &shared = sheets;
#pragma omp parallel num_threads(threads)
    {
        int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        Share share{0, n.batch, thread, team};
        if (n.batch >= team * ROWS) {
            int64_t each = up_to((n.batch + team - 1) / team, ROWS), begin = thread * each;
            share = {begin, begin < n.batch ? share.until(begin + each) : begin, 0, 1};
        }
        Worker<T> worker{n, layers, last_norm, table, table_width, length, cosine, sine, share, shared, block_rows<T>(n)};
        Memory<double> weight(end.head ? end.vocabulary : 0);
#ifdef __AMX_BF16__
        static const TileShapes shapes;
        if (by_matrix_unit<T>()) _tile_loadconfig(&shapes);
#endif
        for (int64_t step = 0; step < end.steps; step++) {
            for (int64_t r = share.begin + share.number; r < share.end; r += share.of) {
                int64_t last = step ? end.token[r * end.steps + step - 1] : token[r];
                std::memcpy(shared.stream.row(r), embedding + last * n.width, n.width * sizeof(T));
            }
            worker.through_layers();
            if (end.head) worker.draw(end, step, weight.data());
            for (int64_t r = share.begin + share.number; r < share.end; r += share.of) {
                if (!end.head) std::memcpy(end.hidden + r * n.width, shared.normed.row(r), n.width * sizeof(T));
                length[r]++;
            }
        }
#ifdef __AMX_BF16__
        if (by_matrix_unit<T>()) _tile_release();
#endif
    }
}

// y [rows, outputs] = x [rows, inputs] . matrix^T, to the same bits as within `decode`.
template <typename T>
static void product(int64_t rows, int64_t inputs, int64_t outputs, const T *x, const char *packed, T *y, int threads) {
    Sheet<T> from(rows, inputs), to(rows, outputs);
    for (int64_t r = 0; r < rows; r++) std::memcpy(from.row(r), x + r * inputs, inputs * sizeof(T));
#pragma omp parallel num_threads(threads)
    {
        Share share{0, rows, omp_get_thread_num(), omp_get_num_threads()};
#ifdef __AMX_BF16__
        static const TileShapes shapes;
        if (by_matrix_unit<T>()) _tile_loadconfig(&shapes);
#endif
        multiply(share, Matrix<T>{packed, nullptr, outputs, inputs}, from, to);
#ifdef __AMX_BF16__
        if (by_matrix_unit<T>()) _tile_release();
#endif
    }
    for (int64_t r = 0; r < rows; r++) std::memcpy(y + r * outputs, to.row(r), outputs * sizeof(T));
}

#define EXPORTS(T, NAME)                                                                                               \
    extern "C" int64_t packed_bytes_##NAME(int64_t outputs, int64_t inputs) { return packed_bytes<T>(outputs, inputs); }\
    extern "C" void pack_##NAME(int64_t outputs, int64_t inputs, const T *weight, char *packed, int threads) {         \
        pack<T>(outputs, inputs, weight, packed, threads);                                                             \
    }                                                                                                                  \
    extern "C" void decode_##NAME(int64_t layers, int64_t batch, int64_t width, int64_t heads, int64_t key_heads,      \
                                  int64_t head_width, int64_t mlp_width, float eps, float head_eps, const void *layer, \
                                  const int64_t *token, const T *embedding, const T *last_norm, const int32_t *table,  \
                                  int64_t table_width, int64_t *length, const float *cosine, const float *sine,        \
                                  T *hidden, const char *head, int64_t vocabulary, int64_t steps,                      \
                                  const double *temperature,                                                           \
                                  const uint64_t *key, const uint64_t *counter, int64_t *chosen, double *logp,         \
                                  double *entropy, int threads) {                                                      \
        decode<T>({layers, batch, width, heads, key_heads, head_width, mlp_width, eps, head_eps},                      \
                  (const Layer<T> *)layer, token, embedding, last_norm, table, table_width, length, cosine, sine,      \
                  {hidden, head, vocabulary, steps, temperature, key, counter, chosen, logp, entropy}, threads);       \
    }                                                                                                                  \
    extern "C" void product_##NAME(int64_t rows, int64_t inputs, int64_t outputs, const T *x, const char *packed, T *y,\
                                   int threads) {                                                                      \
        product<T>(rows, inputs, outputs, x, packed, y, threads);                                                      \
    }

FOR_EACH_TYPE(EXPORTS)

// Whether products of bfloat16 have an instruction of their own here.
extern "C" int multiplies_bfloat16() { return has_matrix_unit(); }
