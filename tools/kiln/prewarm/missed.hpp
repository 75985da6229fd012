// Rows that read-only nodes reported for entries missing in the fleet's tier. Any client with the server's
// password may write rows, so nothing in a row is trusted before it is checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "cache/fleet/upkeep.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/plan/run.hpp"
#include "tools/kiln/store/tier/tier.hpp"

namespace kiln::cli {

class MissedRows {
 public:
  /// Reads the reported rows, up to a limit. A row counts when it is one specialisation of a template on this
  /// machine. Other rows are left out with a warning, and so are rows that cannot be read.
  MissedRows(Context& context, fleet::Tier& tier);
  bool found() const noexcept { return !ids_.empty(); }
  /// The fault that stopped the reading early; none when all rows were read.
  const FirstFault& fault() const noexcept { return fault_; }
  /// Path of a trace file with these rows, for make_plan.
  std::string file() const { return directory_.path() + "/missed"; }
  /// Call when the run's results are in the tier. Removes the rows that were made, and rows that no machine
  /// could use. Rows that failed, were not started or have no template here stay for another job.
  void forget(const PrewarmPlan& plan, const PrewarmResult& result);

 private:
  void read(Context& context, std::string& text);
  void take(Context& context, const fleet::MissedRow& row, std::string& text);

  fleet::Tier& tier_;
  const base::TempDir directory_;
  std::map<std::string, std::vector<std::string>> ids_;  ///< row ids for each specialisation
  std::vector<std::string> garbage_;                     ///< ids of rows that no machine can use
  std::uint64_t bytes_ = 0;
  std::size_t read_ = 0, left_out_ = 0;
  std::string why_;  ///< why the first row was left out
  FirstFault fault_;
};

}  // namespace kiln::cli
