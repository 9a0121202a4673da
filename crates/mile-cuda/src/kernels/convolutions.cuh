// Convolutions with a stride of 1 in single precision: their products from halves (split.cuh), and weight gradients of which a block sees
// whole lines of images, which it copies to shared memory once for all taps.

// One layer's weights: where they are in a model and among the packed ones, and how many.
struct Packed {
    uint32_t offset, to, numbers;
};

#define PACK_THREADS 1024

// Splits the weights of layers, [agent][`each`], a scale for each layer and agent; writes the inverse scales, [layer][agent]. Blocks are
// parts of a layer, layers, agents.
extern "C" __global__ void __launch_bounds__(PACK_THREADS) pack(const Packed* layers, const Row* rows, T* out, T* scales, Count each) {
    const Packed layer = layers[blockIdx.y];
    Count agent = blockIdx.z;
    const T* weights = rows[agent].x + layer.offset;
    // Eight at a time, if they can be read so.
    bool whole = (Count)weights % 16 == 0;
    auto eight = [&](uint32_t i) {
        if (whole) return eight_at(weights + i);
        Eight found;
#pragma unroll
        for (int v = 0; v < 8; v++) found.at[v] = weights[i + v];
        return found;
    };
    unsigned largest[1] = {0};
#pragma unroll 4
    for (uint32_t i = 8 * threadIdx.x; i < layer.numbers; i += 8 * PACK_THREADS) largest[0] = larger(largest[0], eight(i).largest());
    block_largest(largest);
    Scale scale = scale_of(largest[0]);
    T* to = out + agent * each + layer.to;
    for (uint32_t i = 8 * (blockIdx.x * PACK_THREADS + threadIdx.x); i < layer.numbers; i += 8 * PACK_THREADS * gridDim.x)
        eight(i).split_to(to + i, scale.to);
    if (blockIdx.x == 0 && threadIdx.x == 0) scales[blockIdx.y * gridDim.z + agent] = scale.from;
}
EXPORT_WAITING(pack)

// Outputs, from packed weights.
template <class L, class S>
__device__ void split_forward(const T* x, const Row* rows, const T* packed, const T* scales, T* out, uint8_t* largest, int samples,
                              int offset, Count each) {
    int units = L::POOL ? L::SH * L::SW : L::OH * L::OW;
    Count agent = blockIdx.z, place = agent * samples * units * L::OUT;
    Pixels<L::H, L::W, L::C, false> a = {x + agent * samples * (L::H * L::W * L::C), nullptr};
    Weights<L> b = {packed + agent * each};
    Activations<L> c = {out + place, largest + place, rows[agent].x + offset + L::DEPTH * L::OUT, samples * units};
    split_product<L, S>(a, samples, b, scales[agent], c, blockIdx.x * S::M, blockIdx.y * S::N);
}

// Deltas at the outputs of a layer before its pooling, of one agent.
template <class L, bool POOLED>
__device__ __forceinline__ Pixels<L::OH, L::OW, L::OUT, POOLED> deltas_of(const T* delta, const uint8_t* largest, int samples) {
    Count place = (Count)blockIdx.z * samples * L::OUT * (POOLED ? L::SH * L::SW : L::OH * L::OW);
    return {delta + place, largest + place};
}

// Deltas at the input, from packed weights.
template <class L, class S, bool POOLED>
__device__ void split_back(const T* delta, const uint8_t* largest, const T* packed, const T* scales, T* out, int samples, Count each) {
    typedef Layer<L::OH, L::OW, L::OUT, L::K, L::K - 1 - L::PAD, 1, L::C, false, false, L::WV> Back;
    Count agent = blockIdx.z;
    Flipped<L> b = {{packed + agent * each}};
    Parts<0, L::C> c = {out + agent * samples * (L::H * L::W * L::C), samples * L::H * L::W, true};
    split_product<Back, S>(deltas_of<L, POOLED>(delta, largest, samples), samples, b, scales[agent], c, blockIdx.x * S::M,
                           blockIdx.y * S::N);
}

// Lines of output pixels that a block sums over at a time, channels and outputs of its part of the gradient, warps along these.
template <int LINES_, int CHANNELS_, int OUTPUTS_, int WARPS_M_, int WARPS_N_>
struct Strip {
    static constexpr int LINES = LINES_, CHANNELS = CHANNELS_, OUTPUTS = OUTPUTS_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
    static constexpr int THREADS = 32 * WARPS_M * WARPS_N;
};

// The lines of a strip, which are parts of an image or whole images, in the coordinates of images with borders.
template <class L, class S>
struct Lines {
    static_assert(L::OH % S::LINES == 0 || S::LINES % L::OH == 0, "strips do not cut images anywhere");
    static constexpr bool WHOLE = S::LINES % L::OH == 0;
    static constexpr int HP = L::H + 2 * L::PAD, WP = L::W + 2 * L::PAD;
    static constexpr int ROWS = WHOLE ? S::LINES / L::OH * HP : S::LINES + L::K - 1, PIXELS = S::LINES * L::OW;

    int sample, y;

    __device__ explicit Lines(int strip) : sample(strip * S::LINES / L::OH), y(strip * S::LINES % L::OH) {}

    // Sample and row of the image for a row of the strip.
    __device__ __forceinline__ int sample_of(int row) const { return WHOLE ? sample + row / HP : sample; }
    __device__ __forceinline__ int y_of(int row) const { return (WHOLE ? row % HP : y + row) - L::PAD; }

    // Where the first tap of an output pixel is, in pixels; those after the last are the first.
    static __device__ __forceinline__ int base(int pixel) {
        if (pixel >= PIXELS) return 0;
        int line = pixel / L::OW;
        return (WHOLE ? line / L::OH * HP + line % L::OH : line) * WP + pixel % L::OW;
    }
    static __device__ __forceinline__ int shift(int tap) { return tap / L::K * WP + tap % L::K; }

    // Copies eight deltas of an output pixel, zeros after the last.
    template <class D>
    __device__ __forceinline__ void copy_deltas(T* to, const D& deltas, int samples, int pixel, int channel) const {
        int line = y + pixel / L::OW, at = sample + line / L::OH;
        deltas.copy(to, pixel < PIXELS && at < samples && channel < L::OUT, at, line % L::OH, pixel % L::OW, channel);
    }
};

// Eight deltas of a square, after pooling, which are those of its corners before it.
struct Square {
    Eight deltas;
    uint64_t which;

    __device__ __forceinline__ void load(const T* from, const uint8_t* largest) {
        deltas = eight_at(from);
        which = *(const uint64_t*)largest;
#pragma unroll
        for (int v = 0; v < 8; v++) deltas.at[v] = (which >> (8 * v) & 255) < 4 ? deltas.at[v] : T(0);
    }

    __device__ __forceinline__ void clear() {
        which = 0;
#pragma unroll
        for (int v = 0; v < 8; v++) deltas.at[v] = T(0);
    }

    // Writes the halves of its corners, of which the one to the right is `right` and the one below `below` numbers further on.
    __device__ __forceinline__ void split_to(T* to, float scale, int right, int below) const {
        Words high, low;
        deltas.split(scale, high, low);
#pragma unroll
        for (int corner = 0; corner < 4; corner++) {
            Words* at = (Words*)(to + corner % 2 * right + corner / 2 * below);
            Words parts[2];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                unsigned mask = halves_where((unsigned)(which >> (q / 2 * 32)), q % 2, corner);
                parts[0].at[q] = high.at[q] & mask, parts[1].at[q] = low.at[q] & mask;
            }
            at[0] = parts[0], at[1] = parts[1];
        }
    }
};

// The gradient of weights and biases, summed over `strips` strips by each of several blocks: [split][agent][`numbers`]. Blocks are parts of
// the gradient, splits, agents.
template <class L, class S, bool POOLED>
__device__ void split_weights(const T* x, const T* delta, const uint8_t* largest, T* out, int samples, int strips, Count numbers) {
    SHARED_NUMBERS(shared);
    typedef Lines<L, S> View;
    constexpr int PIXEL = S::CHANNELS + 4, PITCH = S::OUTPUTS + 4, DEPTH = (View::PIXELS + 15) / 16 * 16;
    constexpr int IN = S::CHANNELS / 8, OUT = S::OUTPUTS / 8, COPIES = View::ROWS * View::WP * IN;
    constexpr int TILES = L::TAPS * S::CHANNELS / 16, MT = (TILES + S::WARPS_M - 1) / S::WARPS_M, NT = OUT / S::WARPS_N;
    constexpr int ACROSS = (L::OUT + S::OUTPUTS - 1) / S::OUTPUTS;
    // Whether a strip has whole squares; each thread then has some of them, by eight outputs.
    constexpr bool SQUARES = POOLED && L::OH % 2 == 0 && L::OW % 2 == 0 && S::LINES % 2 == 0;
    constexpr int SQUARES_OF_ALL = View::PIXELS / 4 * OUT, HELD = SQUARES ? (SQUARES_OF_ALL + S::THREADS - 1) / S::THREADS : 1;
    static_assert(L::C % S::CHANNELS == 0 && S::CHANNELS % 16 == 0 && OUT % S::WARPS_N == 0 && S::THREADS % OUT == 0, "shared evenly");
    T *window = shared, *tile = shared + View::ROWS * View::WP * PIXEL;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int first_c = blockIdx.x / ACROSS * S::CHANNELS, first_n = blockIdx.x % ACROSS * S::OUTPUTS;
    int first_tile = warp / S::WARPS_N * MT, column = warp % S::WARPS_N * (NT * 8);
    Pixels<L::H, L::W, L::C, false> a = {x + (Count)blockIdx.z * samples * (L::H * L::W * L::C), nullptr};
    auto b = deltas_of<L, POOLED>(delta, largest, samples);
    T c[MT][NT][4], sums[8];
    int shift[MT];
#pragma unroll
    for (int i = 0; i < MT; i++) {
        int q = first_tile + i;
        shift[i] = q < TILES ? View::shift(q / (S::CHANNELS / 16)) * PIXEL + q % (S::CHANNELS / 16) * 16 : 0;
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] = T(0);
    }
#pragma unroll
    for (int v = 0; v < 8; v++) sums[v] = T(0);
    if (SQUARES)
        for (int i = threadIdx.x; i < (DEPTH - View::PIXELS) * PITCH; i += S::THREADS) tile[View::PIXELS * PITCH + i] = T(0);
    unsigned largest_of[2] = {0, 0};
    int end = (samples * L::OH + S::LINES - 1) / S::LINES, begin = blockIdx.y * strips;
    for (int strip = begin; strip < begin + strips && strip < end; strip++) {
        View view(strip);
        Square squares[HELD];
        if constexpr (SQUARES) {
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                int i = threadIdx.x + h * S::THREADS, square = i / OUT, channel = first_n + i % OUT * 8;
                int line = view.y / 2 + square / L::SW, at = view.sample + line / L::SH;
                int place = ((at * L::SH + line % L::SH) * L::SW + square % L::SW) * L::OUT + channel;
                if (i < SQUARES_OF_ALL && at < samples && channel < L::OUT)
                    squares[h].load(b.numbers + place, b.largest + place);
                else
                    squares[h].clear();
            }
        }
        for (int i = threadIdx.x; i < COPIES; i += S::THREADS) {
            int row = i / (View::WP * IN), column = i / IN % View::WP - L::PAD, sample = view.sample_of(row), y = view.y_of(row);
            bool inside = sample < samples && (unsigned)y < L::H && (unsigned)column < L::W;
            a.copy(window + i / IN * PIXEL + i % IN * 8, inside, sample, y, column, first_c + i % IN * 8);
        }
        if (!SQUARES)
            for (int i = threadIdx.x; i < DEPTH * OUT; i += S::THREADS)
                view.copy_deltas(tile + i / OUT * PITCH + i % OUT * 8, b, samples, i / OUT, first_n + i % OUT * 8);
        close_copies();
        await_copies<0>();
        // A thread splits what it has copied itself. Scales are those of the largest numbers up to now.
        Scale before[2] = {scale_of(largest_of[0]), scale_of(largest_of[1])};
        for (int i = threadIdx.x; i < COPIES; i += S::THREADS)
            largest_of[0] = larger(largest_of[0], eight_at(window + i / IN * PIXEL + i % IN * 8).largest());
        auto seen = [&](const Eight& eight) {
            largest_of[1] = larger(largest_of[1], eight.largest());
#pragma unroll
            for (int v = 0; v < 8; v++) sums[v] += eight.at[v];
        };
        if constexpr (SQUARES) {
#pragma unroll
            for (int h = 0; h < HELD; h++) seen(squares[h].deltas);
        } else {
            for (int i = threadIdx.x; i < DEPTH * OUT; i += S::THREADS) seen(eight_at(tile + i / OUT * PITCH + i % OUT * 8));
        }
        block_largest(largest_of);
        Scale scale[2] = {scale_of(largest_of[0]), scale_of(largest_of[1])};
        for (int i = threadIdx.x; i < COPIES; i += S::THREADS) {
            T* at = window + i / IN * PIXEL + i % IN * 8;
            eight_at(at).split_to(at, scale[0].to);
        }
        if constexpr (SQUARES) {
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                int i = threadIdx.x + h * S::THREADS, square = i / OUT;
                T* at = tile + (square / L::SW * 2 * L::OW + square % L::SW * 2) * PITCH + i % OUT * 8;
                if (i < SQUARES_OF_ALL) squares[h].split_to(at, scale[1].to, PITCH, L::OW * PITCH);
            }
        } else {
            for (int i = threadIdx.x; i < DEPTH * OUT; i += S::THREADS) {
                T* at = tile + i / OUT * PITCH + i % OUT * 8;
                eight_at(at).split_to(at, scale[1].to);
            }
        }
        T change = scale[0].to * before[0].from * (scale[1].to * before[1].from);
        if (strip > begin && change != T(1)) rescale(c, change);
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < DEPTH; k += 16) {
            const T* row = window + View::base(k + lane % 8 + lane / 16 * 8) * PIXEL + lane / 8 % 2 * 8;
            unsigned both[NT][4];
#pragma unroll
            for (int j = 0; j < NT; j++)
                load_matrices<true>(both[j], tile + (k + lane % 16) * PITCH + column + j * 8 + lane / 16 * 4);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                unsigned high[4], low[4];
                load_matrices<true>(high, row + shift[i]);
                load_matrices<true>(low, row + shift[i] + 4);
#pragma unroll
                for (int j = 0; j < NT; j++) multiply_halves(c[i][j], low, both[j][0], both[j][1]);
#pragma unroll
                for (int j = 0; j < NT; j++) multiply_halves(c[i][j], high, both[j][2], both[j][3]);
#pragma unroll
                for (int j = 0; j < NT; j++) multiply_halves(c[i][j], high, both[j][0], both[j][1]);
            }
        }
        __syncthreads();
    }
    rescale(c, scale_of(largest_of[0]).from);
    rescale(c, scale_of(largest_of[1]).from);
    T* to = out + ((Count)blockIdx.y * gridDim.z + blockIdx.z) * numbers;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        int q = first_tile + i, tap = q / (S::CHANNELS / 16), channel = first_c + q % (S::CHANNELS / 16) * 16 + g;
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                int n = first_n + column + j * 8 + t * 2;
                if (q < TILES && n < L::OUT)
                    put_two(to + (tap * L::C + channel + e / 2 * 8) * L::OUT + n, c[i][j][e], c[i][j][e + 1], numbers % 2 == 0);
            }
    }
    if (first_c > 0) return;
    // Biases: the sums of all threads with the same eight outputs.
#pragma unroll
    for (int v = 0; v < 8; v++) shared[threadIdx.x * 8 + v] = sums[v];
    __syncthreads();
    int n = threadIdx.x;
    if (n >= S::OUTPUTS || first_n + n >= L::OUT) return;
    T sum = T(0);
    for (int s = n / 8; s < S::THREADS; s += OUT) sum += shared[s * 8 + n % 8];
    to[L::DEPTH * L::OUT + first_n + n] = sum;
}

// The same for a layer with few weights, DEPTH < 32, by the three products of TF32. Its warps take turns along the pixels.
template <class L, class S, bool POOLED>
__device__ void few_weights(const T* x, const T* delta, const uint8_t* largest, T* out, int samples, int strips, Count numbers) {
    SHARED_NUMBERS(shared);
    typedef Lines<L, S> View;
    constexpr int WARPS = S::WARPS_M, NT = L::OUT / 8, PITCH = L::OUT % 32 == 0 || L::OUT % 32 == 16 ? L::OUT + 8 : L::OUT;
    constexpr int DEPTH = (View::PIXELS + 8 * WARPS - 1) / (8 * WARPS) * (8 * WARPS), LINE = View::WP * L::C;
    static_assert(L::DEPTH < 32 && L::OUT % 8 == 0 && L::OUT <= 32, "few weights");
    T *tile = shared, *window = shared + DEPTH * PITCH;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const T* images = x + (Count)blockIdx.z * samples * (L::H * L::W * L::C);
    auto b = deltas_of<L, POOLED>(delta, largest, samples);
    T c[2][NT][4];
    int shift[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int m = i * 16 + e * 8 + g;
            shift[i][e] = m < L::DEPTH ? View::shift(m / L::C) * L::C + m % L::C : 0;
        }
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] = T(0);
    }
    int end = (samples * L::OH + S::LINES - 1) / S::LINES, begin = blockIdx.y * strips;
    for (int strip = begin; strip < begin + strips && strip < end; strip++) {
        View view(strip);
        for (int i = threadIdx.x; i < View::ROWS * LINE; i += S::THREADS) {
            int row = i / LINE, column = i % LINE / L::C - L::PAD, sample = view.sample_of(row), y = view.y_of(row);
            bool inside = sample < samples && (unsigned)y < L::H && (unsigned)column < L::W;
            copy_async<1>(window + i, inside ? images + ((sample * L::H + y) * L::W + column) * L::C + i % L::C : nullptr);
        }
        for (int i = threadIdx.x; i < DEPTH * NT; i += S::THREADS)
            view.copy_deltas(tile + i / NT * PITCH + i % NT * 8, b, samples, i / NT, i % NT * 8);
        close_copies();
        await_copies<0>();
        __syncthreads();
#pragma unroll 1
        for (int k = warp * 8; k < DEPTH; k += 8 * WARPS) {
            T fragment_a[2][4], fragment_b[NT][2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const T* at = window + View::base(k + t + half * 4) * L::C;
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int m = i * 16 + e * 8 + g;
                        fragment_a[i][half * 2 + e] = m < L::DEPTH ? at[shift[i][e]] : m == L::DEPTH ? T(1) : T(0);
                    }
#pragma unroll
                for (int j = 0; j < NT; j++) fragment_b[j][half] = tile[(k + t + half * 4) * PITCH + j * 8 + g];
            }
            multiply<2, NT>(c, fragment_a, fragment_b);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                shared[(warp * 32 + i * 16 + g + e / 2 * 8) * L::OUT + j * 8 + t * 2 + e % 2] = c[i][j][e];
    __syncthreads();
    T* to = out + ((Count)blockIdx.y * gridDim.z + blockIdx.z) * numbers;
    for (int i = threadIdx.x; i < (L::DEPTH + 1) * L::OUT; i += S::THREADS) {
        T sum = T(0);
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += shared[w * 32 * L::OUT + i];
        to[i] = sum;
    }
}
