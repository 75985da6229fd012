// The findings of `kiln doctor`. Each probe does what kiln itself does, and reports the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "toolchain/locate.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {

struct Finding {
  enum class Status { ok, note, warning, error };
  std::string name;
  Status status = Status::ok;
  std::string text;
  std::string fix{};  ///< what to do; empty when there is nothing to do
};
using Findings = std::vector<Finding>;

}  // namespace kiln::cli
