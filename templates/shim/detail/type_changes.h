// Traits that make a type from a type: they change references, const, pointers and arrays, or decay the type.
#pragma once
#include "type_relations.h"

namespace std {

template <class T>
struct type_identity {
  using type = T;
};
template <class T>
using type_identity_t = T;

// Defines the trait NAME and its alias. For a type that matches PATTERN, the trait gives the T in PATTERN.
// For any other type, it gives the type itself.
#define KILN_STRIP(name, parameters, pattern) \
  template <class T>                          \
  struct name {                               \
    using type = T;                           \
  };                                          \
  template <parameters>                       \
  struct name<pattern> {                      \
    using type = T;                           \
  };                                          \
  template <class T>                          \
  using name##_t = typename name<T>::type;

KILN_STRIP(remove_const, class T, const T)
KILN_STRIP(remove_volatile, class T, volatile T)
KILN_STRIP(remove_reference, class T, T&)
KILN_STRIP(remove_extent, class T, T[])
KILN_STRIP(remove_pointer, class T, T*)
#undef KILN_STRIP

template <class T>
struct remove_reference<T&&> {
  using type = T;
};
template <class T, size_t n>
struct remove_extent<T[n]> {
  using type = T;
};
template <class T>
struct remove_pointer<T* const> {
  using type = T;
};
template <class T>
struct remove_pointer<T* volatile> {
  using type = T;
};
template <class T>
struct remove_pointer<T* const volatile> {
  using type = T;
};

template <class T>
struct remove_all_extents {
  using type = T;
};
template <class T>
struct remove_all_extents<T[]> : remove_all_extents<T> {};
template <class T, size_t n>
struct remove_all_extents<T[n]> : remove_all_extents<T> {};
template <class T>
using remove_all_extents_t = typename remove_all_extents<T>::type;

template <class T>
struct remove_cv {
  using type = remove_const_t<remove_volatile_t<T>>;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
struct remove_cvref {
  using type = remove_cv_t<remove_reference_t<T>>;
};
template <class T>
using remove_cvref_t = typename remove_cvref<T>::type;

template <class T>
struct add_const {
  using type = const T;
};
template <class T>
using add_const_t = const T;
template <class T>
struct add_volatile {
  using type = volatile T;
};
template <class T>
using add_volatile_t = volatile T;
template <class T>
struct add_cv {
  using type = const volatile T;
};
template <class T>
using add_cv_t = const volatile T;

// There is no reference to void or to a function type with qualifiers, so these types stay as they are.
template <class T, class = void>
struct add_lvalue_reference {
  using type = T;
};
template <class T>
struct add_lvalue_reference<T, void_t<T&>> {
  using type = T&;
};
template <class T>
using add_lvalue_reference_t = typename add_lvalue_reference<T>::type;
template <class T, class = void>
struct add_rvalue_reference {
  using type = T;
};
template <class T>
struct add_rvalue_reference<T, void_t<T&>> {
  using type = T&&;
};
template <class T>
using add_rvalue_reference_t = typename add_rvalue_reference<T>::type;
template <class T, class = void>
struct add_pointer {
  using type = T;
};
template <class T>
struct add_pointer<T, void_t<remove_reference_t<T>*>> {
  using type = remove_reference_t<T>*;
};
template <class T>
using add_pointer_t = typename add_pointer<T>::type;

template <class T>
struct decay {
  using type = __decay(T);
};
template <class T>
using decay_t = typename decay<T>::type;

template <class T>
struct underlying_type {
  using type = __underlying_type(T);
};
template <class T>
using underlying_type_t = typename underlying_type<T>::type;

template <class T>
__host__ __device__ add_rvalue_reference_t<T> declval() noexcept;

}  // namespace std
