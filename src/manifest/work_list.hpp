// Kinds of work lists, as data: what a manifest's [work_list] may say. The rooms that plan for a kind declare
// it (src/attention). The library passes all kinds to the readers of manifests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expression/expression.hpp"

namespace kiln::source {

/// Names must be literals, because a kind lives as long as the process.
struct WorkListKind {
  struct Key {
    std::string_view name;
    std::optional<std::int64_t> value{};  ///< default; nothing: the manifest must give a value
    bool may_be_left_out = false;         ///< for a run value: it exists only when the manifest gives it
    std::string_view doc{};
  };
  std::string_view name;
  std::span<const Key> kernel;      ///< properties that the kernel fixes, known before any call
  std::span<const Key> run;         ///< [work_list.run]: properties that are made of the values of a call
  std::span<const Key> run_values;  ///< [work_list.run]: values that `kiln run` takes under these names
  std::span<const std::string_view> arrays;  ///< arrays of the batch, for fill = "work_list(ARRAY)"
};
using WorkListKinds = std::span<const WorkListKind>;

/// [work_list]: how work is divided among the blocks of a launch, in a buffer that the kernel reads.
struct WorkListSpec {
  using Values = std::vector<std::pair<std::string, Expression>>;
  std::string kind;    ///< the name of a WorkListKind
  int argument = -1;   ///< index of the argument that takes the list
  int workspace = -1;  ///< index of the argument for partial results; -1: none
  /// `on`: kernels may write further lists to a buffer that holds one, beside the host, which always can.
  bool on_device = false;
  int workers = -1;      ///< index of the argument with the number of blocks of the grid
  Values kernel;         ///< all `kernel` keys of the kind, in its order
  bool has_run = false;  ///< there is a [work_list.run]: `kiln run` can make a list
  Values run;            ///< all `run` keys of the kind, in its order
  /// An expression of `kernel` or `run`. REQUIRES: the kind has that key.
  const Expression& of(std::string_view key) const;
};

}  // namespace kiln::source
