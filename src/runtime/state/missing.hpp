// The kernels that were refused because they were not ready, as a plan for prewarming.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "base/process.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/trace_text.hpp"

namespace kiln::runtime {

/// Thread-safe. A forked child starts with none.
class Missing {
 public:
  /// Adds a row to the plan and returns it. Returns "" when the row is known already, or the plan is full.
  std::string add(const source::Resolved& resolved) {
    std::string row = source::trace_row(resolved);
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    if (state.rows.size() >= kMost || !state.rows.insert(row).second) return {};
    state.text += row;
    return row;
  }
  /// The plan, in the order of the first requests; "" when nothing was missed.
  std::string plan() {
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    return state.text.empty() ? "" : std::string(source::kTraceHeader) + state.text;
  }

 private:
  static constexpr std::size_t kMost = 10'000;
  struct State {
    std::mutex mutex;  // guards what follows
    std::set<std::string> rows;
    std::string text;
  };
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
