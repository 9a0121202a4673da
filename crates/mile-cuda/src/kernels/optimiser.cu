// Local optimisers with memory, see mile::optimiser. T is float or double.

// A step of AdamW or AMSGrad of one job. What is absent is null.
struct Adam {
    T *x, *m, *v, *largest;
    const T *g, *inner, *shift;
    Count numbers;
    // b1, 1 - b1, b2, 1 - b2, 1/sqrt(1 - b2^k), eps, 1 - alpha decay, alpha/(1 - b1^k), factors of inner and shift.
    T by[10];
};

__device__ __forceinline__ void adam_element(const Adam& one, T& x, T& m, T& v, T* largest, T g, T inner, T shift) {
    const T* by = one.by;
    T h = one.inner ? add(g, mul(by[8], inner)) : g;
    m = add(mul(by[0], m), mul(by[1], h));
    v = add(mul(by[2], v), mul(by[3], mul(h, h)));
    T squares = v;
    if (largest) *largest = squares = *largest >= squares ? *largest : squares;
    T s = quotient(m, add(mul(root_of(squares), by[4]), by[5]));
    T moved = sub(mul(by[6], x), mul(by[7], s));
    x = one.shift ? add(moved, mul(by[9], shift)) : moved;
}

// Rows of a vector follow each other and are multiples of a Wide.
extern "C" __global__ void adam(const Adam* all) {
    const int lanes = Wide<T>::lanes;
    const Adam one = all[blockIdx.y];
    Count wide = one.numbers / lanes, step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < wide; i += step) {
        Wide<T> x, m, v, largest, g, inner, shift;
        x.v = ((Wide<T>*)one.x)[i].v;
        m.v = ((Wide<T>*)one.m)[i].v;
        v.v = ((Wide<T>*)one.v)[i].v;
        g.v = ((const Wide<T>*)one.g)[i].v;
        if (one.largest) largest.v = ((Wide<T>*)one.largest)[i].v;
        if (one.inner) inner.v = ((const Wide<T>*)one.inner)[i].v;
        if (one.shift) shift.v = ((const Wide<T>*)one.shift)[i].v;
#pragma unroll
        for (int l = 0; l < lanes; l++) {
            T* kept = one.largest ? &largest.at()[l] : nullptr;
            adam_element(one, x.at()[l], m.at()[l], v.at()[l], kept, g.at()[l], inner.at()[l], shift.at()[l]);
        }
        ((Wide<T>*)one.x)[i].v = x.v;
        ((Wide<T>*)one.m)[i].v = m.v;
        ((Wide<T>*)one.v)[i].v = v.v;
        if (one.largest) ((Wide<T>*)one.largest)[i].v = largest.v;
    }
}
EXPORT(adam)

// Gradients of one job that are shortened: `lanes` sums of squares for each agent, and then its factor.
struct Clipping {
    T* g;
    double *sums, *factors;
    Count dim, stride, lanes;
    uint32_t agents, unused;
    double most, least;
};

// Sum k of an agent has the squares of elements k, k + lanes, ...
extern "C" __global__ void clip_sums(const Clipping* all) {
    const Clipping one = all[blockIdx.z];
    Count lane = (Count)blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.y >= one.agents || lane >= one.lanes) return;
    const T* row = one.g + blockIdx.y * one.stride;
    double sum = 0.0;
    for (Count i = lane; i < one.dim; i += one.lanes) sum = add(sum, mul((double)row[i], (double)row[i]));
    one.sums[blockIdx.y * one.lanes + lane] = sum;
}
EXPORT(clip_sums)

// The sums of an agent by halves, and the factor. A block is an agent.
extern "C" __global__ void clip_factors(const Clipping* all) {
    const Clipping one = all[blockIdx.y];
    bool is_agent = blockIdx.x < one.agents;
    double* sums = one.sums + (is_agent ? blockIdx.x : 0) * one.lanes;
    for (Count half = one.lanes / 2; half > 0; half /= 2) {
        for (Count k = threadIdx.x; is_agent && k < half; k += blockDim.x) sums[k] = add(sums[k], sums[k + half]);
        __syncthreads();
    }
    if (is_agent && threadIdx.x == 0) one.factors[blockIdx.x] = quotient(one.most, add(root_of(sums[0]), one.least));
}
EXPORT_WAITING(clip_factors)

// A factor that is not a number makes the gradient one that is not either.
extern "C" __global__ void clip_scale(const Clipping* all) {
    const Clipping one = all[blockIdx.z];
    if (blockIdx.y >= one.agents) return;
    double factor = one.factors[blockIdx.y];
    if (factor >= 1.0) return;
    T* row = one.g + blockIdx.y * one.stride;
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < one.dim; i += step) row[i] = mul((T)factor, row[i]);
}
EXPORT(clip_scale)
