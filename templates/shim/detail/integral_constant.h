// integral_constant, which is the base of every trait.
#pragma once

namespace std {

template <class T, T v>
struct integral_constant {
  static constexpr T value = v;
  using value_type = T;
  using type = integral_constant;
  __host__ __device__ constexpr operator T() const noexcept { return v; }
  __host__ __device__ constexpr T operator()() const noexcept { return v; }
};

template <bool b>
using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

}  // namespace std
