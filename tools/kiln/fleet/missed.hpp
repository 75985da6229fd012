// What nodes that only read asked the fleet's tier for in vain: rows of plans that anybody with the server's
// password may write, so nothing of them is believed before it is checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "cache/fleet/upkeep.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/fleet/tier.hpp"
#include "tools/kiln/plan/run.hpp"

namespace kiln::cli {

class MissedRows {
 public:
  /// Reads the reported rows, of many the first ones. A row counts when it is one specialisation that a
  /// template of this machine has; others are left out with a warning, and so is what cannot be read.
  MissedRows(Context& context, fleet::Tier& tier);
  bool found() const noexcept { return !ids_.empty(); }
  /// What kept the rows from being read to their end.
  const FirstFault& fault() const noexcept { return fault_; }
  /// The trace of them, for make_plan.
  std::string file() const { return directory_.path() + "/missed"; }
  /// The run's results are in the tier: takes away the rows that were made, and what is no row to anybody.
  /// What failed, was not started, or has no template here stays for the next job, or for another one.
  void forget(const PrewarmPlan& plan, const PrewarmResult& result);

 private:
  void read(Context& context, std::string& text);
  void take(Context& context, const fleet::MissedRow& row, std::string& text);

  fleet::Tier& tier_;
  const base::TempDir directory_;
  std::map<std::string, std::vector<std::string>> ids_;  ///< of the rows of each specialisation
  std::vector<std::string> garbage_;                     ///< ids
  std::uint64_t bytes_ = 0;
  std::size_t read_ = 0, left_out_ = 0;
  std::string why_;  ///< the first was left out
  FirstFault fault_;
};

}  // namespace kiln::cli
