// Gradients of quadratics and tables. T is float or double.

// The sum of the parts that blocks have written, the same in every thread.
__device__ double sum_of(const double* parts, uint32_t count) {
    double sum = 0.0;
    for (uint32_t k = 0; k < count; k++) sum = add(sum, parts[k]);
    return sum;
}

// Quadratics, f_i(x) = 1/2 (x - b_i)' R D R (x - b_i) with R = I - 2 u u'. The products with u need all columns, so a gradient
// takes three kernels, each with some columns of one agent in a block.

extern "C" __global__ void quadratic_first(const T* x, const T* u, const T* b, double* parts, Count dim, Count stride) {
    const T *row = x + blockIdx.y * stride, *normal = u + blockIdx.y * dim, *centre = b + blockIdx.y * dim;
    Count step = (Count)gridDim.x * blockDim.x;
    double sum = 0.0;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step)
        sum += (double)normal[i] * (double)sub(row[i], centre[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
EXPORT_WAITING(quadratic_first)

// g <- D R (x - b), and the parts of u'g.
extern "C" __global__ void quadratic_second(const T* x, T* g, const T* u, const T* b, const T* d, const double* parts, double* next,
                                            Count dim, Count stride) {
    const T *row = x + blockIdx.y * stride, *normal = u + blockIdx.y * dim, *centre = b + blockIdx.y * dim;
    T* out = g + blockIdx.y * stride;
    T along = (T)(-2.0 * sum_of(parts + blockIdx.y * gridDim.x, gridDim.x));
    Count step = (Count)gridDim.x * blockDim.x;
    double sum = 0.0;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step) {
        T value = mul(add(sub(row[i], centre[i]), mul(along, normal[i])), d[i]);
        out[i] = value;
        sum += (double)normal[i] * (double)value;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) next[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
EXPORT_WAITING(quadratic_second)

// g <- R g.
extern "C" __global__ void quadratic_third(T* g, const T* u, const double* parts, Count dim, Count stride) {
    const T* normal = u + blockIdx.y * dim;
    T* out = g + blockIdx.y * stride;
    T along = (T)(-2.0 * sum_of(parts + blockIdx.y * gridDim.x, gridDim.x));
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step)
        out[i] = add(out[i], mul(along, normal[i]));
}
EXPORT(quadratic_third)

// Tables. The loss of a row is one of these.
enum Loss { LEAST_SQUARES, LOGISTIC, NONCONVEX_LOGISTIC, SOFTMAX, POISSON, HUBER, WELSCH };

__device__ T slope(int loss, T p, T b, T parameter) {
    switch (loss) {
        case LEAST_SQUARES: return p - b;
        case POISSON: return exp(p) - b;
        case HUBER: {
            T r = p - b;
            r = r > parameter ? parameter : r;
            return r < -parameter ? -parameter : r;
        }
        case WELSCH: {
            T r = p - b, q = r / parameter;
            return r * exp(-q * q);
        }
        default: return -b / (T(1) + exp(b * p));
    }
}

// The derivatives of the losses of an agent's rows in their products with x, [agent][class][row] with `most` rows for each. A thread
// is one row; `samples` are the rows of a mini-batch, [agent][row], or nothing for all.
extern "C" __global__ void table_slopes(const T* x, T* slopes, const T* features, const T* targets, const Count* first_row,
                                        const uint32_t* rows, const uint32_t* samples, uint32_t most, uint32_t columns,
                                        uint32_t classes, Count stride, int loss, T parameter) {
    uint32_t agent = blockIdx.y, r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows[agent]) return;
    Count row = first_row[agent] + (samples ? samples[(Count)agent * most + r] : r);
    const T *a = features + row * columns, *coefficients = x + agent * stride;
    T* out = slopes + (Count)agent * classes * most + r;
    T largest = T(0);
    for (uint32_t c = 0; c < classes; c++) {
        T p = T(0);
        for (uint32_t k = 0; k < columns; k++) p += a[k] * coefficients[(Count)c * columns + k];
        out[(Count)c * most] = p;
        largest = c == 0 || p > largest || p != p ? p : largest;
    }
    if (loss != SOFTMAX) {
        *out = slope(loss, *out, targets[row], parameter);
        return;
    }
    T sum = T(0);
    for (uint32_t c = 0; c < classes; c++) {
        T value = exp(out[(Count)c * most] - largest);
        out[(Count)c * most] = value;
        sum += value;
    }
    for (uint32_t c = 0; c < classes; c++) {
        T& value = out[(Count)c * most];
        value = value / sum - (targets[row] == T(c) ? T(1) : T(0));
    }
}
EXPORT(table_slopes)

#define COLUMNS 32
#define LANES 8

// Sums of rows times their slopes, [agent][split][class][column], each over the rows r = split, split + splits, ... of one agent.
extern "C" __global__ void table_sums(const T* slopes, double* sums, const T* features, const Count* first_row, const uint32_t* rows,
                                      const uint32_t* samples, uint32_t most, uint32_t columns, uint32_t classes) {
    __shared__ double parts[LANES][COLUMNS];
    uint32_t agent = blockIdx.z / classes, c = blockIdx.z % classes, split = blockIdx.y, splits = gridDim.y;
    uint32_t lane = threadIdx.x / COLUMNS, k = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const T* slope = slopes + ((Count)agent * classes + c) * most;
    double sum = 0.0;
    if (k < columns)
        for (uint32_t r = split * LANES + lane; r < rows[agent]; r += splits * LANES) {
            Count row = first_row[agent] + (samples ? samples[(Count)agent * most + r] : r);
            sum += (double)slope[r] * (double)features[row * columns + k];
        }
    parts[lane][threadIdx.x % COLUMNS] = sum;
    __syncthreads();
    if (lane == 0 && k < columns) {
        for (uint32_t l = 1; l < LANES; l++) sum = add(sum, parts[l][threadIdx.x]);
        sums[(((Count)agent * splits + split) * classes + c) * columns + k] = sum;
    }
}
EXPORT_WAITING(table_sums)

// g <- factor (sums/rows + the gradient of the smooth penalty).
extern "C" __global__ void table_gradient(const T* x, T* g, const double* sums, const double* factors, const uint32_t* rows,
                                          uint32_t splits, uint32_t columns, uint32_t classes, uint32_t penalised, Count stride,
                                          int loss, double l2) {
    uint32_t agent = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, dim = columns * classes;
    if (i >= dim) return;
    double sum = 0.0, value = (double)x[agent * stride + i], penalty = 0.0;
    for (uint32_t split = 0; split < splits; split++) sum = add(sum, sums[((Count)agent * splits + split) * dim + i]);
    if (i % columns < penalised) {
        double root = 1.0 + value * value;
        penalty = loss == NONCONVEX_LOGISTIC ? 2.0 * l2 * value / (root * root) : l2 * value;
    }
    g[agent * stride + i] = (T)(factors[agent] * (sum / rows[agent] + penalty));
}
EXPORT(table_gradient)
