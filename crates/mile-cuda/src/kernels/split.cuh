// Products of convolutions in single precision from halves. A number is scaled by a power of two and split into a high and a low half, of
// eleven bits each; three of the four products of halves (all but low times low) keep the accuracy of single precision, at half the cost
// of 3xTF32. Of eight numbers side by side the eight high halves come first and then the low ones: as many bytes as before.
//
// Scales bring the largest of the numbers that share one to between 2^14 and 2^15. A half is exact to 2^-25, so that what is lost of small
// numbers is at most 2^-39 of the largest, and of others 2^-23 of themselves.

struct __align__(16) Words {
    unsigned at[4];
};

// A power of two and its inverse.
struct Scale {
    float to, from;
};

// The scale of numbers of which `largest` has the bits of the largest absolute value.
__device__ __forceinline__ Scale scale_of(unsigned largest) {
    int exponent = 268 - (int)(largest >> 23);
    exponent = exponent > 253 ? 253 : exponent;
    return {__uint_as_float((unsigned)exponent << 23), __uint_as_float((unsigned)(254 - exponent) << 23)};
}

__device__ __forceinline__ unsigned absolute(float value) { return __float_as_uint(value) & 0x7fffffffu; }

__device__ __forceinline__ unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

// The largest values of all threads of a block.
template <int N>
__device__ __forceinline__ void block_largest(unsigned (&values)[N]) {
#ifdef EMULATED
    static thread_local unsigned shown[1024][N];
    memcpy(shown[threadIdx.x], values, sizeof values);
    emulated::wait();
    for (unsigned t = 0; t < blockDim.x; t++)
        for (int v = 0; v < N; v++) values[v] = larger(values[v], shown[t][v]);
    emulated::wait();
#else
    __shared__ unsigned found[N][32];
#pragma unroll
    for (int v = 0; v < N; v++) {
        values[v] = __reduce_max_sync(0xffffffffu, values[v]);
        if (threadIdx.x % 32 == 0) found[v][threadIdx.x / 32] = values[v];
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < N; v++)
        for (int w = 0; w < blockDim.x / 32; w++) values[v] = larger(values[v], found[v][w]);
#endif
}

// Two halves, the first in the low bits, and back.
__device__ __forceinline__ unsigned halves_of(float a, float b) {
#ifdef EMULATED
    return half_of(a) | half_of(b) << 16;
#else
    unsigned halves;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(b), "f"(a));
    return halves;
#endif
}
__device__ __forceinline__ void of_halves(unsigned halves, float& a, float& b) {
#ifdef EMULATED
    a = of_half(halves & 0xffffu), b = of_half(halves >> 16);
#else
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(a), "=f"(b) : "r"(halves));
#endif
}

// Eight numbers and their halves.
struct Eight {
    float at[8];

    __device__ __forceinline__ unsigned largest() const {
        unsigned found = 0;
#pragma unroll
        for (int v = 0; v < 8; v++) found = larger(found, absolute(at[v]));
        return found;
    }

    __device__ __forceinline__ void split(float scale, Words& high, Words& low) const {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float a = at[2 * q] * scale, b = at[2 * q + 1] * scale, high_a, high_b;
            high.at[q] = halves_of(a, b);
            of_halves(high.at[q], high_a, high_b);
            low.at[q] = halves_of(a - high_a, b - high_b);
        }
    }

    __device__ __forceinline__ void split_to(T* to, float scale) const {
        Words high, low;
        split(scale, high, low);
        ((Words*)to)[0] = high;
        ((Words*)to)[1] = low;
    }
};

__device__ __forceinline__ Eight eight_at(const T* from) {
    Eight eight;
#pragma unroll
    for (int q = 0; q < 2; q++) {
        float4 four = ((const float4*)from)[q];
        eight.at[4 * q] = four.x, eight.at[4 * q + 1] = four.y, eight.at[4 * q + 2] = four.z, eight.at[4 * q + 3] = four.w;
    }
    return eight;
}

#ifdef EMULATED
static thread_local const T* shown_rows[1024];
static thread_local unsigned shown_halves[1024][12];
#endif

// Four matrices of 8 x 8 halves, of which lane l gives row l % 8 of matrix l / 8. A thread gets two numbers that follow each other in row
// lane / 4, or, of a transposed matrix, in column lane / 4.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const T* row) {
#ifdef EMULATED
    int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    shown_rows[threadIdx.x] = row;
    emulated::wait();
    for (int q = 0; q < 4; q++) {
        const T** rows = shown_rows + first + q * 8;
        auto half = [&](int r, int c) { return (unsigned)((const uint16_t*)rows[r])[c]; };
        to[q] = TRANSPOSED ? half(2 * t, g) | half(2 * t + 1, g) << 16 : half(g, 2 * t) | half(g, 2 * t + 1) << 16;
    }
    emulated::wait();
#else
    unsigned place = (unsigned)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place) : "memory");
#endif
}

// c += a b for sixteen k, of a 16 x 16 and b 16 x 8, as mma.m16n8k16 has them.
__device__ __forceinline__ void multiply_halves(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#ifdef EMULATED
    int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    unsigned *shown = shown_halves[threadIdx.x];
    for (int q = 0; q < 4; q++) shown[q] = a[q];
    shown[4] = b0, shown[5] = b1;
    emulated::wait();
    for (int e = 0; e < 4; e++) {
        float sum = c[e];
        for (int k = 0; k < 16; k++) {
            int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2, pair = k % 8 / 2, shift = k % 2 * 16;
            unsigned x = shown_halves[first + row % 8 * 4 + pair][row / 8 + k / 8 * 2] >> shift & 0xffffu;
            unsigned y = shown_halves[first + column * 4 + pair][4 + k / 8] >> shift & 0xffffu;
            sum += of_half(x) * of_half(y);
        }
        c[e] = sum;
    }
    emulated::wait();
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Three products of halves for MT x NT tiles; b has high and low halves of a tile. Products of different tiles follow each other.
template <int MT, int NT, int ALL>
__device__ __forceinline__ void multiply_split(float (&c)[MT][ALL][4], const unsigned (&high)[MT][4], const unsigned (&low)[MT][4],
                                               const unsigned (&b)[NT][4], int from) {
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int i = 0; i < MT; i++) multiply_halves(c[i][from + j], low[i], b[j][0], b[j][1]);
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int i = 0; i < MT; i++) multiply_halves(c[i][from + j], high[i], b[j][2], b[j][3]);
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int i = 0; i < MT; i++) multiply_halves(c[i][from + j], high[i], b[j][0], b[j][1]);
}

// All bits of those of two halves whose byte of `which`, the first or the second pair of four, is `corner`.
__device__ __forceinline__ unsigned halves_where(unsigned which, int pair, unsigned corner) {
#ifdef EMULATED
    unsigned first = which >> (16 * pair) & 255, second = which >> (16 * pair + 8) & 255;
    return (first == corner ? 0xffffu : 0u) | (second == corner ? 0xffff0000u : 0u);
#else
    return __byte_perm(__vcmpeq4(which, corner * 0x01010101u), 0, pair ? 0x3322 : 0x1100);
#endif
}

// c <- c factor.
template <int MT, int NT>
__device__ __forceinline__ void rescale(float (&c)[MT][NT][4], float factor) {
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] *= factor;
}

// Images [sample][row][column][channel], or, POOLED, deltas after pooling over 2 x 2 that are read as those before it.
template <int H, int W, int C, bool POOLED>
struct Pixels {
    const T* numbers;
    const uint8_t* largest;

    // Copies eight channels of a pixel to shared memory, or zeros.
    __device__ __forceinline__ void copy(T* to, bool inside, int sample, int y, int x, int channel) const {
        if constexpr (POOLED) {
            constexpr int SH = H / 2, SW = W / 2;
            Words numbers_of[2] = {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}};
            if (inside && y < 2 * SH && x < 2 * SW) {
                int place = ((sample * SH + y / 2) * SW + x / 2) * C + channel, corner = y % 2 * 2 + x % 2;
                const Words* from = (const Words*)(numbers + place);
                uint64_t which = *(const uint64_t*)(largest + place);
#pragma unroll
                for (int q = 0; q < 2; q++) {
                    Words four = from[q];
#pragma unroll
                    for (int v = 0; v < 4; v++)
                        numbers_of[q].at[v] = (int)(which >> (8 * (4 * q + v)) & 255) == corner ? four.at[v] : 0;
                }
            }
            ((Words*)to)[0] = numbers_of[0];
            ((Words*)to)[1] = numbers_of[1];
        } else {
            const T* from = inside ? numbers + ((sample * H + y) * W + x) * C + channel : nullptr;
            copy_async<4>(to, from);
            copy_async<4>(to + 4, from ? from + 4 : nullptr);
        }
    }
};

// As windowed_product in gemm.cuh, with numbers split: those of the window here, b before; `scale` is what b has to be multiplied by. The
// window has some of the channels at a time, S::PARTS times.
template <class L, class S, bool POOLED, class B, class Out>
__device__ __forceinline__ void split_product(const Pixels<L::H, L::W, L::C, POOLED>& x, int samples, const B& b, float scale,
                                              const Out& out, int m, int n) {
    SHARED_NUMBERS(shared);
    constexpr int CHANNELS = L::C / S::PARTS, GROUPS = CHANNELS / 8;
    typedef Window<Layer<L::H, L::W, CHANNELS, L::K, L::PAD, 1, L::OUT, L::POOL, L::RELU, L::WV>, S> A;
    typedef Loader<B, S::N, S::K, S::THREADS, 4> LoadB;
    constexpr int LINE = A::WP * GROUPS, STEPS = (A::DEPTH + S::K - 1) / S::K;
    static_assert(CHANNELS % 16 == 0 && S::K % 16 == 0, "sixteen k have one tap");
    static_assert(S::PARTS == 1 || CHANNELS % S::K == 0, "the k of a step follow each other");
    T *window = shared, *tiles = shared + A::SIZE;
    A a(m);
    LoadB load_b(b, n);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = warp / S::WARPS_N * (S::MT * 16), column = warp % S::WARPS_N * (S::NT * 8);
    const T* base[S::MT];
    T c[S::MT][S::NT][4];
#pragma unroll
    for (int i = 0; i < S::MT; i++) {
        base[i] = window + a.base(m + row + i * 16 + lane % 16) + lane / 16 * 8;
#pragma unroll
        for (int j = 0; j < S::NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] = T(0);
    }
    // Where a lane's row of the matrices of b is.
    int place = LoadB::ALONG_K ? (column + lane % 8) * LoadB::PITCH + lane / 8 % 2 * 8 + lane / 16 * 4
                               : lane % 16 * LoadB::PITCH + column + lane / 16 * 4;
    constexpr int GROUP = S::NT < 4 ? S::NT : 4;
    static_assert(S::NT % GROUP == 0, "tiles are in whole groups");
    unsigned largest[1] = {0};
    for (int part = 0; part < S::PARTS; part++) {
        auto first_k = [&](int step) {
            int k = step * S::K;
            return S::PARTS == 1 ? k : k / CHANNELS * L::C + part * CHANNELS + k % CHANNELS;
        };
        // A thread splits what it has copied itself. The scale is that of the largest number up to now.
        for (int i = threadIdx.x; i < A::ROWS * LINE; i += S::THREADS) {
            int row = a.first + i / LINE, column = i % LINE / GROUPS - L::PAD, sample = row / A::HP, y = row % A::HP - L::PAD;
            bool inside = sample < samples && (unsigned)y < L::H && (unsigned)column < L::W;
            int channel = i % GROUPS * 8;
            x.copy(window + i / GROUPS * A::PIXEL + channel, inside, sample, y, column, part * CHANNELS + channel);
        }
        close_copies();
#pragma unroll
        for (int s = 0; s < S::STAGES - 1; s++) {
            if (s < STEPS) load_b.load(b, first_k(s), tiles + s * LoadB::SIZE);
            close_copies();
        }
        await_copies<S::STAGES - 1>();
        Scale before = scale_of(largest[0]);
        for (int i = threadIdx.x; i < A::ROWS * LINE; i += S::THREADS)
            largest[0] = larger(largest[0], eight_at(window + i / GROUPS * A::PIXEL + i % GROUPS * 8).largest());
        block_largest(largest);
        Scale own = scale_of(largest[0]);
        for (int i = threadIdx.x; i < A::ROWS * LINE; i += S::THREADS) {
            T* at = window + i / GROUPS * A::PIXEL + i % GROUPS * 8;
            eight_at(at).split_to(at, own.to);
        }
        if (part > 0 && own.to != before.to) rescale(c, own.to * before.from);
        for (int s = 0; s < STEPS; s++) {
            await_copies<S::STAGES - 2>();
            __syncthreads();
            int next = s + S::STAGES - 1;
            if (next < STEPS) load_b.load(b, first_k(next), tiles + next % S::STAGES * LoadB::SIZE);
            close_copies();
            const T* tile = tiles + s % S::STAGES * LoadB::SIZE + place;
#pragma unroll
            for (int k = 0; k < S::K; k += 16) {
                if (A::DEPTH % S::K != 0 && s * S::K + k >= A::DEPTH) break;
                unsigned high[S::MT][4], low[S::MT][4];
                int offset = A::offset(s * S::K + k);
#pragma unroll
                for (int i = 0; i < S::MT; i++) {
                    load_matrices<false>(high[i], base[i] + offset);
                    load_matrices<false>(low[i], base[i] + offset + 4);
                }
#pragma unroll
                for (int from = 0; from < S::NT; from += GROUP) {
                    unsigned both[GROUP][4];
#pragma unroll
                    for (int j = 0; j < GROUP; j++)
                        load_matrices<!LoadB::ALONG_K>(
                            both[j], tile + (LoadB::ALONG_K ? (from + j) * 8 * LoadB::PITCH + k : k * LoadB::PITCH + (from + j) * 8));
                    multiply_split(c, high, low, both, from);
                }
            }
        }
        if (part + 1 < S::PARTS) __syncthreads();
    }
    rescale(c, scale_of(largest[0]).from);
    rescale(c, scale);
    put_all<S>(c, out, m + row, n + column);
}
