// What networks compute besides products: loading samples, losses, relu and pooling, dropout, normalisation, and sums of parts. Layouts are
// those of layers.cuh.

#define INDEX ((Count)blockIdx.x * blockDim.x + threadIdx.x)

// The sum of parts of a dense layer, with bias and relu. A thread is an output.
extern "C" __global__ void finish(const T* parts, const Row* rows, T* out, uint32_t splits, uint32_t samples, uint32_t outputs,
                                  Count bias, uint32_t relu) {
    Count agents = gridDim.z, numbers = (Count)samples * outputs, i = INDEX;
    if (i >= numbers) return;
    Count place = blockIdx.z * numbers + i;
    T sum = rows[blockIdx.z].x[bias + i % outputs];
    for (uint32_t s = 0; s < splits; s++) sum += parts[s * agents * numbers + place];
    out[place] = relu && sum < T(0) ? T(0) : sum;
}
EXPORT(finish)

// One layer's part of a gradient: where it is in a row, how many numbers, the parts that are summed, and the first block that does it.
struct Summed {
    const T* parts;
    uint32_t offset, numbers, splits, first;
};

// Many parts are summed by several threads.
#define FEW_PARTS 16
#define PART_LANES 8

// The gradient from the parts of all layers, added to what is there or replacing it.
extern "C" __global__ void sum_parts(const Summed* layers, uint32_t count, const Row* rows, uint32_t adds) {
    __shared__ T sums[SUM_THREADS];
    uint32_t l = 0;
    while (l + 1 < count && blockIdx.x >= layers[l + 1].first) l++;
    const Summed layer = layers[l];
    uint32_t lanes = layer.splits <= FEW_PARTS ? 1 : PART_LANES, across = SUM_THREADS / lanes, lane = threadIdx.x / across;
    Count i = (Count)(blockIdx.x - layer.first) * across + threadIdx.x % across, agent = blockIdx.z, agents = gridDim.z;
    const T* parts = layer.parts + agent * layer.numbers + i;
    T sum = T(0);
    if (i < layer.numbers)
#pragma unroll 8
        for (uint32_t s = lane; s < layer.splits; s += lanes) sum += parts[s * agents * layer.numbers];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (lane > 0 || i >= layer.numbers) return;
    for (uint32_t k = 1; k < lanes; k++) sum += sums[threadIdx.x + k * across];
    T* g = (T*)rows[agent].out + layer.offset + i;
    *g = adds ? *g + sum : sum;
}
EXPORT_WAITING(sum_parts)

// The sample of an agent that has no more.
#define NONE 0xffffffffu

// Copies `each` samples of every agent, from number `first` on, to the first layer's input, a block for each; bytes by a table of their
// values.
template <class Source>
__device__ void load(const Row* rows, const T* values, T* out, uint32_t len, uint32_t first, uint32_t each) {
    const Row& row = rows[blockIdx.x / each];
    uint32_t sample = row.samples[first + blockIdx.x % each];
    T* to = out + (Count)blockIdx.x * len;
    const Source* from = (const Source*)row.pixels + (Count)sample * len;
    for (uint32_t i = threadIdx.x; i < len; i += blockDim.x)
        to[i] = sample == NONE ? T(0) : values ? values[(int)from[i]] : (T)from[i];
}
extern "C" __global__ void load_bytes(const Row* rows, const T* values, T* out, uint32_t len, uint32_t first, uint32_t each) {
    load<uint8_t>(rows, values, out, len, first, each);
}
EXPORT(load_bytes)
extern "C" __global__ void load_singles(const Row* rows, const T* values, T* out, uint32_t len, uint32_t first, uint32_t each) {
    load<float>(rows, values, out, len, first, each);
}
EXPORT(load_singles)
extern "C" __global__ void load_doubles(const Row* rows, const T* values, T* out, uint32_t len, uint32_t first, uint32_t each) {
    load<double>(rows, values, out, len, first, each);
}
EXPORT(load_doubles)

// Deltas at the outputs, times the agent's scale: cross-entropy with labels, or squared distance from targets. A thread is a sample.
extern "C" __global__ void loss_deltas(const T* outputs, T* delta, const Row* rows, uint32_t classes, uint32_t first, uint32_t each,
                                       Count count) {
    Count i = INDEX;
    if (i >= count) return;
    const Row& row = rows[i / each];
    const T* scores = outputs + i * classes;
    T *to = delta + i * classes, scale = row.scale[0];
    uint32_t sample = row.samples[first + i % each];
    T largest = scores[0], total = T(0);
    for (uint32_t c = 1; c < classes; c++) largest = scores[c] > largest ? scores[c] : largest;
    if (row.labels)
        for (uint32_t c = 0; c < classes; c++) total += exp(scores[c] - largest);
    for (uint32_t c = 0; c < classes; c++) {
        if (sample == NONE)
            to[c] = T(0);
        else if (row.labels)
            to[c] = (exp(scores[c] - largest) / total - (c == row.labels[sample] ? T(1) : T(0))) * scale;
        else
            to[c] = (scores[c] - (T)row.targets[(Count)sample * classes + c]) * scale;
    }
}
EXPORT(loss_deltas)

// The loss of each sample, and whether its class is predicted: 1 or 0. A thread is a sample. Whoever reads them sums them, so that the sums of
// an agent do not depend on whose samples are evaluated with its own.
extern "C" __global__ void score(const T* outputs, const Row* rows, uint32_t classes, uint32_t first, uint32_t each, Count count) {
    Count i = INDEX;
    if (i >= count) return;
    const Row& row = rows[i / each];
    Count place = first + i % each;
    uint32_t sample = row.samples[place];
    if (sample == NONE) return;
    const T* scores = outputs + i * classes;
    uint32_t best = 0;
    bool is_nan = false;
    for (uint32_t c = 0; c < classes; c++) {
        best = scores[c] > scores[best] ? c : best;
        is_nan |= scores[c] != scores[c];
    }
    double sum = 0.0, largest = (double)scores[best], correct = 0.0;
    if (row.labels) {
        for (uint32_t c = 0; c < classes; c++) sum += exp((double)scores[c] - largest);
        sum = log(sum) + largest - (double)scores[row.labels[sample]];
        correct = !is_nan && best == row.labels[sample] ? 1.0 : 0.0;
    } else {
        for (uint32_t c = 0; c < classes; c++) {
            double d = (double)scores[c] - row.targets[(Count)sample * classes + c];
            sum += 0.5 * d * d;
        }
    }
    double* out = (double*)row.out + 2 * place;
    out[0] = sum;
    out[1] = correct;
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
// all layers with dropout, `before` of them in the layers before this one. Of an agent's batch these begin with number `first`.
extern "C" __global__ void dropout(T* x, T* mask, const Row* rows, uint32_t first, uint32_t samples, uint32_t len, Count all, Count before,
                                   uint32_t threshold, T keep) {
    uint32_t i = INDEX, sample = first + i / len, chunk = sample / 64;
    if (i >= samples * len) return;
    Count agent = blockIdx.z, total = rows[agent].total;
    if (sample >= total) {
        mask[agent * samples * len + i] = T(0);
        return;
    }
    Count in_chunk = total - chunk * 64 < 64 ? total - chunk * 64 : 64;
    Count word = chunk * 64 * all + in_chunk * before + (Count)(sample - chunk * 64) * len + i % len;
    uint64_t key[4] = {rows[agent].seed, 7, rows[agent].agent, rows[agent].step};
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
extern "C" __global__ void normalise(const T* x, const Row* rows, T* y, T* moments, uint32_t pixels, uint32_t channels, uint32_t groups,
                                     uint32_t by_number, uint32_t samples, Count offset) {
    Count sample = (Count)blockIdx.z * samples + blockIdx.x, len = (Count)pixels * channels;
    uint32_t each = channels / groups, count = pixels * each, scales = by_number ? len : channels;
    const T *in = x + sample * len, *scale = rows[blockIdx.z].x + offset, *shift = scale + scales;
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
extern "C" __global__ void norm_back(const T* x, const T* delta, const Row* rows, const T* moments, T* to, uint32_t pixels,
                                     uint32_t channels, uint32_t groups, uint32_t by_number, uint32_t samples, Count offset) {
    Count sample = (Count)blockIdx.z * samples + blockIdx.x, len = (Count)pixels * channels;
    uint32_t each = channels / groups, count = pixels * each;
    const T *in = x + sample * len, *from = delta + sample * len, *scale = rows[blockIdx.z].x + offset;
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
