// The part of PyTorch that device code uses: number types, tensor accessors, and macros. Sizes and layouts equal
// PyTorch's, because accessors and numbers are passed to kernels.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stddef.h>
#include <stdint.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#define C10_HOST __host__
#define C10_DEVICE __device__
#define C10_HOST_DEVICE __host__ __device__
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define C10_RESTRICT __restrict__
#define C10_UNUSED __attribute__((unused))
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_WARP_SIZE 32

#define TORCH_CHECK(...)
#define TORCH_CHECK_EQ(...)
#define TORCH_CHECK_NOT_IMPLEMENTED(...)
#define TORCH_INTERNAL_ASSERT(...)
#define TORCH_WARN(...)
#define STD_TORCH_CHECK(...)
#define AT_ASSERTM(...)
#define AT_CUDA_CHECK(...)
#define C10_CUDA_CHECK(...)
#define C10_CUDA_KERNEL_LAUNCH_CHECK()
#define CUDA_KERNEL_ASSERT(condition)
#define AT_DISPATCH_FLOATING_TYPES(...)
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(...)
#define AT_DISPATCH_FLOATING_TYPES_AND(...)
#define AT_DISPATCH_FLOATING_TYPES_AND2(...)
#define AT_DISPATCH_SWITCH(...)
#define AT_DISPATCH_CASE(...)

namespace c10 {

/// A 16-bit float with PyTorch's members, computed in float. `Native` is the type of the CUDA headers.
template <class Native>
struct alignas(2) Float16 {
  unsigned short x;

  struct from_bits_t {};
  template <class Number>
  using with_number = std::conditional_t<std::is_integral<Number>::value, Float16, Number>;
  __host__ __device__ static constexpr from_bits_t from_bits() { return from_bits_t(); }

  Float16() = default;
  __host__ __device__ constexpr Float16(unsigned short bits, from_bits_t) : x(bits) {}
  __host__ __device__ Float16(const Native& value) : x(reinterpret_cast<const unsigned short&>(value)) {}
  template <class Number, std::enable_if_t<std::is_arithmetic<Number>::value, int> = 0>
  __host__ __device__ Float16(Number value) : Float16(Native(static_cast<float>(value))) {}

  __host__ __device__ operator float() const { return static_cast<float>(native()); }
  __host__ __device__ operator Native() const { return native(); }
  __host__ __device__ Native native() const { return reinterpret_cast<const Native&>(x); }

  // Operators with each kind of number, because the CUDA headers have operators, too, and a call of either may be
  // ambiguous. A Half and an integer give a Half, a Half and a float a float, and a Half and a double a double.
#define KILN_STUB_OPERATOR(op)                                                                          \
  __host__ __device__ friend Float16 operator op(Float16 a, Float16 b) { return float(a) op float(b); } \
  template <class Number, std::enable_if_t<std::is_arithmetic<Number>::value, int> = 0>                 \
  __host__ __device__ friend with_number<Number> operator op(Float16 a, Number b) {                     \
    return with_number<Number>(a) op with_number<Number>(b);                                            \
  }                                                                                                     \
  template <class Number, std::enable_if_t<std::is_arithmetic<Number>::value, int> = 0>                 \
  __host__ __device__ friend with_number<Number> operator op(Number a, Float16 b) {                     \
    return with_number<Number>(a) op with_number<Number>(b);                                            \
  }
#define KILN_STUB_COMPARISON(op)                                                                     \
  __host__ __device__ friend bool operator op(Float16 a, Float16 b) { return float(a) op float(b); } \
  template <class Number, std::enable_if_t<std::is_arithmetic<Number>::value, int> = 0>              \
  __host__ __device__ friend bool operator op(Float16 a, Number b) {                                 \
    return float(a) op b;                                                                            \
  }                                                                                                  \
  template <class Number, std::enable_if_t<std::is_arithmetic<Number>::value, int> = 0>              \
  __host__ __device__ friend bool operator op(Number a, Float16 b) {                                 \
    return a op float(b);                                                                            \
  }
  KILN_STUB_OPERATOR(+)
  KILN_STUB_OPERATOR(-)
  KILN_STUB_OPERATOR(*)
  KILN_STUB_OPERATOR(/)
  KILN_STUB_COMPARISON(==)
  KILN_STUB_COMPARISON(!=)
  KILN_STUB_COMPARISON(<)
  KILN_STUB_COMPARISON(>)
  KILN_STUB_COMPARISON(<=)
  KILN_STUB_COMPARISON(>=)
#undef KILN_STUB_OPERATOR
#undef KILN_STUB_COMPARISON
  __host__ __device__ Float16 operator-() const { return -float(*this); }
  __host__ __device__ Float16& operator+=(Float16 other) { return *this = *this + other; }
  __host__ __device__ Float16& operator-=(Float16 other) { return *this = *this - other; }
  __host__ __device__ Float16& operator*=(Float16 other) { return *this = *this * other; }
  __host__ __device__ Float16& operator/=(Float16 other) { return *this = *this / other; }
};

using Half = Float16<__half>;
using BFloat16 = Float16<__nv_bfloat16>;

/// An 8-bit float. Device code converts it through the CUDA headers.
template <__nv_fp8_interpretation_t Format>
struct alignas(1) Float8 {
  uint8_t x;

  struct from_bits_t {};
  __host__ __device__ static constexpr from_bits_t from_bits() { return from_bits_t(); }

  Float8() = default;
  __host__ __device__ constexpr Float8(uint8_t bits, from_bits_t) : x(bits) {}
  __host__ __device__ Float8(float value) : x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, Format)) {}
  __host__ __device__ operator float() const {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, Format)));
  }
};

using Float8_e4m3fn = Float8<__NV_E4M3>;
using Float8_e5m2 = Float8<__NV_E5M2>;
struct alignas(1) Float8_e4m3fnuz {
  uint8_t x;
};
struct alignas(1) Float8_e5m2fnuz {
  uint8_t x;
};

template <class T>
struct alignas(sizeof(T) * 2) complex {
  using value_type = T;
  T real_ = T(0), imag_ = T(0);

  constexpr complex() = default;
  __host__ __device__ constexpr complex(const T& real, const T& imag = T()) : real_(real), imag_(imag) {}
  __host__ __device__ constexpr T real() const { return real_; }
  __host__ __device__ constexpr T imag() const { return imag_; }
  __host__ __device__ constexpr complex& operator+=(const complex& b) { return *this = *this + b; }
  __host__ __device__ constexpr complex& operator-=(const complex& b) { return *this = *this - b; }
  __host__ __device__ constexpr complex& operator*=(const complex& b) { return *this = *this * b; }
  __host__ __device__ friend constexpr complex operator+(const complex& a, const complex& b) {
    return {a.real_ + b.real_, a.imag_ + b.imag_};
  }
  __host__ __device__ friend constexpr complex operator-(const complex& a, const complex& b) {
    return {a.real_ - b.real_, a.imag_ - b.imag_};
  }
  __host__ __device__ friend constexpr complex operator-(const complex& a) { return {-a.real_, -a.imag_}; }
  __host__ __device__ friend constexpr complex operator*(const complex& a, const complex& b) {
    return {a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_};
  }
  __host__ __device__ friend constexpr complex operator*(const complex& a, const T& b) {
    return {a.real_ * b, a.imag_ * b};
  }
  __host__ __device__ friend constexpr complex operator*(const T& a, const complex& b) { return b * a; }
  __host__ __device__ friend constexpr complex operator/(const complex& a, const complex& b) {
    const T norm = b.real_ * b.real_ + b.imag_ * b.imag_;
    return {(a.real_ * b.real_ + a.imag_ * b.imag_) / norm, (a.imag_ * b.real_ - a.real_ * b.imag_) / norm};
  }
  __host__ __device__ friend constexpr bool operator==(const complex& a, const complex& b) {
    return a.real_ == b.real_ && a.imag_ == b.imag_;
  }
};

class Device;
class Stream;
class TensorOptions;
enum class ScalarType : int8_t;

}  // namespace c10

namespace at {

using c10::BFloat16;
using c10::Float8_e4m3fn;
using c10::Float8_e5m2;
using c10::Half;
using c10::ScalarType;

/// Structs of the host that a text keeps may have such members.
class Tensor {
  void* impl_;
};

template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

/// A view of N dimensions, which operator[] of an accessor returns.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  __host__ __device__ TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  __host__ __device__ PtrType data() const { return data_; }
  __host__ __device__ Index size(Index i) const { return sizes_[i]; }
  __host__ __device__ Index stride(Index i) const { return strides_[i]; }
  __host__ __device__ decltype(auto) operator[](Index i) const {
    if constexpr (N == 1) {
      return static_cast<T&>(data_[strides_[0] * i]);
    } else {
      return TensorAccessor<T, N - 1, Traits, Index>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
  }

 protected:
  PtrType data_;
  const Index *sizes_, *strides_;
};

/// A view that is passed to a kernel by value.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  __host__ __device__ PtrType data() const { return data_; }
  __host__ __device__ Index size(Index i) const { return sizes_[i]; }
  __host__ __device__ Index stride(Index i) const { return strides_[i]; }
  __host__ __device__ decltype(auto) operator[](Index i) const {
    return TensorAccessor<T, N, Traits, Index>(data_, sizes_, strides_)[i];
  }

 protected:
  PtrType data_;
  Index sizes_[N], strides_[N];
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;

/// The type in which sums of T are made.
template <class T, bool on_device = true>
using acc_type = std::conditional_t<std::is_same<T, double>::value, double,
                                    std::conditional_t<std::is_integral<T>::value, int64_t, float>>;
template <class T>
struct OpMathType {
  using type = std::conditional_t<std::is_same<T, double>::value, double, float>;
};
template <class T>
using opmath_type = typename OpMathType<T>::type;

}  // namespace at

namespace torch {

using at::BFloat16;
using at::DefaultPtrTraits;
using at::GenericPackedTensorAccessor;
using at::Half;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
using at::RestrictPtrTraits;
using at::Tensor;
using at::TensorAccessor;

namespace headeronly {
using c10::BFloat16;
using c10::Float8_e4m3fn;
using c10::Float8_e4m3fnuz;
using c10::Float8_e5m2;
using c10::Float8_e5m2fnuz;
using c10::Half;
}  // namespace headeronly

namespace stable {
class Tensor;
}  // namespace stable

}  // namespace torch

namespace std {
template <class Native>
struct numeric_limits<c10::Float16<Native>> {
  using T = c10::Float16<Native>;
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;
  static constexpr bool is_bfloat = is_same<Native, __nv_bfloat16>::value;
  __host__ __device__ static constexpr T bits(unsigned short x) { return T(x, T::from_bits()); }
  __host__ __device__ static constexpr T min() { return bits(is_bfloat ? 0x0080 : 0x0400); }
  __host__ __device__ static constexpr T max() { return bits(is_bfloat ? 0x7f7f : 0x7bff); }
  __host__ __device__ static constexpr T lowest() { return bits(is_bfloat ? 0xff7f : 0xfbff); }
  __host__ __device__ static constexpr T infinity() { return bits(is_bfloat ? 0x7f80 : 0x7c00); }
};
}  // namespace std
