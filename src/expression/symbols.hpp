// The meaning of names while an expression is compiled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

/// The slots of what tensors are: "dim(x, -1)". An expression of [bind] has such functions.
class TensorMeasures {
 public:
  static constexpr std::string_view kFunctions[] = {"present", "dtype", "rank", "numel", "dim", "stride"};
  virtual ~TensorMeasures() = default;
  /// The slot of `function` of the tensor of this name. `index`: its second argument. Returns why there is no
  /// such slot in `problem`, with the slot -1.
  virtual int slot(std::string_view function, std::string_view tensor, std::optional<std::int64_t> index,
                   std::string& problem) = 0;
};

/// Names in layers: a name that this layer does not declare has the meaning that the layer below gives it. A
/// context that knows a few more names than another context is a layer of those few names.
struct Symbols {
  template <class Value>
  using Map = std::map<std::string, Value, std::less<>>;

  Map<int> slots;                               ///< index into the values given to Expression::evaluate()
  Map<std::int64_t> constants;                  ///< value of a dtype name, or of a name such as "ACT.silu"
  Map<std::vector<std::string>> strides;        ///< argument -> stride expressions, for stride(x, i)
  std::set<std::string, std::less<>> dtypes;    ///< names of slots and constants that sizeof() takes
  std::set<std::string, std::less<>> pointers;  ///< slots that align() takes
  /// Names that exist but may not be used here, each with the reason. They hide the same
  /// names of the layers below.
  Map<std::string> unavailable;
  /// Gives meaning to functions of tensors; null: there are none here. Layers below do not count. Borrowed.
  TensorMeasures* tensors = nullptr;
  /// The layer below, or null. Borrowed.
  const Symbols* below = nullptr;
  /// A context whose further names may not be used here, because it exists only when the kernel is
  /// launched. Borrowed, or null.
  const Symbols* later = nullptr;

  /// Each of these functions returns null, false or nothing for a name without that meaning.
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
