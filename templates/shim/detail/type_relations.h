// Traits that choose or relate types: conditional, enable_if, is_same, is_base_of, is_convertible,
// conjunction, disjunction and negation.
#pragma once
#include "integral_constant.h"

namespace std {

template <bool condition, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool condition, class A, class B>
using conditional_t = typename conditional<condition, A, B>::type;

template <bool condition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;

template <class...>
struct kiln_void {
  using type = void;
};
template <class... T>
using void_t = typename kiln_void<T...>::type;

template <class A, class B>
constexpr bool is_same_v = false;
template <class T>
constexpr bool is_same_v<T, T> = true;
template <class A, class B>
struct is_same : false_type {};
template <class T>
struct is_same<T, T> : true_type {};

template <class Base, class Derived>
struct is_base_of : bool_constant<__is_base_of(Base, Derived)> {};
template <class Base, class Derived>
constexpr bool is_base_of_v = __is_base_of(Base, Derived);

template <class From, class To>
struct is_convertible : bool_constant<__is_convertible_to(From, To)> {};
template <class From, class To>
constexpr bool is_convertible_v = __is_convertible_to(From, To);

// As the standard requires, a conjunction uses no member of the types that follow the first false one.
template <class...>
struct conjunction : true_type {};
template <class T>
struct conjunction<T> : T {};
template <class T, class... Rest>
struct conjunction<T, Rest...> : conditional_t<bool(T::value), conjunction<Rest...>, T> {};
template <class... T>
constexpr bool conjunction_v = conjunction<T...>::value;

template <class...>
struct disjunction : false_type {};
template <class T>
struct disjunction<T> : T {};
template <class T, class... Rest>
struct disjunction<T, Rest...> : conditional_t<bool(T::value), T, disjunction<Rest...>> {};
template <class... T>
constexpr bool disjunction_v = disjunction<T...>::value;

template <class T>
struct negation : bool_constant<!bool(T::value)> {};
template <class T>
constexpr bool negation_v = !bool(T::value);

}  // namespace std
