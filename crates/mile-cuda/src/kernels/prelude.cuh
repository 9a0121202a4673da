// What the kernels use of CUDA. Compiled by a C++ compiler for the CPU instead (EMULATED), a block is a loop over its
// threads, each of which runs until it waits for the others.

#ifdef EMULATED

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __restrict__

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };

static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline unsigned __float_as_uint(float a) { unsigned u; memcpy(&u, &a, 4); return u; }
inline float __uint_as_float(unsigned u) { float a; memcpy(&a, &u, 4); return a; }

// The half that is nearest to a number, and the number that a half is.
inline unsigned half_of(float a) {
    unsigned bits = __float_as_uint(a), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;
    if (size < 0x38800000u) return sign | (unsigned)lrintf(fabsf(a) * 16777216.0f);
    return sign | (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
}
inline float of_half(unsigned half) {
    unsigned size = half & 0x7fffu, sign = (half & 0x8000u) << 16;
    if (size >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size < 0x400u) return (sign ? -1.0f : 1.0f) * (float)size / 16777216.0f;
    return __uint_as_float(sign | ((size << 13) + 0x38000000u));
}

namespace emulated {

// One thread of the block that is running. It begins in a context of its own and then jumps, which unlike changing contexts
// takes no call of the system.
struct Fiber {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack;
    bool begun, done;
};

static thread_local std::vector<Fiber> fibers;
static thread_local jmp_buf scheduler;
static thread_local unsigned running;
static thread_local void (*body)(void*);
static thread_local void* body_arguments;
// Set when some threads of a block wait and others have ended.
static thread_local bool diverged;

inline void enter() {
    body(body_arguments);
    fibers[running].done = true;
    _longjmp(scheduler, 1);
}

// Waits until all threads of the block wait.
__attribute__((noinline)) inline void wait() {
    if (_setjmp(fibers[running].place) == 0) _longjmp(scheduler, 1);
}

// Runs a thread until it waits or ends.
__attribute__((noinline)) inline void resume(Fiber& fiber) {
    if (_setjmp(scheduler) != 0) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
}

inline void set_thread(unsigned t) {
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
}

// Runs one block. `backwards`: the last thread runs first, so that a result that depends on the order shows.
inline void run_block(bool waits, bool backwards) {
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    if (!waits) {
        for (unsigned k = 0; k < n; k++) {
            set_thread(backwards ? n - 1 - k : k);
            body(body_arguments);
        }
        return;
    }
    if (fibers.size() < n) fibers.resize(n);
    for (unsigned t = 0; t < n; t++) {
        Fiber& fiber = fibers[t];
        if (fiber.stack.empty()) fiber.stack.resize(1 << 16);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        fiber.begun = fiber.done = false;
        makecontext(&fiber.context, (void (*)())enter, 0);
    }
    for (unsigned left = n; left > 0;) {
        unsigned ended = 0;
        for (unsigned k = 0; k < n; k++) {
            unsigned t = backwards ? n - 1 - k : k;
            if (fibers[t].done) continue;
            running = t;
            set_thread(t);
            resume(fibers[t]);
            ended += fibers[t].done;
        }
        if (ended > 0 && ended < left) diverged = true;
        left -= ended;
    }
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_const_t<A>*)arguments[I]...);
}

template <class... A>
struct Bound {
    void (*kernel)(A...);
    void** arguments;
    static void run(void* self) {
        Bound* bound = (Bound*)self;
        call(bound->kernel, bound->arguments, std::index_sequence_for<A...>{});
    }
};

// Returns 0, or 1 if threads of a block did not all wait equally often.
template <class... A>
int launch(void (*kernel)(A...), void** arguments, const unsigned* dims, bool waits, bool backwards) {
    Bound<A...> bound = {kernel, arguments};
    gridDim = {dims[0], dims[1], dims[2]};
    blockDim = {dims[3], dims[4], dims[5]};
    body = Bound<A...>::run;
    body_arguments = &bound;
    diverged = false;
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                run_block(waits, backwards);
            }
    return diverged;
}

}  // namespace emulated

inline void __syncthreads() { emulated::wait(); }

#define __align__(n) alignas(n)
// Shared memory whose size is given at the launch.
#define SHARED_NUMBERS(name) alignas(16) static thread_local T name[232448 / sizeof(T)]

#define EXPORT_AS(name, waits)                                                                       \
    extern "C" int launch_##name(void** arguments, const unsigned* dims, int backwards) {            \
        return emulated::launch(name, arguments, dims, waits, backwards != 0);                       \
    }
// A kernel whose threads do not wait for each other.
#define EXPORT(name) EXPORT_AS(name, false)
// A kernel whose threads wait, all equally often.
#define EXPORT_WAITING(name) EXPORT_AS(name, true)

#else

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

#define SHARED_NUMBERS(name) extern __shared__ __align__(16) T name[]
#define EXPORT(name)
#define EXPORT_WAITING(name)

#endif

// Products, sums, differences, quotients and roots that are rounded one by one.
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double sub(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double quotient(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float root_of(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double root_of(double a) { return __dsqrt_rn(a); }

// Sixteen bytes of numbers.
template <class T> struct Wide;
template <> struct Wide<float> {
    float4 v;
    static constexpr int lanes = 4;
    __device__ float* at() { return &v.x; }
};
template <> struct Wide<double> {
    double2 v;
    static constexpr int lanes = 2;
    __device__ double* at() { return &v.x; }
};

typedef unsigned long long Count;

// Threads of blocks that form sums.
#define SUM_THREADS 256

// The sum of the values of all threads of a block, by halves.
__device__ double block_sum(double value) {
    __shared__ double sums[SUM_THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = SUM_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] = add(sums[threadIdx.x], sums[threadIdx.x + half]);
        __syncthreads();
    }
    return sums[0];
}
