// Layers of networks, for all agents of all jobs at once: blockIdx.z. Images are [agent][sample][row][column][channel], weights
// [tap][input][output] and then biases, as in crates/mile-nn.

// A model with its own samples: an agent of a job.
struct Row {
    const T* x;
    // The gradient, or for each sample its loss and whether its class is predicted.
    void* out;
    const uint32_t* samples;
    const void* pixels;
    const uint8_t* labels;
    const double* targets;
    // What mini-batches and dropout are drawn from.
    uint64_t seed, step;
    // The number of the agent, and samples of its batch.
    uint32_t agent, total;
    // One over these.
    T scale[2];
};

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
// rows that one thread has of two tiles. Left and right are swapped in every second four of squares, which are then in other banks.
template <class L>
struct Pixel {
    int sample, y, x;
    __device__ __forceinline__ explicit Pixel(int m) {
        if constexpr (L::POOL) {
            int square = m / 32 * 8 + m % 8, corner = m / 8 % 4 ^ m % 8 / 4;
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
    __device__ __forceinline__ T active(T value) const { return L::RELU && value < T(0) ? T(0) : value; }
    __device__ __forceinline__ void put(int m, int n, T first, T second) const {
        if (m >= count || n >= L::OUT) return;
        T* to = out + m * L::OUT + n;
        if (L::OUT % 2 == 0 || n + 1 < L::OUT)
            put_two(to, active(first + bias[n]), active(second + bias[n + 1]), L::OUT % 2 == 0);
        else
            *to = active(first + bias[n]);
    }
    __device__ __forceinline__ void put(int square, int n, const T (&corners)[2][4]) const {
        if (square >= count) return;
        T values[2];
        int which[2], place = square * L::OUT + n;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            T value = corners[e][0];
            which[e] = 0;
#pragma unroll
            for (int k = 1; k < 4; k++)
                if (corners[e][k] > value || corners[e][k] != corners[e][k]) value = corners[e][k], which[e] = k;
            value += n + e < L::OUT ? bias[n + e] : T(0);
            bool inactive = L::RELU && value <= T(0);
            values[e] = inactive ? T(0) : value;
            which[e] = inactive ? 4 : which[e];
        }
        if (L::OUT % 2 == 0 && n < L::OUT) {
            put_two(out + place, values[0], values[1], true);
            *(uint16_t*)(largest + place) = which[0] | which[1] << 8;
        } else {
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (n + e < L::OUT) out[place + e] = values[e], largest[place + e] = which[e];
        }
    }
};

template <class L, class S, bool WINDOW>
__device__ void convolve(const T* x, const Row* rows, T* out, uint8_t* largest, int samples, int offset) {
    int units = L::POOL ? L::SH * L::SW : L::OH * L::OW;
    Count agent = blockIdx.z;
    Inputs<L> a = {x + agent * samples * (L::H * L::W * L::C), samples};
    const T* weights = rows[agent].x + offset;
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
    // Whether two columns can be written at once.
    bool whole;
    __device__ __forceinline__ void put(int m, int n, T first, T second) const {
        if (m >= rows || n >= COLUMNS) return;
        if (COLUMNS % 2 == 0 || n + 1 < COLUMNS)
            put_two(out + m * COLUMNS + n, first, second, COLUMNS % 2 == 0 && whole);
        else
            out[m * COLUMNS + n] = first;
    }
};

// A dense layer whose depth is split among blocks; `finish` adds the parts.
template <class L, class S>
__device__ void dense(const T* x, const Row* rows, T* parts, int samples, int offset, int depth) {
    Count agent = blockIdx.z, agents = gridDim.z;
    int tiles = (L::OUT + S::N - 1) / S::N, split = blockIdx.y / tiles, begin = split * depth;
    Inputs<L> a = {x + agent * samples * L::DEPTH, samples};
    Weights<L> b = {rows[agent].x + offset};
    Parts<0, L::OUT> c = {parts + (split * agents + agent) * samples * L::OUT, samples, true};
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
__device__ void convolve_back(const T* delta, const Row* rows, T* out, int samples, int offset) {
    Count agent = blockIdx.z;
    const T *deltas = delta + agent * samples * (L::OH * L::OW * L::OUT), *weights = rows[agent].x + offset;
    Parts<0, L::C> c = {out + agent * samples * (L::H * L::W * L::C), samples * L::H * L::W, true};
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
    Parts<0, L::OUT> c = {out + (split * agents + agent) * numbers, L::DEPTH + 1, numbers % 2 == 0};
    int end = begin + depth < pixels ? begin + depth : pixels;
    product<S>(a, b, c, blockIdx.x * S::M, blockIdx.y % tiles * S::N, begin, end);
}
