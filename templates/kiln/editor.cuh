// Declarations of what nvcc and NVRTC have built in. They are for clang and clangd alone.
//
// With them an editor reads the templates without a CUDA toolkit, and without a clang that knows the newest
// archs. templates/.clangd includes this file before each file; no kernel includes it.
#ifndef KILN_EDITOR_CUH  // no #pragma once: in an editor that shows this file, it is the main file as well
#define KILN_EDITOR_CUH
#if defined(__clang__) && defined(__CUDA__) && !defined(__CUDACC_RTC__)

#undef __CUDA_ARCH__
#define __CUDA_ARCH__ 900  // an editor shows the paths of sm_90; their PTX is only text to a syntax check
#define __CUDACC__ 1

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

extern const __device__ uint3 threadIdx, blockIdx;
extern const __device__ dim3 blockDim, gridDim;
extern const __device__ int warpSize;

#define KILN_EDITOR_OF(type, name, ...) extern "C" __device__ type name(__VA_ARGS__)

KILN_EDITOR_OF(void, __syncthreads);
KILN_EDITOR_OF(void, __syncwarp, unsigned = 0xffffffffu);
KILN_EDITOR_OF(int, __syncthreads_or, int);
KILN_EDITOR_OF(int, __syncthreads_and, int);
KILN_EDITOR_OF(int, __syncthreads_count, int);
KILN_EDITOR_OF(void, __threadfence);
KILN_EDITOR_OF(void, __threadfence_block);
KILN_EDITOR_OF(unsigned, __activemask);
KILN_EDITOR_OF(unsigned, __ballot_sync, unsigned, int);
KILN_EDITOR_OF(int, __any_sync, unsigned, int);
KILN_EDITOR_OF(int, __all_sync, unsigned, int);

KILN_EDITOR_OF(unsigned, __reduce_max_sync, unsigned, unsigned);
KILN_EDITOR_OF(int, __reduce_add_sync, unsigned, int);

template <typename T>
__device__ unsigned __match_any_sync(unsigned mask, T v);
template <typename T>
__device__ T __shfl_sync(unsigned mask, T v, int lane, int width = 32);
template <typename T>
__device__ T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32);
template <typename T>
__device__ T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32);
template <typename T>
__device__ T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32);

KILN_EDITOR_OF(float, __uint_as_float, unsigned);
KILN_EDITOR_OF(unsigned, __float_as_uint, float);
KILN_EDITOR_OF(float, __int_as_float, int);
KILN_EDITOR_OF(int, __float_as_int, float);
KILN_EDITOR_OF(double, __longlong_as_double, long long);
KILN_EDITOR_OF(long long, __double_as_longlong, double);
KILN_EDITOR_OF(int, __float2int_rn, float);
KILN_EDITOR_OF(unsigned, __float2uint_rn, float);
KILN_EDITOR_OF(long long, __float2ll_rn, float);
KILN_EDITOR_OF(unsigned long long, __float2ull_rn, float);
KILN_EDITOR_OF(unsigned long long, __double2ull_rn, double);
KILN_EDITOR_OF(int, __float2int_rz, float);
KILN_EDITOR_OF(float, __fdividef, float, float);
KILN_EDITOR_OF(float, __expf, float);
KILN_EDITOR_OF(float, __logf, float);
KILN_EDITOR_OF(float, __frcp_rn, float);
KILN_EDITOR_OF(float, __fsqrt_rn, float);
KILN_EDITOR_OF(unsigned, __byte_perm, unsigned, unsigned, unsigned);
KILN_EDITOR_OF(unsigned, __brev, unsigned);
KILN_EDITOR_OF(unsigned, __funnelshift_r, unsigned, unsigned, unsigned);
KILN_EDITOR_OF(int, __popc, unsigned);
KILN_EDITOR_OF(int, __clz, int);
KILN_EDITOR_OF(int, __ffs, int);
KILN_EDITOR_OF(unsigned, __umulhi, unsigned, unsigned);
KILN_EDITOR_OF(unsigned long long, __umul64hi, unsigned long long, unsigned long long);
KILN_EDITOR_OF(decltype(sizeof 0), __cvta_generic_to_shared, const void*);
KILN_EDITOR_OF(decltype(sizeof 0), __cvta_generic_to_global, const void*);

KILN_EDITOR_OF(void, sincosf, float, float*, float*);
KILN_EDITOR_OF(void, sincospif, float, float*, float*);

#define KILN_EDITOR_FLOATS(name)         \
  KILN_EDITOR_OF(float, name##f, float); \
  KILN_EDITOR_OF(double, name, double)
KILN_EDITOR_FLOATS(exp);
KILN_EDITOR_FLOATS(exp2);
KILN_EDITOR_FLOATS(log);
KILN_EDITOR_FLOATS(log2);
KILN_EDITOR_FLOATS(log1p);
KILN_EDITOR_FLOATS(sqrt);
KILN_EDITOR_FLOATS(rsqrt);
KILN_EDITOR_FLOATS(sin);
KILN_EDITOR_FLOATS(cos);
KILN_EDITOR_FLOATS(sinpi);
KILN_EDITOR_FLOATS(cospi);
KILN_EDITOR_FLOATS(tanh);
KILN_EDITOR_FLOATS(erf);
KILN_EDITOR_FLOATS(fabs);
KILN_EDITOR_FLOATS(floor);
KILN_EDITOR_FLOATS(ceil);
KILN_EDITOR_FLOATS(rint);
KILN_EDITOR_OF(float, fmaxf, float, float);
KILN_EDITOR_OF(float, fminf, float, float);
KILN_EDITOR_OF(float, fmaf, float, float, float);
KILN_EDITOR_OF(float, powf, float, float);
KILN_EDITOR_OF(double, fmax, double, double);
KILN_EDITOR_OF(double, fmin, double, double);
KILN_EDITOR_OF(double, fma, double, double, double);
KILN_EDITOR_OF(double, pow, double, double);
KILN_EDITOR_OF(double, ldexp, double, int);
KILN_EDITOR_OF(float, ldexpf, float, int);
#undef KILN_EDITOR_FLOATS
#undef KILN_EDITOR_OF

#define KILN_EDITOR_PAIR(type)                                                     \
  __host__ __device__ constexpr type min(type a, type b) { return b < a ? b : a; } \
  __host__ __device__ constexpr type max(type a, type b) { return a < b ? b : a; }
KILN_EDITOR_PAIR(int)
KILN_EDITOR_PAIR(unsigned)
KILN_EDITOR_PAIR(long)
KILN_EDITOR_PAIR(unsigned long)
KILN_EDITOR_PAIR(long long)
KILN_EDITOR_PAIR(unsigned long long)
KILN_EDITOR_PAIR(float)
KILN_EDITOR_PAIR(double)
#undef KILN_EDITOR_PAIR

__host__ __device__ float4 make_float4(float x, float y, float z, float w);

template <typename T>
__device__ T atomicAdd(T* address, T value);
template <typename T>
__device__ T atomicMax(T* address, T value);
template <typename T>
__device__ T atomicMin(T* address, T value);
template <typename T>
__device__ T atomicExch(T* address, T value);
template <typename T>
__device__ T atomicCAS(T* address, T compare, T value);

__device__ bool isnan(double x);
__device__ bool isinf(double x);
__device__ bool isfinite(double x);
__device__ float exp(float x);
__device__ float log(float x);
__device__ float sqrt(float x);
__device__ float tanh(float x);
__device__ float fabs(float x);

#endif
#endif
