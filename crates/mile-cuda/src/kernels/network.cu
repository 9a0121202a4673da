// Layers of networks, for all agents at once: an agent is blockIdx.z. Images are [agent][sample][row][column][channel], weights
// [tap][input][output] and then biases, as in crates/mile-nn.

// A convolution with its pooling over squares of 2 x 2 and relu. A dense layer is one with H = W = K = 1. WV weights can be read at once.
template <int H_, int W_, int C_, int K_, int PAD_, int STRIDE_, int OUT_, bool POOL_, bool RELU_, int WV_>
struct Layer {
    static constexpr int WV = WV_;
    static constexpr int H = H_, W = W_, C = C_, K = K_, PAD = PAD_, STRIDE = STRIDE_, OUT = OUT_;
    static constexpr bool POOL = POOL_, RELU = RELU_;
    // Before pooling, and squares.
    static constexpr int OH = (H + 2 * PAD - K) / STRIDE + 1, OW = (W + 2 * PAD - K) / STRIDE + 1;
    static constexpr int SH = OH / 2, SW = OW / 2;
    static constexpr int TAPS = K * K, DEPTH = TAPS * C;
};

// The most numbers of `count` side by side that can be read at once: up to sixteen bytes.
__host__ __device__ constexpr int side_by_side(int count) {
    return count % (16 / sizeof(T)) == 0 ? 16 / sizeof(T) : sizeof(T) == 4 && count % 2 == 0 ? 2 : 1;
}

// Row m of a product is a pixel of a convolution's output. With pooling, of 32 rows those with the same m % 8 are a square: the four
// rows that one thread has of two tiles.
template <class L>
struct Pixel {
    int sample, y, x;
    __device__ __forceinline__ explicit Pixel(int m) {
        if constexpr (L::POOL) {
            int square = m / 32 * 8 + m % 8, corner = m / 8 % 4;
            sample = square / (L::SH * L::SW);
            int rest = square % (L::SH * L::SW);
            y = rest / L::SW * 2 + corner / 2;
            x = rest % L::SW * 2 + corner % 2;
        } else {
            sample = m / (L::OH * L::OW);
            int rest = m % (L::OH * L::OW);
            y = rest / L::OW;
            x = rest % L::OW;
        }
    }
};

// Far outside of any image.
#define OUTSIDE (-(1 << 20))

// Forward: inputs of output pixels, [pixel][tap, input].
template <class L>
struct Inputs {
    static constexpr bool ALONG_K = true;
    static constexpr int V = side_by_side(L::C);
    const T* x;
    int samples;
    struct Row { int base, y, x; };
    struct Column { int offset, y, x; };
    __device__ __forceinline__ Row row(int m) const {
        Pixel<L> pixel(m);
        int y = pixel.y * L::STRIDE - L::PAD, x = pixel.x * L::STRIDE - L::PAD;
        return {((pixel.sample * L::H + y) * L::W + x) * L::C, pixel.sample < samples ? y : OUTSIDE, x};
    }
    __device__ __forceinline__ Column column(int k) const {
        int tap = k / L::C, y = tap / L::K, x = tap % L::K;
        return {(y * L::W + x) * L::C + k % L::C, k < L::DEPTH ? y : OUTSIDE, x};
    }
    __device__ __forceinline__ const T* at(const Row& r, const Column& c) const {
        bool inside = (unsigned)(r.y + c.y) < L::H && (unsigned)(r.x + c.x) < L::W;
        return inside ? x + r.base + c.offset : nullptr;
    }
};

// Forward: weights, [tap, input][output].
template <class L>
struct Weights {
    static constexpr bool ALONG_K = false;
    static constexpr int V = L::WV;
    const T* weights;
    typedef int Row;
    typedef int Column;
    __device__ __forceinline__ Row row(int n) const { return n; }
    __device__ __forceinline__ Column column(int k) const { return k; }
    __device__ __forceinline__ const T* at(Row n, Column k) const {
        return n < L::OUT && k < L::DEPTH ? weights + k * L::OUT + n : nullptr;
    }
};

// Forward: bias, relu, and pooling with the place of the largest of four (4 if relu made it zero). NaN counts as largest.
template <class L>
struct Activations {
    static constexpr bool SQUARES = L::POOL;
    T* out;
    uint8_t* largest;
    const T* bias;
    int count;
    __device__ __forceinline__ void put(int m, int n, T value) const {
        if (m >= count || n >= L::OUT) return;
        value += bias[n];
        out[m * L::OUT + n] = L::RELU && value < T(0) ? T(0) : value;
    }
    __device__ __forceinline__ void put(int square, int n, T a, T b, T c, T d) const {
        if (square >= count || n >= L::OUT) return;
        T value = a, others[3] = {b, c, d};
        int which = 0;
#pragma unroll
        for (int k = 0; k < 3; k++)
            if (others[k] > value || others[k] != others[k]) value = others[k], which = k + 1;
        value += bias[n];
        bool inactive = L::RELU && value <= T(0);
        out[square * L::OUT + n] = inactive ? T(0) : value;
        largest[square * L::OUT + n] = inactive ? 4 : which;
    }
};

template <class L, class S, bool WINDOW>
__device__ void convolve(const T* x, const T* parameters, T* out, uint8_t* largest, int samples, Count stride, int offset) {
    int units = L::POOL ? L::SH * L::SW : L::OH * L::OW;
    Count agent = blockIdx.z;
    Inputs<L> a = {x + agent * samples * (L::H * L::W * L::C), samples};
    const T* weights = parameters + agent * stride + offset;
    Weights<L> b = {weights};
    Count place = agent * samples * units * L::OUT;
    Activations<L> c = {out + place, largest + place, weights + L::DEPTH * L::OUT, samples * units};
    if constexpr (WINDOW)
        windowed_product<L, S>(a.x, samples, b, c, blockIdx.x * S::M, blockIdx.y * S::N);
    else
        product<S>(a, b, c, blockIdx.x * S::M, blockIdx.y * S::N, 0, L::DEPTH);
}

// Sums that are split among blocks, [split][agent][m][n].
template <int ROWS, int COLUMNS>
struct Parts {
    static constexpr bool SQUARES = false;
    T* out;
    int rows;
    __device__ __forceinline__ void put(int m, int n, T value) const {
        if (m < rows && n < COLUMNS) out[m * COLUMNS + n] = value;
    }
};

// A dense layer whose depth is split among blocks; `finish` adds the parts.
template <class L, class S>
__device__ void dense(const T* x, const T* parameters, T* parts, int samples, Count stride, int offset, int depth) {
    Count agent = blockIdx.z, agents = gridDim.z;
    int tiles = (L::OUT + S::N - 1) / S::N, split = blockIdx.y / tiles, begin = split * depth;
    Inputs<L> a = {x + agent * samples * L::DEPTH, samples};
    Weights<L> b = {parameters + agent * stride + offset};
    Parts<0, L::OUT> c = {parts + (split * agents + agent) * samples * L::OUT, samples};
    int end = begin + depth < L::DEPTH ? begin + depth : L::DEPTH;
    product<S>(a, b, c, blockIdx.x * S::M, blockIdx.y % tiles * S::N, begin, end);
}

// Backward: deltas that a pixel of the input takes part in, [pixel][tap, output].
template <class L>
struct Deltas {
    static constexpr bool ALONG_K = true;
    static constexpr int V = side_by_side(L::OUT);
    const T* delta;
    int samples;
    struct Row { int base, y, x; };
    struct Column { int channel, y, x; };
    __device__ __forceinline__ Row row(int m) const {
        int sample = m / (L::H * L::W), rest = m % (L::H * L::W), y = rest / L::W + L::PAD, x = rest % L::W + L::PAD;
        int base = L::STRIDE == 1 ? ((sample * L::OH + y) * L::OW + x) * L::OUT : sample;
        return {base, sample < samples ? y : OUTSIDE, x};
    }
    __device__ __forceinline__ Column column(int k) const {
        int tap = k / L::OUT, y = tap / L::K, x = tap % L::K, channel = k % L::OUT;
        if (L::STRIDE == 1) channel -= (y * L::OW + x) * L::OUT;
        return {channel, k < L::TAPS * L::OUT ? y : -OUTSIDE * 2, x};
    }
    __device__ __forceinline__ const T* at(const Row& r, const Column& c) const {
        int y = r.y - c.y, x = r.x - c.x;
        if (L::STRIDE == 1) {
            bool inside = (unsigned)y < L::OH && (unsigned)x < L::OW;
            return inside ? delta + r.base + c.channel : nullptr;
        }
        bool inside = y >= 0 && x >= 0 && y % L::STRIDE == 0 && x % L::STRIDE == 0 && y / L::STRIDE < L::OH && x / L::STRIDE < L::OW;
        return inside ? delta + ((r.base * L::OH + y / L::STRIDE) * L::OW + x / L::STRIDE) * L::OUT + c.channel : nullptr;
    }
};

// Backward: weights, [tap, output][input].
template <class L>
struct Transposed {
    static constexpr bool ALONG_K = true;
    static constexpr int V = L::WV;
    const T* weights;
    typedef int Row;
    typedef int Column;
    __device__ __forceinline__ Row row(int n) const { return n < L::C ? n * L::OUT : OUTSIDE; }
    __device__ __forceinline__ Column column(int k) const {
        return k < L::TAPS * L::OUT ? k / L::OUT * (L::C * L::OUT) + k % L::OUT : OUTSIDE;
    }
    __device__ __forceinline__ const T* at(Row n, Column k) const { return n >= 0 && k >= 0 ? weights + n + k : nullptr; }
};

// Backward: weights with their taps in the opposite order, [tap, output][input].
template <class L>
struct Flipped : Transposed<L> {
    __device__ __forceinline__ int column(int k) const {
        return k < L::TAPS * L::OUT ? (L::TAPS - 1 - k / L::OUT) * (L::C * L::OUT) + k % L::OUT : OUTSIDE;
    }
};

// Deltas at the input: with a stride of 1 those of a convolution with the taps in the opposite order.
template <class L, class S, bool WINDOW>
__device__ void convolve_back(const T* delta, const T* parameters, T* out, int samples, Count stride, int offset) {
    Count agent = blockIdx.z;
    const T *deltas = delta + agent * samples * (L::OH * L::OW * L::OUT), *weights = parameters + agent * stride + offset;
    Parts<0, L::C> c = {out + agent * samples * (L::H * L::W * L::C), samples * L::H * L::W};
    if constexpr (WINDOW) {
        typedef Layer<L::OH, L::OW, L::OUT, L::K, L::K - 1 - L::PAD, 1, L::C, false, false, L::WV> Back;
        Flipped<L> b = {{weights}};
        windowed_product<Back, S>(deltas, samples, b, c, blockIdx.x * S::M, blockIdx.y * S::N);
    } else {
        Deltas<L> a = {deltas, samples};
        Transposed<L> b = {weights};
        product<S>(a, b, c, blockIdx.x * S::M, blockIdx.y * S::N, 0, L::TAPS * L::OUT);
    }
}

// Weight gradients: inputs of output pixels, [tap, input][pixel], and after them a row of ones for the biases.
template <class L>
struct InputsByTap {
    static constexpr bool ALONG_K = false;
    static constexpr int V = side_by_side(L::C);
    const T* x;
    int samples;
    struct Row { int offset, y, x; };
    struct Column { int base, y, x; };
    __device__ __forceinline__ Row row(int m) const {
        int tap = m / L::C, y = tap / L::K, x = tap % L::K;
        return {(y * L::W + x) * L::C + m % L::C, m < L::DEPTH ? y : m < L::DEPTH + V ? -OUTSIDE * 2 : OUTSIDE, x};
    }
    __device__ __forceinline__ Column column(int k) const {
        int sample = k / (L::OH * L::OW), rest = k % (L::OH * L::OW);
        int y = rest / L::OW * L::STRIDE - L::PAD, x = rest % L::OW * L::STRIDE - L::PAD;
        return {((sample * L::H + y) * L::W + x) * L::C, sample < samples ? y : OUTSIDE, x};
    }
    __device__ __forceinline__ const T* at(const Row& r, const Column& c) const {
        bool inside = (unsigned)(r.y + c.y) < L::H && (unsigned)(r.x + c.x) < L::W;
        const T* one = r.y == -OUTSIDE * 2 && c.y != OUTSIDE ? UNIT : nullptr;
        return inside ? x + c.base + r.offset : one;
    }
};

// Weight gradients: deltas, [pixel][output].
template <class L>
struct DeltasByPixel {
    static constexpr bool ALONG_K = false;
    static constexpr int V = side_by_side(L::OUT);
    const T* delta;
    int pixels;
    typedef int Row;
    typedef int Column;
    __device__ __forceinline__ Row row(int n) const { return n; }
    __device__ __forceinline__ Column column(int k) const { return k; }
    __device__ __forceinline__ const T* at(Row n, Column k) const {
        return n < L::OUT && k < pixels ? delta + k * L::OUT + n : nullptr;
    }
};

// The gradient of weights and biases, summed over `depth` pixels by each of several blocks: [split][agent][`numbers`].
template <class L, class S>
__device__ void weight_gradient(const T* x, const T* delta, T* out, int samples, int depth, Count numbers) {
    Count agent = blockIdx.z, agents = gridDim.z;
    int tiles = (L::OUT + S::N - 1) / S::N, split = blockIdx.y / tiles, begin = split * depth, pixels = samples * L::OH * L::OW;
    InputsByTap<L> a = {x + agent * samples * (L::H * L::W * L::C), samples};
    DeltasByPixel<L> b = {delta + agent * pixels * L::OUT, pixels};
    Parts<0, L::OUT> c = {out + (split * agents + agent) * numbers, L::DEPTH + 1};
    int end = begin + depth < pixels ? begin + depth : pixels;
    product<S>(a, b, c, blockIdx.x * S::M, blockIdx.y % tiles * S::N, begin, end);
}

#define INDEX ((Count)blockIdx.x * blockDim.x + threadIdx.x)

// The sum of parts of a dense layer, with bias and relu. A thread is an output.
extern "C" __global__ void finish(const T* parts, const T* parameters, T* out, uint32_t splits, uint32_t samples, uint32_t outputs,
                                  Count stride, Count bias, uint32_t relu) {
    Count agents = gridDim.z, numbers = (Count)samples * outputs, i = INDEX;
    if (i >= numbers) return;
    Count place = blockIdx.z * numbers + i;
    T sum = parameters[blockIdx.z * stride + bias + i % outputs];
    for (uint32_t s = 0; s < splits; s++) sum += parts[s * agents * numbers + place];
    out[place] = relu && sum < T(0) ? T(0) : sum;
}
EXPORT(finish)

// One layer's part of a gradient: where it is in a row, how many numbers, and the parts that are summed.
struct Summed {
    const T* parts;
    uint32_t offset, numbers, splits, unused;
};

// The gradient from the parts of all layers, added to what is there or replacing it. A thread is a parameter.
extern "C" __global__ void sum_parts(const Summed* layers, uint32_t count, T* g, Count stride, uint32_t dim, uint32_t adds) {
    Count i = INDEX, agent = blockIdx.z, agents = gridDim.z;
    if (i >= dim) return;
    T sum = adds ? g[agent * stride + i] : T(0);
    for (uint32_t l = 0; l < count; l++) {
        Summed layer = layers[l];
        if (i < layer.offset || i >= layer.offset + layer.numbers) continue;
        const T* parts = layer.parts + agent * layer.numbers + (i - layer.offset);
#pragma unroll 8
        for (uint32_t s = 0; s < layer.splits; s++) sum += parts[s * agents * layer.numbers];
    }
    g[agent * stride + i] = sum;
}
EXPORT(sum_parts)

// The samples of a batch, [agent][sample], or NONE where an agent has fewer.
#define NONE 0xffffffffu

// Copies samples to the first layer's input, a block for each; bytes by a table of their values.
template <class Source>
__device__ void load(const Source* data, const T* values, const uint32_t* samples, T* out, uint32_t len) {
    uint32_t sample = samples[blockIdx.x];
    T* to = out + (Count)blockIdx.x * len;
    const Source* from = data + (Count)sample * len;
    for (uint32_t i = threadIdx.x; i < len; i += blockDim.x)
        to[i] = sample == NONE ? T(0) : values ? values[(int)from[i]] : (T)from[i];
}
extern "C" __global__ void load_bytes(const uint8_t* data, const T* values, const uint32_t* samples, T* out, uint32_t len) {
    load(data, values, samples, out, len);
}
EXPORT(load_bytes)
extern "C" __global__ void load_singles(const float* data, const T* values, const uint32_t* samples, T* out, uint32_t len) {
    load(data, values, samples, out, len);
}
EXPORT(load_singles)
extern "C" __global__ void load_doubles(const double* data, const T* values, const uint32_t* samples, T* out, uint32_t len) {
    load(data, values, samples, out, len);
}
EXPORT(load_doubles)

// Deltas at the outputs, times `scales` of the agent: cross-entropy with labels, or squared distance from targets. A thread is a sample.
extern "C" __global__ void loss_deltas(const T* outputs, T* delta, const uint8_t* labels, const double* targets, const uint32_t* samples,
                                       const T* scales, uint32_t classes, uint32_t per_agent, Count count) {
    Count i = INDEX;
    if (i >= count) return;
    const T* scores = outputs + i * classes;
    T *to = delta + i * classes, scale = scales[i / per_agent];
    uint32_t sample = samples[i];
    T largest = scores[0], total = T(0);
    for (uint32_t c = 1; c < classes; c++) largest = scores[c] > largest ? scores[c] : largest;
    if (labels)
        for (uint32_t c = 0; c < classes; c++) total += exp(scores[c] - largest);
    for (uint32_t c = 0; c < classes; c++) {
        if (sample == NONE)
            to[c] = T(0);
        else if (labels)
            to[c] = (exp(scores[c] - largest) / total - (c == labels[sample] ? T(1) : T(0))) * scale;
        else
            to[c] = (scores[c] - (T)targets[(Count)sample * classes + c]) * scale;
    }
}
EXPORT(loss_deltas)

// The loss of each sample, and whether its class is found.
extern "C" __global__ void score(const T* outputs, double* losses, uint8_t* correct, const uint8_t* labels, const double* targets,
                                 const uint32_t* samples, uint32_t classes, Count count) {
    Count i = INDEX;
    if (i >= count || samples[i] == NONE) return;
    const T* scores = outputs + i * classes;
    uint32_t best = 0;
    bool is_nan = false;
    for (uint32_t c = 0; c < classes; c++) {
        best = scores[c] > scores[best] ? c : best;
        is_nan |= scores[c] != scores[c];
    }
    double sum = 0.0, largest = (double)scores[best];
    if (labels) {
        for (uint32_t c = 0; c < classes; c++) sum += exp((double)scores[c] - largest);
        losses[i] = log(sum) + largest - (double)scores[labels[samples[i]]];
        correct[i] = !is_nan && best == labels[samples[i]];
    } else {
        for (uint32_t c = 0; c < classes; c++) {
            double d = (double)scores[c] - targets[(Count)samples[i] * classes + c];
            sum += d * d;
        }
        losses[i] = sum / 2.0;
        correct[i] = 0;
    }
}
EXPORT(score)

// Relu and pooling over 2 x 2, of a layer that does not do them itself. A thread is a number of the output.
extern "C" __global__ void activate(const T* in, T* out, uint8_t* largest, uint32_t h, uint32_t w, uint32_t c, uint32_t pool,
                                    uint32_t relu, Count count) {
    Count i = INDEX;
    if (i >= count) return;
    if (!pool) {
        T value = in[i];
        out[i] = relu && value < T(0) ? T(0) : value;
        return;
    }
    uint32_t sh = h / 2, sw = w / 2, channel = i % c, x = i / c % sw, y = i / c / sw % sh;
    const T* square = in + ((i / c / sw / sh * h + 2 * y) * w + 2 * x) * c + channel;
    T value = square[0];
    int which = 0;
    for (int k = 1; k < 4; k++) {
        T other = square[(k / 2 * w + k % 2) * c];
        if (other > value || other != other) value = other, which = k;
    }
    bool inactive = relu && value <= T(0);
    out[i] = inactive ? T(0) : value;
    largest[i] = inactive ? 4 : which;
}
EXPORT(activate)

// Numbers that are read or written together.
template <int V>
struct __align__(V * sizeof(T)) Numbers {
    T at[V];
};

// The backward pass of pooling over 2 x 2, relu and dropout: deltas at the numbers before them, H x W x C for each sample. A thread is a
// square, or a number, of V channels.
template <int H, int W, int C, bool POOL, bool RELU>
__device__ void scatter(const T* delta, const T* out, const uint8_t* largest, const T* mask, T* to, uint32_t samples) {
    constexpr int V = C % Wide<T>::lanes == 0 ? Wide<T>::lanes : 1, GROUPS = C / V;
    constexpr int ROWS = POOL ? (H + 1) / 2 : H, COLUMNS = POOL ? (W + 1) / 2 : W, SH = POOL ? H / 2 : H, SW = POOL ? W / 2 : W;
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples * (ROWS * COLUMNS * GROUPS)) return;
    int channel = i % GROUPS * V, x = i / GROUPS % COLUMNS, y = i / (GROUPS * COLUMNS) % ROWS;
    Count sample = (Count)blockIdx.z * samples + i / (GROUPS * COLUMNS * ROWS), place = ((sample * SH + y) * SW + x) * C + channel;
    bool inside = y < SH && x < SW;
    Numbers<V> value, factor, seen;
    uint8_t which[V];
#pragma unroll
    for (int v = 0; v < V; v++) value.at[v] = T(0), which[v] = 4;
    if (inside) {
        value = *(const Numbers<V>*)(delta + place);
        if (POOL) {
            if constexpr (V == 4) {
                uint32_t four = *(const uint32_t*)(largest + place);
#pragma unroll
                for (int v = 0; v < V; v++) which[v] = four >> (8 * v) & 255;
            } else {
                for (int v = 0; v < V; v++) which[v] = largest[place + v];
            }
        }
        if (mask) {
            factor = *(const Numbers<V>*)(mask + place);
#pragma unroll
            for (int v = 0; v < V; v++) value.at[v] *= factor.at[v];
        }
        if (!POOL && RELU) {
            seen = *(const Numbers<V>*)(out + place);
#pragma unroll
            for (int v = 0; v < V; v++) value.at[v] = seen.at[v] <= T(0) ? T(0) : value.at[v];
        }
    }
#pragma unroll
    for (int corner = 0; corner < (POOL ? 4 : 1); corner++) {
        int row = POOL ? 2 * y + corner / 2 : y, column = POOL ? 2 * x + corner % 2 : x;
        if (row >= H || column >= W) continue;
        Numbers<V> passed;
#pragma unroll
        for (int v = 0; v < V; v++) passed.at[v] = !POOL || which[v] == corner ? value.at[v] : T(0);
        *(Numbers<V>*)(to + ((sample * H + row) * W + column) * C + channel) = passed;
    }
}

// ChaCha with eight rounds, block `counter` of a key, of which the word `word` is returned.
__device__ uint32_t chacha8(const uint64_t* key, uint64_t counter, uint32_t word) {
    uint32_t start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u}, s[16];
    for (int k = 0; k < 4; k++) {
        start[4 + 2 * k] = (uint32_t)key[k];
        start[5 + 2 * k] = (uint32_t)(key[k] >> 32);
    }
    start[12] = (uint32_t)counter;
    start[13] = (uint32_t)(counter >> 32);
    start[14] = start[15] = 0;
    for (int k = 0; k < 16; k++) s[k] = start[k];
#define ROTATE(v, n) ((v) << (n) | (v) >> (32 - (n)))
#define QUARTER(a, b, c, d)                                      \
    s[a] += s[b], s[d] = ROTATE(s[d] ^ s[a], 16);                \
    s[c] += s[d], s[b] = ROTATE(s[b] ^ s[c], 12);                \
    s[a] += s[b], s[d] = ROTATE(s[d] ^ s[a], 8);                 \
    s[c] += s[d], s[b] = ROTATE(s[b] ^ s[c], 7)
    for (int round = 0; round < 4; round++) {
        QUARTER(0, 4, 8, 12);
        QUARTER(1, 5, 9, 13);
        QUARTER(2, 6, 10, 14);
        QUARTER(3, 7, 11, 15);
        QUARTER(0, 5, 10, 15);
        QUARTER(1, 6, 11, 12);
        QUARTER(2, 7, 8, 13);
        QUARTER(3, 4, 9, 14);
    }
    uint32_t found = 0;
    for (int k = 0; k < 16; k++)
        if (k == word) found = s[k] + start[k];
    return found;
}

// Draws dropout factors and applies them. The CPU draws for 64 samples at a time, one layer after the other: `all` numbers of a sample in
// all layers with dropout, `before` of them in the layers before this one. `draw` is (seed, step); `totals` are the samples of each
// agent's batch, of which these begin with number `first`.
extern "C" __global__ void dropout(T* x, T* mask, const uint64_t* draw, const uint32_t* totals, uint32_t first, uint32_t samples, uint32_t len,
                                   Count all, Count before, uint32_t threshold, T keep) {
    uint32_t i = INDEX, sample = first + i / len, chunk = sample / 64;
    if (i >= samples * len) return;
    Count agent = blockIdx.z, total = totals[agent];
    if (sample >= total) {
        mask[agent * samples * len + i] = T(0);
        return;
    }
    Count in_chunk = total - chunk * 64 < 64 ? total - chunk * 64 : 64;
    Count word = chunk * 64 * all + in_chunk * before + (Count)(sample - chunk * 64) * len + i % len;
    uint64_t key[4] = {draw[0], 7, agent, draw[1]};
    T factor = chacha8(key, word / 16, word % 16) < threshold ? T(0) : keep;
    mask[agent * samples * len + i] = factor;
    x[agent * samples * len + i] *= factor;
}
EXPORT(dropout)

// Max or average pooling over squares of any side. A thread is a number of the output.
extern "C" __global__ void pool(const T* in, T* out, uint16_t* which, uint32_t h, uint32_t w, uint32_t c, uint32_t oh, uint32_t ow,
                                uint32_t side, uint32_t stride, uint32_t average, Count count) {
    Count i = INDEX;
    if (i >= count) return;
    uint32_t channel = i % c, x = i / c % ow, y = i / c / ow % oh;
    const T* square = in + ((i / c / ow / oh * h + y * stride) * w + x * stride) * c + channel;
    T value = T(0);
    uint32_t place = 0;
    for (uint32_t k = 0; k < side * side; k++) {
        T other = square[(k / side * w + k % side) * c];
        if (average)
            value += other;
        else if (k == 0 || other > value || other != other)
            value = other, place = k;
    }
    out[i] = average ? value * (T(1) / T(side * side)) : value;
    if (!average) which[i] = place;
}
EXPORT(pool)

// The backward pass of `pool`. A thread is a number of the input.
extern "C" __global__ void unpool(const T* delta, const uint16_t* which, T* to, uint32_t h, uint32_t w, uint32_t c, uint32_t oh, uint32_t ow,
                                  uint32_t side, uint32_t stride, uint32_t average, Count count) {
    Count i = INDEX;
    if (i >= count) return;
    uint32_t channel = i % c, x = i / c % w, y = i / c / w % h;
    Count sample = i / c / w / h;
    T sum = T(0);
    uint32_t first_y = y < side ? 0 : (y - side) / stride + 1, first_x = x < side ? 0 : (x - side) / stride + 1;
    for (uint32_t v = first_y; v < oh && v * stride <= y; v++)
        for (uint32_t u = first_x; u < ow && u * stride <= x; u++) {
            Count place = ((sample * oh + v) * ow + u) * c + channel;
            if (average)
                sum += delta[place] * (T(1) / T(side * side));
            else if (which[place] == (y - v * stride) * side + (x - u * stride))
                sum += delta[place];
        }
    to[i] = sum;
}
EXPORT(unpool)

// out <- a + b.
extern "C" __global__ void sum_of_two(const T* a, const T* b, T* out, Count count) {
    Count i = INDEX;
    if (i < count) out[i] = a[i] + b[i];
}
EXPORT(sum_of_two)

// Normalisation of groups of channels, a block for each sample: h = (x - mean)/sqrt(variance + epsilon), y = scale h + shift. Writes mean and
// inverse deviation of each group, [sample][group][2]. There is a scale for each channel, or for each number.
extern "C" __global__ void normalise(const T* x, const T* parameters, T* y, T* moments, uint32_t pixels, uint32_t channels, uint32_t groups,
                                uint32_t by_number, uint32_t samples, Count stride, Count offset) {
    Count sample = (Count)blockIdx.z * samples + blockIdx.x, len = (Count)pixels * channels;
    uint32_t each = channels / groups, count = pixels * each, scales = by_number ? len : channels;
    const T *in = x + sample * len, *scale = parameters + blockIdx.z * stride + offset, *shift = scale + scales;
    for (uint32_t g = 0; g < groups; g++) {
        double sum = 0.0;
        for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS) sum += (double)in[i / each * channels + g * each + i % each];
        T mean = (T)(block_sum(sum) / count);
        __syncthreads();
        sum = 0.0;
        for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS) {
            double d = (double)in[i / each * channels + g * each + i % each] - (double)mean;
            sum += d * d;
        }
        T inverse = (T)(1.0 / sqrt(block_sum(sum) / count + 1e-5));
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS) {
            uint32_t at = i / each * channels + g * each + i % each, s = by_number ? at : at % channels;
            y[sample * len + at] = (in[at] - mean) * inverse * scale[s] + shift[s];
        }
        if (threadIdx.x == 0) {
            moments[(sample * groups + g) * 2] = mean;
            moments[(sample * groups + g) * 2 + 1] = inverse;
        }
    }
}
EXPORT_WAITING(normalise)

// Deltas at the input of `normalise`: with s the delta times the scale, (s - mean(s) - h mean(s h)) times the inverse deviation.
extern "C" __global__ void norm_back(const T* x, const T* delta, const T* parameters, const T* moments, T* to, uint32_t pixels,
                                     uint32_t channels, uint32_t groups, uint32_t by_number, uint32_t samples, Count stride, Count offset) {
    Count sample = (Count)blockIdx.z * samples + blockIdx.x, len = (Count)pixels * channels;
    uint32_t each = channels / groups, count = pixels * each;
    const T *in = x + sample * len, *from = delta + sample * len, *scale = parameters + blockIdx.z * stride + offset;
    for (uint32_t g = 0; g < groups; g++) {
        T mean = moments[(sample * groups + g) * 2], inverse = moments[(sample * groups + g) * 2 + 1];
        double first = 0.0, second = 0.0;
        for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS) {
            uint32_t at = i / each * channels + g * each + i % each;
            double s = (double)(from[at] * scale[by_number ? at : at % channels]);
            first += s;
            second += s * (double)((in[at] - mean) * inverse);
        }
        T mean_s = (T)(block_sum(first) / count);
        __syncthreads();
        T mean_sh = (T)(block_sum(second) / count);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS) {
            uint32_t at = i / each * channels + g * each + i % each;
            T s = from[at] * scale[by_number ? at : at % channels], h = (in[at] - mean) * inverse;
            to[sample * len + at] = (s - mean_s - h * mean_sh) * inverse;
        }
    }
}
EXPORT_WAITING(norm_back)

// Gradients of scales and shifts of `normalise`, [agent][scales, then shifts]. A block is a scale; it sums over samples and, if there is one for
// each channel, over pixels.
extern "C" __global__ void norm_gradient(const T* x, const T* delta, const T* moments, T* out, uint32_t pixels, uint32_t channels,
                                         uint32_t groups, uint32_t by_number, uint32_t samples) {
    Count len = (Count)pixels * channels, agent = blockIdx.z;
    uint32_t which = blockIdx.x, scales = by_number ? len : channels, each = by_number ? 1 : pixels, group = which % channels / (channels / groups);
    double first = 0.0, second = 0.0;
    for (uint32_t i = threadIdx.x; i < samples * each; i += SUM_THREADS) {
        Count sample = agent * samples + i / each, at = sample * len + (by_number ? which : i % each * channels + which);
        T mean = moments[(sample * groups + group) * 2], inverse = moments[(sample * groups + group) * 2 + 1];
        first += (double)(delta[at] * (x[at] - mean) * inverse);
        second += (double)delta[at];
    }
    first = block_sum(first);
    __syncthreads();
    second = block_sum(second);
    if (threadIdx.x == 0) {
        out[agent * 2 * scales + which] = (T)first;
        out[agent * 2 * scales + scales + which] = (T)second;
    }
}
EXPORT_WAITING(norm_gradient)

extern "C" __global__ void copy_numbers(const T* from, T* to, Count count) {
    Count i = INDEX;
    if (i < count) to[i] = from[i];
}
EXPORT(copy_numbers)
