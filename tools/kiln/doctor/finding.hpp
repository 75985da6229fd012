// The probes of `kiln doctor`: each does what kiln itself does, and says what it found.
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
  std::string fix{};  ///< what to do; empty when nothing is to be done
};
using Findings = std::vector<Finding>;

}  // namespace kiln::cli
