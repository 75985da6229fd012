// Traits that tell whether a type can be constructed, assigned, destroyed or called. Further traits give the
// types that arithmetic and storage need.
#pragma once
#include "type_kinds.h"

namespace std {

template <class T, class... Args>
struct is_constructible : bool_constant<__is_constructible(T, Args...)> {};
template <class T, class... Args>
constexpr bool is_constructible_v = __is_constructible(T, Args...);
template <class T, class... Args>
struct is_nothrow_constructible : bool_constant<__is_nothrow_constructible(T, Args...)> {};
template <class T, class... Args>
constexpr bool is_nothrow_constructible_v = __is_nothrow_constructible(T, Args...);
template <class T, class... Args>
struct is_trivially_constructible : bool_constant<__is_trivially_constructible(T, Args...)> {};
template <class T, class... Args>
constexpr bool is_trivially_constructible_v = __is_trivially_constructible(T, Args...);

template <class To, class From>
struct is_assignable : bool_constant<__is_assignable(To, From)> {};
template <class To, class From>
constexpr bool is_assignable_v = __is_assignable(To, From);
template <class To, class From>
struct is_nothrow_assignable : bool_constant<__is_nothrow_assignable(To, From)> {};
template <class To, class From>
constexpr bool is_nothrow_assignable_v = __is_nothrow_assignable(To, From);
template <class To, class From>
struct is_trivially_assignable : bool_constant<__is_trivially_assignable(To, From)> {};
template <class To, class From>
constexpr bool is_trivially_assignable_v = __is_trivially_assignable(To, From);

template <class T>
using kiln_copy_source = add_lvalue_reference_t<add_const_t<T>>;
template <class T>
using kiln_move_source = add_rvalue_reference_t<T>;
template <class T>
using kiln_target = add_lvalue_reference_t<T>;

// Defines is_NAME, is_nothrow_NAME and is_trivially_NAME; OPERATION is constructible or assignable.
#define KILN_OPERATION(name, operation, ...)                           \
  KILN_TRAIT(is_##name, __is_##operation(__VA_ARGS__))                 \
  KILN_TRAIT(is_nothrow_##name, __is_nothrow_##operation(__VA_ARGS__)) \
  KILN_TRAIT(is_trivially_##name, __is_trivially_##operation(__VA_ARGS__))

KILN_OPERATION(default_constructible, constructible, T)
KILN_OPERATION(copy_constructible, constructible, T, kiln_copy_source<T>)
KILN_OPERATION(move_constructible, constructible, T, kiln_move_source<T>)
KILN_OPERATION(copy_assignable, assignable, kiln_target<T>, kiln_copy_source<T>)
KILN_OPERATION(move_assignable, assignable, kiln_target<T>, kiln_move_source<T>)
KILN_TRAIT(is_destructible, __is_destructible(T))
KILN_TRAIT(is_nothrow_destructible, __is_nothrow_destructible(T))
KILN_TRAIT(is_trivially_destructible, __is_trivially_destructible(T))
#undef KILN_OPERATION
#undef KILN_TRAIT

// The integer types of one size, with and without a sign. make_signed and make_unsigned use them for integers
// and for enums.
template <size_t bytes>
struct kiln_integer_of;
template <>
struct kiln_integer_of<1> {
  using with_sign = signed char;
  using without = unsigned char;
};
template <>
struct kiln_integer_of<2> {
  using with_sign = short;
  using without = unsigned short;
};
template <>
struct kiln_integer_of<4> {
  using with_sign = int;
  using without = unsigned;
};
template <>
struct kiln_integer_of<8> {
  using with_sign = long long;
  using without = unsigned long long;
};
#ifdef __SIZEOF_INT128__
template <>
struct kiln_integer_of<16> {
  using with_sign = __int128;
  using without = unsigned __int128;
};
#endif

template <class From, class To>
struct kiln_same_qualifiers {
  using with_const = conditional_t<is_const_v<From>, const To, To>;
  using type = conditional_t<is_volatile_v<From>, volatile with_const, with_const>;
};
// long and unsigned long map to each other here: long is as wide as long long, but it is another type.
template <class T>
struct make_signed {
  using plain = remove_cv_t<T>;
  using type =
      typename kiln_same_qualifiers<T, conditional_t<kiln_is_one_of<plain, long, unsigned long>, long,
                                                     typename kiln_integer_of<sizeof(T)>::with_sign>>::type;
};
template <class T>
using make_signed_t = typename make_signed<T>::type;
template <class T>
struct make_unsigned {
  using plain = remove_cv_t<T>;
  using type =
      typename kiln_same_qualifiers<T,
                                    conditional_t<kiln_is_one_of<plain, long, unsigned long>, unsigned long,
                                                  typename kiln_integer_of<sizeof(T)>::without>>::type;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;

// The default alignment is 16, as on the host, so that the host code and the device code of an engine see
// one layout of the storage.
template <size_t length, size_t align = 16>
struct aligned_storage {
  struct type {
    alignas(align) unsigned char data[length];
  };
};
template <size_t length, size_t... align>
using aligned_storage_t = typename aligned_storage<length, align...>::type;

template <class... T>
struct common_type {};
template <class T>
struct common_type<T> : common_type<T, T> {};
template <class A, class B, class = void>
struct kiln_common {};
template <class A, class B>
struct kiln_common<A, B, void_t<decltype(false ? declval<A>() : declval<B>())>> {
  using type = decay_t<decltype(false ? declval<A>() : declval<B>())>;
};
template <class A, class B>
struct common_type<A, B> : conditional_t<is_same_v<A, decay_t<A>> && is_same_v<B, decay_t<B>>,
                                         kiln_common<A, B>, common_type<decay_t<A>, decay_t<B>>> {};
template <class Void, class... T>
struct kiln_common_of_all {};
template <class A, class B, class... Rest>
struct kiln_common_of_all<void_t<typename common_type<A, B>::type>, A, B, Rest...>
    : common_type<typename common_type<A, B>::type, Rest...> {};
template <class A, class B, class C, class... Rest>
struct common_type<A, B, C, Rest...> : kiln_common_of_all<void, A, B, C, Rest...> {};
template <class... T>
using common_type_t = typename common_type<T...>::type;

// The call f(args...). Pointers to members are not supported here, because only host code calls them.
template <class Void, class F, class... Args>
struct kiln_invoke {
  static constexpr bool possible = false;
};
template <class F, class... Args>
struct kiln_invoke<void_t<decltype(declval<F>()(declval<Args>()...))>, F, Args...> {
  static constexpr bool possible = true;
  using type = decltype(declval<F>()(declval<Args>()...));
};
template <class Call, class R, bool possible = Call::possible>
struct kiln_invoke_gives : false_type {};
template <class Call, class R>
struct kiln_invoke_gives<Call, R, true>
    : bool_constant<is_void_v<R> || is_convertible_v<typename Call::type, R>> {};

template <class F, class... Args>
struct invoke_result : kiln_invoke<void, F, Args...> {};
template <class F, class... Args>
using invoke_result_t = typename invoke_result<F, Args...>::type;
template <class F, class... Args>
constexpr bool is_invocable_v = kiln_invoke<void, F, Args...>::possible;
template <class F, class... Args>
struct is_invocable : bool_constant<is_invocable_v<F, Args...>> {};
template <class R, class F, class... Args>
struct is_invocable_r : kiln_invoke_gives<kiln_invoke<void, F, Args...>, R> {};
template <class R, class F, class... Args>
constexpr bool is_invocable_r_v = is_invocable_r<R, F, Args...>::value;

#if __cplusplus >= 202002L
__host__ __device__ constexpr bool is_constant_evaluated() noexcept {
  return __builtin_is_constant_evaluated();
}
#endif

}  // namespace std
