// tuple_size and tuple_element, which structured bindings look up in namespace std. Declared as the toolkit's CCCL declares them under
// NVRTC (a parameter pack): the declarations must match, whichever comes first.
#pragma once
#include <cstddef>

#include "integral_constant.h"

namespace std {

template <class...>
struct tuple_size;
template <size_t i, class...>
struct tuple_element;

template <class T>
struct tuple_size<const T> : tuple_size<T> {};
template <size_t i, class T>
struct tuple_element<i, const T> {
  using type = const typename tuple_element<i, T>::type;
};
template <class T>
constexpr size_t tuple_size_v = tuple_size<T>::value;
template <size_t i, class T>
using tuple_element_t = typename tuple_element<i, T>::type;

template <size_t i>
struct kiln_pair_member;
template <>
struct kiln_pair_member<0> {
  template <class Pair>
  __host__ __device__ static constexpr auto& of(Pair& p) noexcept {
    return p.first;
  }
};
template <>
struct kiln_pair_member<1> {
  template <class Pair>
  __host__ __device__ static constexpr auto& of(Pair& p) noexcept {
    return p.second;
  }
};

}  // namespace std
