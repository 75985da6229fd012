// Traits that tell the kind of a type: the standard's primary and composite categories, and those properties
// that the compiler knows.
#pragma once
#include "type_changes.h"

namespace std {

// Defines a trait with one parameter T, and its _v, from a constant expression over T.
#define KILN_TRAIT(name, ...)                                     \
  template <class T>                                              \
  struct name : bool_constant<static_cast<bool>(__VA_ARGS__)> {}; \
  template <class T>                                              \
  constexpr bool name##_v = static_cast<bool>(__VA_ARGS__);

template <class T, class... List>
constexpr bool kiln_is_one_of = false;
template <class T, class First, class... Rest>
constexpr bool kiln_is_one_of<T, First, Rest...> = is_same_v<T, First> || kiln_is_one_of<T, Rest...>;

KILN_TRAIT(is_void, is_same_v<remove_cv_t<T>, void>)
KILN_TRAIT(is_null_pointer, is_same_v<remove_cv_t<T>, nullptr_t>)
KILN_TRAIT(is_floating_point, kiln_is_one_of<remove_cv_t<T>, float, double, long double>)

// Classes are specialised here, not variables, because a specialised variable is emitted into every image.
template <class T>
struct kiln_is_integer : false_type {};
#define KILN_INTEGER(T) \
  template <>           \
  struct kiln_is_integer<T> : true_type {};
KILN_INTEGER(bool)
KILN_INTEGER(char)
KILN_INTEGER(signed char)
KILN_INTEGER(unsigned char)
KILN_INTEGER(wchar_t)
KILN_INTEGER(char16_t)
KILN_INTEGER(char32_t)
KILN_INTEGER(short)
KILN_INTEGER(unsigned short)
KILN_INTEGER(int)
KILN_INTEGER(unsigned)
KILN_INTEGER(long)
KILN_INTEGER(unsigned long)
KILN_INTEGER(long long)
KILN_INTEGER(unsigned long long)
#ifdef __cpp_char8_t
KILN_INTEGER(char8_t)
#endif
#ifdef __SIZEOF_INT128__
KILN_INTEGER(__int128)
KILN_INTEGER(unsigned __int128)
#endif
#undef KILN_INTEGER
KILN_TRAIT(is_integral, kiln_is_integer<remove_cv_t<T>>::value)

template <class T>
constexpr bool kiln_is_array = false;
template <class T>
constexpr bool kiln_is_array<T[]> = true;
template <class T, size_t n>
constexpr bool kiln_is_array<T[n]> = true;
KILN_TRAIT(is_array, kiln_is_array<T>)

template <class T>
constexpr bool kiln_is_pointer = false;
template <class T>
constexpr bool kiln_is_pointer<T*> = true;
KILN_TRAIT(is_pointer, kiln_is_pointer<remove_cv_t<T>>)

template <class T>
constexpr bool is_lvalue_reference_v = false;
template <class T>
constexpr bool is_lvalue_reference_v<T&> = true;
template <class T>
struct is_lvalue_reference : bool_constant<is_lvalue_reference_v<T>> {};
template <class T>
constexpr bool is_rvalue_reference_v = false;
template <class T>
constexpr bool is_rvalue_reference_v<T&&> = true;
template <class T>
struct is_rvalue_reference : bool_constant<is_rvalue_reference_v<T>> {};
KILN_TRAIT(is_reference, is_lvalue_reference_v<T> || is_rvalue_reference_v<T>)

KILN_TRAIT(is_enum, __is_enum(T))
KILN_TRAIT(is_union, __is_union(T))
KILN_TRAIT(is_class, __is_class(T))

template <class T>
constexpr bool is_const_v = false;
template <class T>
constexpr bool is_const_v<const T> = true;
template <class T>
struct is_const : bool_constant<is_const_v<T>> {};
template <class T>
constexpr bool is_volatile_v = false;
template <class T>
constexpr bool is_volatile_v<volatile T> = true;
template <class T>
struct is_volatile : bool_constant<is_volatile_v<T>> {};

KILN_TRAIT(is_function, !is_const_v<const T> && !is_reference_v<T>)

template <class T>
constexpr bool kiln_is_member_pointer = false;
template <class T, class Class>
constexpr bool kiln_is_member_pointer<T Class::*> = true;
template <class T>
constexpr bool kiln_is_member_function = false;
template <class T, class Class>
constexpr bool kiln_is_member_function<T Class::*> = is_function_v<T>;
KILN_TRAIT(is_member_pointer, kiln_is_member_pointer<remove_cv_t<T>>)
KILN_TRAIT(is_member_function_pointer, kiln_is_member_function<remove_cv_t<T>>)
KILN_TRAIT(is_member_object_pointer, is_member_pointer_v<T> && !is_member_function_pointer_v<T>)

KILN_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
KILN_TRAIT(is_fundamental, is_arithmetic_v<T> || is_void_v<T> || is_null_pointer_v<T>)
KILN_TRAIT(is_compound, !is_fundamental_v<T>)
KILN_TRAIT(is_object, !is_function_v<T> && !is_reference_v<T> && !is_void_v<T>)
KILN_TRAIT(is_scalar, is_arithmetic_v<T> || is_enum_v<T> || is_pointer_v<T> || is_member_pointer_v<T> ||
                          is_null_pointer_v<T>)

template <class T, bool arithmetic = is_arithmetic_v<T>>
constexpr bool kiln_is_signed = false;
template <class T>
constexpr bool kiln_is_signed<T, true> = static_cast<remove_cv_t<T>>(-1) < static_cast<remove_cv_t<T>>(0);
KILN_TRAIT(is_signed, kiln_is_signed<T>)
KILN_TRAIT(is_unsigned, is_arithmetic_v<T> && !kiln_is_signed<T>)

KILN_TRAIT(is_trivial, __is_trivial(T))
KILN_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
KILN_TRAIT(is_standard_layout, __is_standard_layout(T))
KILN_TRAIT(is_pod, __is_pod(T))
KILN_TRAIT(is_literal_type, __is_literal_type(T))
KILN_TRAIT(is_empty, __is_empty(T))
KILN_TRAIT(is_polymorphic, __is_polymorphic(T))
KILN_TRAIT(is_abstract, __is_abstract(T))
KILN_TRAIT(is_final, __is_final(T))
KILN_TRAIT(is_aggregate, __is_aggregate(remove_cv_t<T>))
KILN_TRAIT(has_virtual_destructor, __has_virtual_destructor(T))
KILN_TRAIT(has_unique_object_representations,
           __has_unique_object_representations(remove_cv_t<remove_all_extents_t<T>>))

template <class T>
constexpr bool is_bounded_array_v = false;
template <class T, size_t n>
constexpr bool is_bounded_array_v<T[n]> = true;
template <class T>
struct is_bounded_array : bool_constant<is_bounded_array_v<T>> {};
KILN_TRAIT(is_unbounded_array, is_array_v<T> && !is_bounded_array_v<T>)

template <class T>
struct alignment_of : integral_constant<size_t, alignof(T)> {};
template <class T>
constexpr size_t alignment_of_v = alignof(T);

template <class T>
constexpr size_t rank_v = 0;
template <class T>
constexpr size_t rank_v<T[]> = rank_v<T> + 1;
template <class T, size_t n>
constexpr size_t rank_v<T[n]> = rank_v<T> + 1;
template <class T>
struct rank : integral_constant<size_t, rank_v<T>> {};

template <class T, unsigned dimension = 0>
constexpr size_t extent_v = 0;
template <class T, unsigned dimension>
constexpr size_t extent_v<T[], dimension> = dimension == 0 ? 0 : extent_v<T, dimension - 1>;
template <class T, size_t n>
constexpr size_t extent_v<T[n], 0> = n;
template <class T>
constexpr size_t extent_v<T[], 0> = 0;
template <class T, size_t n, unsigned dimension>
constexpr size_t extent_v<T[n], dimension> = extent_v<T, dimension - 1>;
template <class T, unsigned dimension = 0>
struct extent : integral_constant<size_t, extent_v<T, dimension>> {};

}  // namespace std
