// Combine, pull, prox and sums over vectors. T is float or double.

// y <- keep y + sum_k a_k v_k from left to right, coefficients = (keep, a_0, a_1, ...). If READS is false the old y is not read.
template <int K, bool READS>
__device__ void combine(T* y, const T* const* terms, const T* coefficients, Count n) {
    const int lanes = Wide<T>::lanes;
    T keep = coefficients[0], a[K + 1];
    const T* v[K + 1];
    for (int k = 0; k < K; k++) a[k] = coefficients[1 + k], v[k] = terms[k];
    Count wide = n / lanes, stride = (Count)gridDim.x * blockDim.x;
    Count first = (Count)blockIdx.x * blockDim.x + threadIdx.x;
    for (Count i = first; i < wide; i += stride) {
        Wide<T> sum, term[K + 1];
        if (READS) sum.v = ((Wide<T>*)y)[i].v;
#pragma unroll
        for (int k = 0; k < K; k++) term[k].v = ((const Wide<T>*)v[k])[i].v;
#pragma unroll
        for (int l = 0; l < lanes; l++) {
            T s = READS ? mul(keep, sum.at()[l]) : (K > 0 ? mul(a[0], term[0].at()[l]) : T(0));
#pragma unroll
            for (int k = READS ? 0 : 1; k < K; k++) s = add(s, mul(a[k], term[k].at()[l]));
            sum.at()[l] = s;
        }
        ((Wide<T>*)y)[i].v = sum.v;
    }
    for (Count i = wide * lanes + first; i < n; i += stride) {
        T s = READS ? mul(keep, y[i]) : (K > 0 ? mul(a[0], v[0][i]) : T(0));
#pragma unroll
        for (int k = READS ? 0 : 1; k < K; k++) s = add(s, mul(a[k], v[k][i]));
        y[i] = s;
    }
}

// A combination of one job. Jobs are blockIdx.y here and below: what several of them do at the same time is one launch.
struct Combination {
    T* y;
    const T* v[8];
    Count numbers;
    T coefficients[10];
};

#define COMBINE(K)                                                                  \
    extern "C" __global__ void combine_##K(const Combination* all) {                \
        const Combination& one = all[blockIdx.y];                                   \
        combine<K, true>(one.y, one.v, one.coefficients, one.numbers);              \
    }                                                                               \
    EXPORT(combine_##K)                                                             \
    extern "C" __global__ void replace_##K(const Combination* all) {                \
        const Combination& one = all[blockIdx.y];                                   \
        combine<K, false>(one.y, one.v, one.coefficients, one.numbers);             \
    }                                                                               \
    EXPORT(replace_##K)

COMBINE(0)
COMBINE(1)
COMBINE(2)
COMBINE(3)
COMBINE(4)
COMBINE(5)
COMBINE(6)
COMBINE(7)
COMBINE(8)

// An exchange of one job: rows at a distance of `stride` numbers, a multiple of a Wide, and the rows of the mixing matrix. Columns from the
// number of agents on are rows of `others`, which were sent by other ranks.
struct Exchange {
    const T* from;
    T* to;
    const uint32_t *starts, *columns;
    const T *weights, *others;
    Count stride;
    uint32_t agents, unused;
};

// to_i <- sum_j w_ij (from_j - from_i) in increasing j. A block is some columns of one agent; blocks of all agents with the same columns
// follow each other, so that a neighbour's row is still in the cache.
extern "C" __global__ void pull(const Exchange* all) {
    const int lanes = Wide<T>::lanes;
    const Exchange one = all[blockIdx.z];
    const T *from = one.from, *weights = one.weights;
    const uint32_t* columns = one.columns;
    uint32_t agent = blockIdx.x;
    if (agent >= one.agents) return;
    uint32_t begin = one.starts[agent], end = one.starts[agent + 1];
    Count stride = one.stride;
    const Wide<T>* own = (const Wide<T>*)(from + agent * stride);
    Wide<T>* out = (Wide<T>*)(one.to + agent * stride);
    Count wide = stride / lanes, step = (Count)gridDim.y * blockDim.x;
    for (Count i = (Count)blockIdx.y * blockDim.x + threadIdx.x; i < wide; i += step) {
        Wide<T> x, sum;
        x.v = own[i].v;
        bool is_first = true;
        for (int l = 0; l < lanes; l++) sum.at()[l] = T(0);
        for (uint32_t e = begin; e < end; e++) {
            T w = weights[e];
            if (columns[e] == agent || w == T(0)) continue;
            Wide<T> v;
            uint32_t j = columns[e];
            v.v = ((const Wide<T>*)(j < one.agents ? from + j * stride : one.others + (j - one.agents) * stride))[i].v;
#pragma unroll
            for (int l = 0; l < lanes; l++) {
                T term = mul(w, sub(v.at()[l], x.at()[l]));
                sum.at()[l] = is_first ? term : add(sum.at()[l], term);
            }
            is_first = false;
        }
        out[i].v = sum.v;
    }
}
EXPORT(pull)

// Rows of one job that are sent to other ranks, by their numbers, to be copied one after the other.
struct Gathering {
    const T* from;
    T* to;
    const uint32_t* rows;
    Count stride;
    uint32_t count, unused;
};

extern "C" __global__ void gather(const Gathering* all) {
    const Gathering one = all[blockIdx.z];
    Count wide = one.stride / Wide<T>::lanes, step = (Count)gridDim.x * blockDim.x;
    for (uint32_t k = blockIdx.y; k < one.count; k += gridDim.y) {
        const Wide<T>* row = (const Wide<T>*)(one.from + one.rows[k] * one.stride);
        Wide<T>* to = (Wide<T>*)(one.to + k * one.stride);
        for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < wide; i += step) to[i].v = row[i].v;
    }
}
EXPORT(gather)

// The sketches of the rows of one vector, see mile::steady: `size` numbers from `place` on of the `len` of each agent; before all of
// them the first element of the row, if it `has_first`.
struct Sketching {
    const T* x;
    double* out;
    Count dim, stride, len, place;
    uint32_t agents, size, has_first, unused;
};

// The k-th element after the first is added, with its sign, to number k mod size, in increasing k. A block is an agent.
extern "C" __global__ void sketch(const Sketching* all) {
    const Sketching one = all[blockIdx.y];
    if (blockIdx.x >= one.agents) return;
    const T* row = one.x + blockIdx.x * one.stride;
    double* out = one.out + blockIdx.x * one.len;
    if (one.has_first && threadIdx.x == 0) out[0] = (double)row[0];
    for (Count number = threadIdx.x; number < one.size; number += blockDim.x) {
        double sum = 0.0;
        for (Count k = number; k + 1 < one.dim; k += one.size) {
            uint64_t word = ((uint64_t)k / 64 + 1) * 0x9e3779b97f4a7c15ull;
            word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
            word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
            word ^= word >> 31;
            double value = (double)row[k + 1];
            sum = add(sum, (word >> (k % 64)) & 1 ? -value : value);
        }
        out[one.place + number] = sum;
    }
}
EXPORT(sketch)

// A proximal step of one job.
struct Threshold {
    T* x;
    const uint8_t* penalised;
    Count dim, stride;
    uint32_t agents, unused;
    T threshold[2];
};

// x <- sign(x) max(|x| - threshold, 0) in the columns where `penalised` is 1.
extern "C" __global__ void prox(const Threshold* all) {
    const Threshold one = all[blockIdx.z];
    if (blockIdx.y >= one.agents) return;
    T *row = one.x + blockIdx.y * one.stride, threshold = one.threshold[0];
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < one.dim; i += step) {
        if (!one.penalised[i]) continue;
        T value = row[i], rest = sub(value < T(0) ? -value : value, threshold);
        row[i] = rest <= T(0) ? T(0) : (value < T(0) ? -rest : rest);
    }
}
EXPORT(prox)

struct Filling {
    T* x;
    Count numbers;
    T value[2];
};

extern "C" __global__ void fill(const Filling* all) {
    const Filling one = all[blockIdx.y];
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < one.numbers; i += step) one.x[i] = one.value[0];
}
EXPORT(fill)

// The rows of one job of which a mean or squares are formed.
struct Rows {
    const T* x;
    Count dim, stride;
    // Agents, and blocks that sum the squares of each.
    uint32_t agents, blocks;
    // The mean, and the same rounded, if they are wanted; where squares are measured from, or null for the origin.
    double* mean;
    T* rounded;
    const double* centre;
    // Sums of blocks.
    double* parts;
};

// The mean over agents of each column, in increasing agent.
extern "C" __global__ void mean(const Rows* all) {
    const Rows one = all[blockIdx.y];
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < one.dim; i += step) {
        double sum = 0.0;
        for (uint32_t a = 0; a < one.agents; a++) sum = add(sum, (double)one.x[a * one.stride + i]);
        sum = sum / one.agents;
        if (one.mean) one.mean[i] = sum;
        if (one.rounded) one.rounded[i] = (T)sum;
    }
}
EXPORT(mean)

// Squared distances of the row of one agent from the centre, a sum for each block.
extern "C" __global__ void squares(const Rows* all) {
    const Rows one = all[blockIdx.z];
    if (blockIdx.y >= one.agents || blockIdx.x >= one.blocks) return;
    double sum = 0.0;
    const T* row = one.x + blockIdx.y * one.stride;
    Count step = (Count)one.blocks * blockDim.x;
#pragma unroll 4
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < one.dim; i += step) {
        double d = (double)row[i];
        if (one.centre) d = sub(d, one.centre[i]);
        sum = add(sum, mul(d, d));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) one.parts[blockIdx.y * one.blocks + blockIdx.x] = sum;
}
EXPORT_WAITING(squares)

// The sum of what the blocks of `squares` have found.
extern "C" __global__ void total(const Rows* all, double* out) {
    const Rows one = all[blockIdx.x];
    double sum = 0.0;
    for (uint32_t i = threadIdx.x; i < one.agents * one.blocks; i += SUM_THREADS) sum = add(sum, one.parts[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
EXPORT_WAITING(total)
