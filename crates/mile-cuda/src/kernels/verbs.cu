// Combine, pull, prox and sums over vectors. T is float or double.

// y <- keep y + sum_k a_k v_k from left to right, coefficients = (keep, a_0, a_1, ...). If READS is false the old y is not read.
template <int K, bool READS>
__device__ void combine(T* y, const T* const* v, const T* coefficients, Count n) {
    const int lanes = Wide<T>::lanes;
    T keep = coefficients[0], a[K + 1];
    for (int k = 0; k < K; k++) a[k] = coefficients[1 + k];
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

#define COMBINE(K)                                                                                            \
    extern "C" __global__ void combine_##K(T* y, const T* c, Count n, const T* v0, const T* v1, const T* v2,  \
        const T* v3, const T* v4, const T* v5, const T* v6, const T* v7) {                                    \
        const T* v[8] = {v0, v1, v2, v3, v4, v5, v6, v7};                                                     \
        combine<K, true>(y, v, c, n);                                                                         \
    }                                                                                                         \
    EXPORT(combine_##K)                                                                                       \
    extern "C" __global__ void replace_##K(T* y, const T* c, Count n, const T* v0, const T* v1, const T* v2,  \
        const T* v3, const T* v4, const T* v5, const T* v6, const T* v7) {                                    \
        const T* v[8] = {v0, v1, v2, v3, v4, v5, v6, v7};                                                     \
        combine<K, false>(y, v, c, n);                                                                        \
    }                                                                                                         \
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

// to_i <- sum_j w_ij (from_j - from_i) in increasing j, for rows at a distance of `stride` numbers, a multiple of a Wide. A block
// is some columns of one agent; blocks of all agents with the same columns follow each other, so that a neighbour's row is
// still in the cache.
extern "C" __global__ void pull(const T* from, T* to, const uint32_t* starts, const uint32_t* columns, const T* weights,
                                Count stride) {
    const int lanes = Wide<T>::lanes;
    uint32_t agent = blockIdx.x, begin = starts[agent], end = starts[agent + 1];
    const Wide<T>* own = (const Wide<T>*)(from + agent * stride);
    Wide<T>* out = (Wide<T>*)(to + agent * stride);
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
            v.v = ((const Wide<T>*)(from + columns[e] * stride))[i].v;
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

// x <- sign(x) max(|x| - threshold, 0) in the columns where `penalised` is 1, for the row of one agent.
extern "C" __global__ void prox(T* x, const T* threshold, const uint8_t* penalised, Count dim, Count stride) {
    T* row = x + blockIdx.y * stride;
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step) {
        if (!penalised[i]) continue;
        T value = row[i], rest = sub(value < T(0) ? -value : value, *threshold);
        row[i] = rest <= T(0) ? T(0) : (value < T(0) ? -rest : rest);
    }
}
EXPORT(prox)

extern "C" __global__ void fill(T* x, T value, Count n) {
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) x[i] = value;
}
EXPORT(fill)

// The mean over agents of each column, in increasing agent.
extern "C" __global__ void mean(const T* x, double* out, uint32_t agents, Count dim, Count stride) {
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step) {
        double sum = 0.0;
        for (uint32_t a = 0; a < agents; a++) sum = add(sum, (double)x[a * stride + i]);
        out[i] = sum / agents;
    }
}
EXPORT(mean)

// Squared distances of the row of one agent from `centre` (a row, or nothing for the origin), a sum for each block.
extern "C" __global__ void squares(const T* x, const double* centre, double* out, Count dim, Count stride) {
    double sum = 0.0;
    const T* row = x + blockIdx.y * stride;
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step) {
        double d = (double)row[i];
        if (centre) d = sub(d, centre[i]);
        sum = add(sum, mul(d, d));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
EXPORT_WAITING(squares)

// The sum of what the blocks of `squares` have found.
extern "C" __global__ void total(const double* parts, double* out, uint32_t count) {
    double sum = 0.0;
    for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS) sum = add(sum, parts[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}
EXPORT_WAITING(total)
