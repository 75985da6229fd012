// What nodes that only read asked the fleet's tier for in vain: rows of plans in a stream that anybody with
// the server's password may write, so nothing of it is believed before it is checked.
#pragma once

#include <string>
#include <vector>

#include "base/file.hpp"
#include "context.hpp"
#include "remote_tier.hpp"

namespace kiln::cli {

class MissedRows {
 public:
  /// Reads the stream. A row counts when it is one specialisation that a template of this machine has; others
  /// are left out with a warning. Throws Error(io) when the server does not answer.
  MissedRows(Context& context, remote::Tier& tier);
  bool found() const noexcept { return found_ > 0; }
  /// A record of them, for make_plan.
  std::string file() const { return directory_.path() + "/missed"; }
  /// They are compiled: leaves only what came meanwhile.
  void forget();

 private:
  remote::Tier& tier_;
  const base::TempDir directory_;
  std::vector<std::string> ids_;
  std::size_t found_ = 0;
};

}  // namespace kiln::cli
