// What names mean while an expression is compiled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

/// Names in layers: a name that this layer does not declare means what the layer below says. A context that
/// knows a few names more than another one is a layer of those few names.
struct Symbols {
  template <class Value>
  using Map = std::map<std::string, Value, std::less<>>;

  Map<int> slots;                               ///< index into the values given to Expression::evaluate()
  Map<std::int64_t> constants;                  ///< dtype names, "ACT.silu"
  Map<std::vector<std::string>> strides;        ///< argument -> stride expressions, for stride(x, i)
  std::set<std::string, std::less<>> dtypes;    ///< names of slots and constants that sizeof() takes
  std::set<std::string, std::less<>> pointers;  ///< slots that align() takes
  /// Names that exist but may not be used here -> why. They hide what the layer below says.
  Map<std::string> unavailable;
  /// Null or borrowed, as `later` is.
  const Symbols* below = nullptr;
  /// A context whose further names may not be used here, because it exists only when the kernel is launched.
  const Symbols* later = nullptr;

  /// Each is null, false or nothing for a name without that meaning.
  const int* slot(std::string_view name) const noexcept;
  const std::int64_t* constant(std::string_view name) const noexcept;
  const std::vector<std::string>* strides_of(std::string_view name) const noexcept;
  bool is_dtype(std::string_view name) const noexcept;
  bool is_pointer(std::string_view name) const noexcept;
  std::optional<std::string> why_unavailable(std::string_view name) const;

  /// Names with a slot, sorted.
  std::vector<std::string> slot_names() const;
  /// Names of constants, sorted.
  std::vector<std::string> constant_names() const;
};

}  // namespace kiln::source
