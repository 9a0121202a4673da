// Products of matrices that are read from where they are: images, weights, deltas. T is float or double.
//
//     C[m][n] = sum_k A[m][k] B[k][n]
//
// A block computes a tile of C. Tiles of A and B are copied to shared memory several steps ahead; in single precision the tensor
// cores multiply them, each number split into two parts of eleven bits (3xTF32), which keeps the accuracy of single precision.

// A one and zeros, which stand for the constant input of biases; also an address for copies of nothing.
__device__ __align__(16) T UNIT[4] = {T(1), T(0), T(0), T(0)};

// Copies V numbers to shared memory, or zeros if `from` is null.
template <int V>
__device__ __forceinline__ void copy_async(T* to, const T* from) {
#ifdef EMULATED
    for (int v = 0; v < V; v++) to[v] = from ? from[v] : T(0);
#else
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    int bytes = from ? V * sizeof(T) : 0;
    const T* source = from ? from : (const T*)UNIT;
    if (V * sizeof(T) == 16)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(source), "r"(bytes));
    else if (V * sizeof(T) == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(place), "l"(source), "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(source), "r"(bytes));
#endif
}

// Closes a group of copies.
__device__ __forceinline__ void close_copies() {
#ifndef EMULATED
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits until at most N groups of copies are under way.
template <int N>
__device__ __forceinline__ void await_copies() {
#ifndef EMULATED
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
#endif
}

// A tile of C and how a block computes it: rows, columns, depth of a step, warps along rows and columns, steps in shared memory;
// parts of the channels that are in shared memory one after the other (split.cuh).
template <int M_, int N_, int K_, int WARPS_M_, int WARPS_N_, int STAGES_, int PARTS_ = 1>
struct Tile {
    static constexpr int M = M_, N = N_, K = K_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, STAGES = STAGES_, PARTS = PARTS_;
    static constexpr int THREADS = 32 * WARPS_M * WARPS_N;
    // Tiles of 16 x 8 of one warp.
    static constexpr int MT = M / WARPS_M / 16, NT = N / WARPS_N / 8;
};

// A tile of one operand in shared memory. Rows are those of A, or the columns of B. An operand says what lies side by side in memory (ALONG_K,
// V numbers at a time), and where number (row, k) is: at(row(r), column(k)). GAP numbers between lines keep them in different banks.
template <class Operand, int ROWS, int DEPTH, int THREADS, int GAP = 8>
struct Loader {
    static constexpr int V = Operand::V;
    static constexpr bool ALONG_K = Operand::ALONG_K;
    static constexpr int PITCH = ALONG_K ? DEPTH + 4 : ROWS + GAP;
    static constexpr int SIZE = ALONG_K ? ROWS * PITCH : DEPTH * PITCH;
    static constexpr int GROUPS = (ALONG_K ? DEPTH : ROWS) / V;
    static constexpr int STEP = THREADS / GROUPS > 0 ? THREADS / GROUPS : 1;
    static constexpr int LINES = ALONG_K ? ROWS : DEPTH;
    static constexpr int COUNT = (LINES + STEP - 1) / STEP;
    static_assert(THREADS % GROUPS == 0, "threads share lines evenly");

    typename Operand::Row rows[ALONG_K ? COUNT : 1];
    int group, line;

    __device__ Loader(const Operand& operand, int first_row) {
        group = threadIdx.x % GROUPS;
        line = threadIdx.x / GROUPS;
        if (ALONG_K) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) rows[i] = operand.row(first_row + line + i * STEP);
        } else {
            rows[0] = operand.row(first_row + group * V);
        }
    }

    __device__ __forceinline__ void load(const Operand& operand, int k, T* tile) const {
        if (ALONG_K) {
            typename Operand::Column column = operand.column(k + group * V);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (LINES % STEP == 0 || line + i * STEP < LINES)
                    copy_async<V>(tile + (line + i * STEP) * PITCH + group * V, operand.at(rows[i], column));
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (LINES % STEP == 0 || line + i * STEP < LINES)
                    copy_async<V>(tile + (line + i * STEP) * PITCH + group * V,
                                  operand.at(rows[0], operand.column(k + line + i * STEP)));
        }
    }

    // Number (row, k) of the tile.
    static __device__ __forceinline__ T get(const T* tile, int row, int k) {
        return tile[ALONG_K ? row * PITCH + k : k * PITCH + row];
    }
};

#ifdef EMULATED
// What the threads of a block show each other.
static thread_local float shown_a[1024][8][4], shown_b[1024][16][2];
#endif

// c += a b for the tiles of one warp and eight k. Of a tile a thread has the numbers that mma.m16n8k8 gives it.
template <int MT, int NT>
__device__ __forceinline__ void multiply(float (&c)[MT][NT][4], const float (&a)[MT][4], const float (&b)[NT][2]) {
#ifdef EMULATED
    int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    for (int i = 0; i < MT; i++) memcpy(shown_a[threadIdx.x][i], a[i], sizeof a[i]);
    for (int j = 0; j < NT; j++) memcpy(shown_b[threadIdx.x][j], b[j], sizeof b[j]);
    emulated::wait();
    for (int i = 0; i < MT; i++)
        for (int j = 0; j < NT; j++)
            for (int e = 0; e < 4; e++)
                for (int k = 0; k < 8; k++) {
                    int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
                    float x = shown_a[first + row % 8 * 4 + k % 4][i][row / 8 + k / 4 * 2];
                    c[i][j][e] += x * shown_b[first + column * 4 + k % 4][j][k / 4];
                }
    emulated::wait();
#else
    // Of their operands the tensor cores use the sign, the exponent and ten bits.
    const unsigned mask = 0xffffe000u;
    unsigned a_high[MT][4], a_low[MT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            a_high[i][e] = __float_as_uint(a[i][e]) & mask;
            a_low[i][e] = __float_as_uint(a[i][e] - __uint_as_float(a_high[i][e]));
        }
    // Products of different tiles follow each other, so that none waits for the one before it.
    constexpr int GROUP = NT < 4 ? NT : 4;
    static_assert(NT % GROUP == 0, "tiles are in whole groups");
#define MMA(a, b)                                                                                                           \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(c[i][j][0]), "+f"(c[i][j][1]), "+f"(c[i][j][2]), "+f"(c[i][j][3])                                   \
                 : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j - from][0]), "r"(b[j - from][1]))
#define MMA_ALL(a, b)                                           \
    _Pragma("unroll") for (int j = from; j < from + GROUP; j++) \
        _Pragma("unroll") for (int i = 0; i < MT; i++) MMA(a, b)
#pragma unroll
    for (int from = 0; from < NT; from += GROUP) {
        unsigned b_high[GROUP][2], b_low[GROUP][2];
#pragma unroll
        for (int j = 0; j < GROUP; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                b_high[j][e] = __float_as_uint(b[from + j][e]) & mask;
                b_low[j][e] = __float_as_uint(b[from + j][e] - __uint_as_float(b_high[j][e]));
            }
        MMA_ALL(a_low, b_high);
        MMA_ALL(a_high, b_low);
        MMA_ALL(a_high, b_high);
    }
#undef MMA_ALL
#undef MMA
#endif
}

// In double precision each thread multiplies for the numbers of C that it has.
template <int MT, int NT, class A, class B>
__device__ __forceinline__ void step(double (&c)[MT][NT][4], const T* a, const T* b, int row, int column, int k) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                for (int d = k; d < k + 8; d++)
                    c[i][j][e] += A::get(a, row + i * 16 + lane / 4 + e / 2 * 8, d) *
                                  B::get(b, column + j * 8 + lane % 4 * 2 + e % 2, d);
}

template <int MT, int NT, class A, class B>
__device__ __forceinline__ void step(float (&c)[MT][NT][4], const T* a, const T* b, int row, int column, int k) {
    float fragment_a[MT][4], fragment_b[NT][2];
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) fragment_a[i][e] = A::get(a, row + i * 16 + g + e % 2 * 8, k + t + e / 2 * 4);
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) fragment_b[j][e] = B::get(b, column + j * 8 + g, k + t + e * 4);
    multiply<MT, NT>(c, fragment_a, fragment_b);
}

// Writes two numbers that are side by side, at once if `whole` says that their place allows it.
__device__ __forceinline__ void put_two(T* to, T first, T second, bool whole) {
    struct __align__(2 * sizeof(T)) Two {
        T at[2];
    };
    if (whole)
        *(Two*)to = {{first, second}};
    else
        to[0] = first, to[1] = second;
}

// Gives the numbers that this thread has of a warp's tile, from (m, n) on, to `out`, two columns at a time.
template <class L, class Out>
__device__ __forceinline__ void put_all(const T (&c)[L::MT][L::NT][4], const Out& out, int m, int n) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if constexpr (Out::SQUARES) {
        static_assert(L::MT % 2 == 0, "squares are in two tiles of sixteen rows");
        // In which order a thread has the corners of its square: see Pixel.
        bool swapped = g >= 4;
#pragma unroll
        for (int i = 0; i < L::MT; i += 2)
#pragma unroll
            for (int j = 0; j < L::NT; j++) {
                T corners[2][4];
#pragma unroll
                for (int e = 0; e < 2; e++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        corners[e][k] = swapped ? c[i + k / 2][j][2 - k % 2 * 2 + e] : c[i + k / 2][j][k % 2 * 2 + e];
                out.put((m + i * 16) / 4 + g, n + j * 8 + t * 2, corners);
            }
    } else {
#pragma unroll
        for (int i = 0; i < L::MT; i++)
#pragma unroll
            for (int j = 0; j < L::NT; j++)
#pragma unroll
                for (int e = 0; e < 4; e += 2)
                    out.put(m + i * 16 + g + e / 2 * 8, n + j * 8 + t * 2, c[i][j][e], c[i][j][e + 1]);
    }
}

// The tile of C from (m, n) on, summed over k from `begin` to `end`. `out` gets each number with its place, or, with SQUARES, the four
// numbers of rows that belong together (see Pixel in layers.cuh).
template <class L, class A, class B, class Out>
__device__ __forceinline__ void product(const A& a, const B& b, const Out& out, int m, int n, int begin, int end) {
    SHARED_NUMBERS(shared);
    typedef Loader<A, L::M, L::K, L::THREADS> LoadA;
    typedef Loader<B, L::N, L::K, L::THREADS> LoadB;
    constexpr int STAGE = LoadA::SIZE + LoadB::SIZE;
    LoadA load_a(a, m);
    LoadB load_b(b, n);
    T c[L::MT][L::NT][4];
#pragma unroll
    for (int i = 0; i < L::MT; i++)
#pragma unroll
        for (int j = 0; j < L::NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] = T(0);
    int steps = (end - begin + L::K - 1) / L::K;
#pragma unroll
    for (int s = 0; s < L::STAGES - 1; s++) {
        if (s < steps) {
            load_a.load(a, begin + s * L::K, shared + s * STAGE);
            load_b.load(b, begin + s * L::K, shared + s * STAGE + LoadA::SIZE);
        }
        close_copies();
    }
    int warp = threadIdx.x / 32;
    int row = warp / L::WARPS_N * (L::MT * 16), column = warp % L::WARPS_N * (L::NT * 8);
    for (int s = 0; s < steps; s++) {
        await_copies<L::STAGES - 2>();
        __syncthreads();
        int next = s + L::STAGES - 1;
        if (next < steps) {
            T* stage = shared + next % L::STAGES * STAGE;
            load_a.load(a, begin + next * L::K, stage);
            load_b.load(b, begin + next * L::K, stage + LoadA::SIZE);
        }
        close_copies();
        const T* stage = shared + s % L::STAGES * STAGE;
#pragma unroll
        for (int k = 0; k < L::K; k += 8) step<L::MT, L::NT, LoadA, LoadB>(c, stage, stage + LoadA::SIZE, row, column, k);
    }
    put_all<L>(c, out, m + row, n + column);
}

template <class L> struct Pixel;

// A product whose rows are pixels of images, each the sum over K x K taps of images with a border of zeros. The rows of images that a
// block needs are copied to shared memory once, for all taps. L is the convolution: see Layer in layers.cuh.
template <class L, class S>
struct Window {
    static constexpr int HP = L::H + 2 * L::PAD, WP = L::W + 2 * L::PAD;
    // Output rows of a block at most, and rows of images with their borders; WHOLE images have all of theirs.
    static constexpr int UNITS = L::POOL ? S::M / 4 : S::M, ACROSS = L::POOL ? L::SW : L::OW, DOWN = L::POOL ? L::SH : L::OH;
    static constexpr bool EXACT = UNITS % ACROSS == 0 && (DOWN * ACROSS) % UNITS == 0, WHOLE = UNITS % (DOWN * ACROSS) == 0;
    static constexpr int LINES = EXACT ? UNITS / ACROSS : (UNITS - 2) / ACROSS + 2;
    // Samples that begin within a block, and rows of borders and rows without output between them.
    static constexpr int BREAKS = EXACT ? 0 : (LINES - 1 + DOWN - 1) / DOWN;
    static constexpr int PARTS = LINES * (L::POOL ? 2 : 1) + L::K - 1 + BREAKS * (HP - (L::POOL ? 2 * DOWN : DOWN));
    static constexpr int ROWS = WHOLE ? UNITS / (DOWN * ACROSS) * HP : PARTS;
    // Numbers from one pixel to the next, so that the rows of a tile are in different banks.
    static constexpr bool BY_TAP = L::C % 8 == 0;
    static constexpr int PIXEL = BY_TAP ? L::C + 4 : L::C, V = BY_TAP ? 4 : 1;
    static constexpr int SIZE = (ROWS * WP * PIXEL + 3) / 4 * 4;
    static constexpr int DEPTH = BY_TAP ? L::DEPTH : (L::DEPTH + 7) / 8 * 8;

    int first;

    // Which row of images, with borders, is the first that the pixels from m on need.
    __device__ explicit Window(int m) {
        int unit = L::POOL ? m / 4 : m;
        first = unit / (DOWN * ACROSS) * HP + unit % (DOWN * ACROSS) / ACROSS * (L::POOL ? 2 : 1);
    }

    __device__ __forceinline__ void load(const T* x, int samples, T* window) const {
        constexpr int GROUPS = WP * (L::C / V);
        for (int i = threadIdx.x; i < ROWS * GROUPS; i += S::THREADS) {
            int row = first + i / GROUPS, rest = i % GROUPS, column = rest / (L::C / V) - L::PAD, channel = rest % (L::C / V) * V;
            int sample = row / HP, y = row % HP - L::PAD;
            bool inside = sample < samples && (unsigned)y < L::H && (unsigned)column < L::W;
            copy_async<V>(window + (i / GROUPS * WP + rest / (L::C / V)) * PIXEL + channel,
                          inside ? x + ((sample * L::H + y) * L::W + column) * L::C + channel : nullptr);
        }
    }

    // Where the first tap of output pixel m is.
    __device__ __forceinline__ int base(int m) const {
        Pixel<L> pixel(m);
        int row = pixel.sample * HP + pixel.y - first;
        // Rows beyond the last pixel of a block's samples are not used, but must not be read outside.
        return row + L::K <= ROWS ? (row * WP + pixel.x) * PIXEL : 0;
    }

    // Where tap and channel k are, from a pixel's base on.
    static __device__ __forceinline__ int offset(int k) {
        int tap = k / L::C;
        return k < L::DEPTH ? (tap / L::K * WP + tap % L::K) * PIXEL + k % L::C : 0;
    }
};

template <class L, class S, class B, class Out>
__device__ __forceinline__ void windowed_product(const T* x, int samples, const B& b, const Out& out, int m, int n) {
    SHARED_NUMBERS(shared);
    typedef Window<L, S> A;
    typedef Loader<B, S::N, S::K, S::THREADS> LoadB;
    T *window = shared, *tiles = shared + A::SIZE;
    A a(m);
    LoadB load_b(b, n);
    constexpr int STEPS = (A::DEPTH + S::K - 1) / S::K;
    a.load(x, samples, window);
#pragma unroll
    for (int s = 0; s < S::STAGES - 1; s++) {
        if (s < STEPS) load_b.load(b, s * S::K, tiles + s * LoadB::SIZE);
        close_copies();
    }
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row = warp / S::WARPS_N * (S::MT * 16), column = warp % S::WARPS_N * (S::NT * 8);
    T c[S::MT][S::NT][4];
    int base[S::MT][2];
#pragma unroll
    for (int i = 0; i < S::MT; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) base[i][e] = a.base(m + row + i * 16 + g + e * 8);
#pragma unroll
        for (int j = 0; j < S::NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] = T(0);
    }
    for (int s = 0; s < STEPS; s++) {
        await_copies<S::STAGES - 2>();
        __syncthreads();
        int next = s + S::STAGES - 1;
        if (next < STEPS) load_b.load(b, next * S::K, tiles + next % S::STAGES * LoadB::SIZE);
        close_copies();
        const T* tile = tiles + s % S::STAGES * LoadB::SIZE;
#pragma unroll
        for (int k = 0; k < S::K; k += 8) {
            if (s * S::K + k >= A::DEPTH) break;
            T fragment_a[S::MT][4], fragment_b[S::NT][2];
            int low = A::BY_TAP ? A::offset(s * S::K + k) + t : A::offset(s * S::K + k + t);
            int high = A::BY_TAP ? low + 4 : A::offset(s * S::K + k + t + 4);
#pragma unroll
            for (int i = 0; i < S::MT; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) fragment_a[i][e] = window[base[i][e % 2] + (e < 2 ? low : high)];
#pragma unroll
            for (int j = 0; j < S::NT; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) fragment_b[j][e] = LoadB::get(tile, column + j * 8 + g, k + t + e * 4);
            multiply<S::MT, S::NT>(c, fragment_a, fragment_b);
        }
    }
    put_all<S>(c, out, m + row, n + column);
}
