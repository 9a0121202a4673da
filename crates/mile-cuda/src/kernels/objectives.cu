// Gradients of quadratics and tables. T is float or double.

// The sum of the parts that blocks have written, the same in every thread.
__device__ double sum_of(const double* parts, uint32_t count) {
    double sum = 0.0;
    for (uint32_t k = 0; k < count; k++) sum = add(sum, parts[k]);
    return sum;
}

// Quadratics, f_i(x) = 1/2 (x - b_i)' R D R (x - b_i) with R = I - 2 u u'. The products with u need all columns, so a gradient
// takes three kernels, each with some columns of one row in a block. A row is an objective at a point of one agent of one job.
struct QuadraticRow {
    const T* x;
    // The gradient, or the loss, one number.
    void* out;
    const T *u, *b, *d;
};

extern "C" __global__ void quadratic_first(const QuadraticRow* rows, double* parts, Count dim) {
    const QuadraticRow one = rows[blockIdx.y];
    Count step = (Count)gridDim.x * blockDim.x;
    double sum = 0.0;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step)
        sum += (double)one.u[i] * (double)sub(one.x[i], one.b[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
EXPORT_WAITING(quadratic_first)

// g <- D R (x - b), and the parts of u'g.
extern "C" __global__ void quadratic_second(const QuadraticRow* rows, const double* parts, double* next, Count dim) {
    const QuadraticRow one = rows[blockIdx.y];
    T *out = (T*)one.out, along = (T)(-2.0 * sum_of(parts + blockIdx.y * gridDim.x, gridDim.x));
    Count step = (Count)gridDim.x * blockDim.x;
    double sum = 0.0;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step) {
        T value = mul(add(sub(one.x[i], one.b[i]), mul(along, one.u[i])), one.d[i]);
        out[i] = value;
        sum += (double)one.u[i] * (double)value;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) next[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
EXPORT_WAITING(quadratic_second)

// g <- R g.
extern "C" __global__ void quadratic_third(const QuadraticRow* rows, const double* parts, Count dim) {
    const QuadraticRow one = rows[blockIdx.y];
    T *out = (T*)one.out, along = (T)(-2.0 * sum_of(parts + blockIdx.y * gridDim.x, gridDim.x));
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step)
        out[i] = add(out[i], mul(along, one.u[i]));
}
EXPORT(quadratic_third)

// Parts of the loss, after `quadratic_first`.
extern "C" __global__ void quadratic_losses(const QuadraticRow* rows, const double* parts, double* next, Count dim) {
    const QuadraticRow one = rows[blockIdx.y];
    double along = -2.0 * sum_of(parts + blockIdx.y * gridDim.x, gridDim.x), sum = 0.0;
    Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += step) {
        double reflected = (double)one.x[i] - (double)one.b[i] + along * (double)one.u[i];
        sum += 0.5 * (double)one.d[i] * reflected * reflected;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) next[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
EXPORT_WAITING(quadratic_losses)

// A thread is a row.
extern "C" __global__ void quadratic_sums(const QuadraticRow* rows, const double* parts, uint32_t each, uint32_t count) {
    uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < count) *(double*)rows[row].out = sum_of(parts + (Count)row * each, each);
}
EXPORT(quadratic_sums)

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

// The loss of a row of a table.
__device__ double value_of(int loss, double p, double b, double parameter) {
    double r = p - b;
    switch (loss) {
        case LEAST_SQUARES: return 0.5 * r * r;
        case POISSON: return exp(p) - b * p;
        case HUBER: return fabs(r) > parameter ? parameter * (fabs(r) - 0.5 * parameter) : 0.5 * r * r;
        case WELSCH: return -0.5 * parameter * parameter * expm1(-(r / parameter) * (r / parameter));
        default: {
            double z = -b * p;
            return z > 0.0 ? z + log1p(exp(-z)) : log1p(exp(z));
        }
    }
}

// An objective at a point: the table of one agent of one job, of which `count` rows are used: those of `samples`, or all. `splits` blocks
// share a sum.
struct TableRow {
    const T* x;
    // The gradient, or the loss, one number.
    void* out;
    // Rows have no weights or offsets where these are null.
    const T *features, *targets, *weights, *offsets;
    const uint32_t* samples;
    double factor;
    uint32_t count, splits;
};

// The products of one row of a table with the coefficients of all classes, to `out` at a distance of `most`; the largest of them.
template <class N>
__device__ N products(const TableRow& one, Count row, N* out, uint32_t most, uint32_t columns, uint32_t classes) {
    const T* a = one.features + row * columns;
    N largest = N(0);
    for (uint32_t c = 0; c < classes; c++) {
        N p = N(0);
        for (uint32_t k = 0; k < columns; k++) p += (N)a[k] * (N)one.x[(Count)c * columns + k];
        out[(Count)c * most] = p;
        largest = c == 0 || p > largest || p != p ? p : largest;
    }
    return largest;
}

// The derivatives of the losses of a table's rows in their products with x, [objective][class][row] with room for `most` rows each. A
// thread is one row.
extern "C" __global__ void table_slopes(const TableRow* rows, T* slopes, uint32_t most, uint32_t columns, uint32_t classes, int loss,
                                        T parameter) {
    const TableRow one = rows[blockIdx.y];
    uint32_t r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= one.count) return;
    Count row = one.samples ? one.samples[r] : r;
    T *out = slopes + (Count)blockIdx.y * classes * most + r, target = one.targets[row];
    T largest = products<T>(one, row, out, most, columns, classes);
    T weight = one.weights ? one.weights[row] : T(1);
    if (loss != SOFTMAX) {
        *out = weight * slope(loss, one.offsets ? *out + one.offsets[row] : *out, target, parameter);
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
        value = weight * (value / sum - (target == T(c) ? T(1) : T(0)));
    }
}
EXPORT(table_slopes)

#define COLUMNS 32
#define LANES 8

// Sums of rows times their slopes, [objective][split][class][column] with room for gridDim.y splits, each over the rows r = split, split +
// splits, ... of one table.
extern "C" __global__ void table_sums(const TableRow* rows, const T* slopes, double* sums, uint32_t most, uint32_t columns, uint32_t classes) {
    __shared__ double parts[LANES][COLUMNS];
    uint32_t objective = blockIdx.z / classes, c = blockIdx.z % classes, split = blockIdx.y;
    const TableRow one = rows[objective];
    if (split >= one.splits) return;
    uint32_t lane = threadIdx.x / COLUMNS, k = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const T* slope = slopes + ((Count)objective * classes + c) * most;
    double sum = 0.0;
    if (k < columns)
        for (uint32_t r = split * LANES + lane; r < one.count; r += one.splits * LANES) {
            Count row = one.samples ? one.samples[r] : r;
            sum += (double)slope[r] * (double)one.features[row * columns + k];
        }
    parts[lane][threadIdx.x % COLUMNS] = sum;
    __syncthreads();
    if (lane == 0 && k < columns) {
        for (uint32_t l = 1; l < LANES; l++) sum = add(sum, parts[l][threadIdx.x]);
        sums[(((Count)objective * gridDim.y + split) * classes + c) * columns + k] = sum;
    }
}
EXPORT_WAITING(table_sums)

extern "C" __global__ void table_gradient(const TableRow* rows, const double* sums, uint32_t room, uint32_t columns, uint32_t classes,
                                          uint32_t penalised, int loss, double l2) {
    const TableRow one = rows[blockIdx.y];
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, dim = columns * classes;
    if (i >= dim) return;
    double sum = 0.0, value = (double)one.x[i], penalty = 0.0;
    for (uint32_t split = 0; split < one.splits; split++) sum = add(sum, sums[((Count)blockIdx.y * room + split) * dim + i]);
    if (i % columns < penalised) {
        double root = 1.0 + value * value;
        penalty = loss == NONCONVEX_LOGISTIC ? 2.0 * l2 * value / (root * root) : l2 * value;
    }
    ((T*)one.out)[i] = (T)(one.factor * (sum / one.count + penalty));
}
EXPORT(table_gradient)

// Losses of a table's rows, [objective][row], after their products in `room`, [objective][class][row]. A thread is one row.
extern "C" __global__ void table_values(const TableRow* rows, double* room, uint32_t most, uint32_t columns, uint32_t classes, int loss,
                                        double parameter) {
    const TableRow one = rows[blockIdx.y];
    uint32_t r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= one.count) return;
    Count row = one.samples ? one.samples[r] : r;
    double *out = room + (Count)blockIdx.y * classes * most + r, target = (double)one.targets[row];
    double largest = products<double>(one, row, out, most, columns, classes);
    double weight = one.weights ? (double)one.weights[row] : 1.0;
    if (loss != SOFTMAX) {
        *out = weight * value_of(loss, one.offsets ? *out + (double)one.offsets[row] : *out, target, parameter);
        return;
    }
    double sum = 0.0, own = out[(Count)(uint32_t)target * most];
    for (uint32_t c = 0; c < classes; c++) sum += exp(out[(Count)c * most] - largest);
    *out = weight * (largest + log(sum) - own);
}
EXPORT(table_values)

// The loss of each objective from those of its rows, with its penalty. A block is an objective.
extern "C" __global__ void table_losses(const TableRow* rows, const double* values, uint32_t most, uint32_t columns, uint32_t classes,
                                        uint32_t penalised, int loss, double l2) {
    const TableRow one = rows[blockIdx.x];
    const double* own = values + (Count)blockIdx.x * classes * most;
    double sum = 0.0, penalty = 0.0;
    for (uint32_t r = threadIdx.x; r < one.count; r += SUM_THREADS) sum += own[r];
    for (uint32_t i = threadIdx.x; i < columns * classes; i += SUM_THREADS) {
        double value = (double)one.x[i], square = value * value;
        if (i % columns < penalised) penalty += loss == NONCONVEX_LOGISTIC ? l2 * square / (1.0 + square) : 0.5 * l2 * square;
    }
    sum = block_sum(sum);
    __syncthreads();
    penalty = block_sum(penalty);
    if (threadIdx.x == 0) *(double*)one.out = one.factor * (sum / one.count + penalty);
}
EXPORT_WAITING(table_losses)
