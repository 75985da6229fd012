// tuple_size and tuple_element, which structured bindings look up in namespace std. CCCL declares them there
// too. Both declarations must match, whichever comes first.
// - Before version 3.2 of CCCL they have a parameter pack.
// - From 3.2 on they have one type parameter.
// - From 3.5 on CCCL defines them completely.
#pragma once
#include <cstddef>

#include "integral_constant.h"

#if __has_include(<cuda/std/__cccl/version.h>)
#include <cuda/std/__cccl/version.h>
#endif

#if defined(CCCL_VERSION) && CCCL_VERSION >= 3005000
#include <cuda/std/__tuple_dir/tuple_element.h>
#include <cuda/std/__tuple_dir/tuple_size.h>

namespace std {
#else
namespace std {

#if defined(CCCL_VERSION) && CCCL_VERSION >= 3002000
template <class>
struct tuple_size;
template <size_t i, class>
struct tuple_element;
#else
template <class...>
struct tuple_size;
template <size_t i, class...>
struct tuple_element;
#endif

// This alias exists only for a T with a tuple_size. A structured binding also asks for the size of const
// structs that have no tuple_size.
template <class T, size_t = tuple_size<T>::value>
using kiln_sized = T;
template <class T>
struct tuple_size<const kiln_sized<T>> : integral_constant<size_t, tuple_size<T>::value> {};
template <size_t i, class T>
struct tuple_element<i, const T> {
  using type = const typename tuple_element<i, T>::type;
};
#endif

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
