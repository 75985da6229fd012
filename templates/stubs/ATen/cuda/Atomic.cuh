// PyTorch's atomic operations. Each returns the value before it, also where PyTorch's returns nothing.
#pragma once
#include <torch/stub.h>

#include <cstring>

namespace kiln_stub {

/// Replaces *address by change(*address) in one atomic step, and returns the value before it. Elements of one or
/// two bytes are changed inside the aligned 32-bit word that holds them.
template <class T, class Change>
__device__ T atomic_change(T* address, Change change) {
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  const size_t byte = reinterpret_cast<size_t>(address) % sizeof(Word);
  Word* const word = reinterpret_cast<Word*>(reinterpret_cast<char*>(address) - byte);
  const unsigned shift = 8 * static_cast<unsigned>(byte);
  const Word mask = (~Word(0) >> (8 * (sizeof(Word) - sizeof(T)))) << shift;
  Word found = *word, expected;
  T before;
  do {
    expected = found;
    const Word bits = expected >> shift;
    std::memcpy(&before, &bits, sizeof(T));
    const T after = change(before);
    Word replacement = 0;
    std::memcpy(&replacement, &after, sizeof(T));
    found = atomicCAS(word, expected, (expected & ~mask) | (replacement << shift));
  } while (found != expected);  // the bits are compared, because a NaN is unequal to itself
  return before;
}

}  // namespace kiln_stub

// These functions are templates, so that an image has only those that its kernels call.
#define KILN_STUB_ATOMIC(T, name) \
  template <class = void>         \
  __device__ T name(T* address, T value)

KILN_STUB_ATOMIC(int32_t, gpuAtomicAdd) { return atomicAdd(address, value); }
KILN_STUB_ATOMIC(float, gpuAtomicAdd) { return atomicAdd(address, value); }
KILN_STUB_ATOMIC(double, gpuAtomicAdd) { return atomicAdd(address, value); }
KILN_STUB_ATOMIC(int64_t, gpuAtomicAdd) {
  return static_cast<int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(address), value));
}
KILN_STUB_ATOMIC(at::Half, gpuAtomicAdd) {
  return atomicAdd(reinterpret_cast<__half*>(address), value.native());
}
KILN_STUB_ATOMIC(at::BFloat16, gpuAtomicAdd) {
#if __CUDA_ARCH__ >= 800
  return atomicAdd(reinterpret_cast<__nv_bfloat16*>(address), value.native());
#else
  return kiln_stub::atomic_change(address, [=](at::BFloat16 old) { return old + value; });
#endif
}
template <class T>
__device__ void gpuAtomicAdd(c10::complex<T>* address, c10::complex<T> value) {
  gpuAtomicAdd(&address->real_, value.real_);
  gpuAtomicAdd(&address->imag_, value.imag_);
}

#define KILN_STUB_CHANGE(T, name, ...)                                                            \
  KILN_STUB_ATOMIC(T, name) {                                                                     \
    return kiln_stub::atomic_change(address, [=](T old) { return static_cast<T>(__VA_ARGS__); }); \
  }
KILN_STUB_CHANGE(bool, gpuAtomicAdd, old || value)
KILN_STUB_CHANGE(uint8_t, gpuAtomicAdd, old + value)
KILN_STUB_CHANGE(int8_t, gpuAtomicAdd, old + value)
KILN_STUB_CHANGE(int16_t, gpuAtomicAdd, old + value)

// The result is a NaN if one of the two is. A NaN in memory stays there, because its comparisons are false.
#define KILN_STUB_CHANGES(T)                                                     \
  KILN_STUB_CHANGE(T, gpuAtomicMul, old* value)                                  \
  KILN_STUB_CHANGE(T, gpuAtomicMax, value != value || old < value ? value : old) \
  KILN_STUB_CHANGE(T, gpuAtomicMin, value != value || value < old ? value : old)
KILN_STUB_CHANGES(uint8_t)
KILN_STUB_CHANGES(int8_t)
KILN_STUB_CHANGES(int16_t)
KILN_STUB_CHANGES(int32_t)
KILN_STUB_CHANGES(int64_t)
KILN_STUB_CHANGES(float)
KILN_STUB_CHANGES(double)
KILN_STUB_CHANGES(at::Half)
KILN_STUB_CHANGES(at::BFloat16)

template <class T>
__device__ void gpuAtomicAddNoReturn(T* address, T value) {
  gpuAtomicAdd(address, value);
}

// The types that CUDA's own atomicAdd lacks.
KILN_STUB_ATOMIC(bool, atomicAdd) { return gpuAtomicAdd(address, value); }
KILN_STUB_ATOMIC(uint8_t, atomicAdd) { return gpuAtomicAdd(address, value); }
KILN_STUB_ATOMIC(int8_t, atomicAdd) { return gpuAtomicAdd(address, value); }
KILN_STUB_ATOMIC(int16_t, atomicAdd) { return gpuAtomicAdd(address, value); }
KILN_STUB_ATOMIC(int64_t, atomicAdd) { return gpuAtomicAdd(address, value); }
KILN_STUB_ATOMIC(at::Half, atomicAdd) { return gpuAtomicAdd(address, value); }
KILN_STUB_ATOMIC(at::BFloat16, atomicAdd) { return gpuAtomicAdd(address, value); }
#undef KILN_STUB_CHANGES
#undef KILN_STUB_CHANGE
#undef KILN_STUB_ATOMIC
