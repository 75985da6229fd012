// The metrics of kiln stats --prometheus.
#include "tools/kiln/stats/metrics.hpp"

#include <cstdint>

#include "kiln/kiln.h"

#include "cache/flight/activity.hpp"
#include "runtime/state/lifetime.hpp"
#include "tools/kiln/stats/exposition.hpp"
#include "tools/kiln/stats/report.hpp"

namespace kiln::cli {
namespace {

using Type = Exposition::Type;

/// A counter of the store's tally as a metric. The counters of a group share one metric and differ
/// in a label.
struct Metric {
  const char* group;  ///< as in runtime::lifetime_counters
  const char* name;   ///< as there; null: the whole group
  const char* metric;
  const char* label;  ///< label name that tells a group's counters apart
  const char* help;
  bool microseconds = false;
};

constexpr Metric kMetrics[] = {
    {"hits", nullptr, "kiln_cache_hits_total", "level", "Kernels that were served without compiling."},
    {"misses", nullptr, "kiln_cache_misses_total", "reason", "Kernels that no store could serve, by reason."},
    {"", "compiles", "kiln_compiles_total", nullptr, "Kernels that were compiled."},
    {"", "compile_failures", "kiln_compile_failures_total", nullptr, "Compiles that failed."},
    {"", "remembered_failures", "kiln_remembered_failures_total", nullptr,
     "Requests that were refused with the error of an earlier compile, without compiling."},
    {"", "compile_us", "kiln_compile_seconds_total", nullptr, "Seconds spent in compilers.", true},
    {"", "saved_us", "kiln_compile_seconds_saved_total", nullptr,
     "Seconds of compile time saved by stored records and by compiles of other callers.", true},
    {"", "waits", "kiln_waits_total", nullptr,
     "Calls that waited for the compile of another caller, whether it succeeded or not."},
    {"puts", nullptr, "kiln_puts_total", "result",
     "Records handed to the store, by result; only stored and present ones are in the store."},
    {"", "sealed_misses", "kiln_sealed_misses_total", nullptr,
     "Requests for kernels that were refused because of a seal."},
    {"", "loads", "kiln_kernel_loads_total", nullptr, "Kernels loaded into a CUDA context."},
    {"", "evictions", "kiln_evictions_total", nullptr, "Entries that were removed to make room for others."},
    {"", "convoy_left", "kiln_convoys_left_total", nullptr,
     "Compiles that ran without the host's lock because two of its holders had left no record."},
    {"", "flight_timeouts", "kiln_flight_timeouts_total", nullptr,
     "Compiles that ran without the host's lock because its holder passed the compile deadline."},
    {"remote_misses", nullptr, "kiln_remote_misses_total", "reason",
     "Kernels that the fleet's tier was asked for and did not serve, by reason."},
    {"remote_rejected", nullptr, "kiln_remote_rejected_total", "reason",
     "Entries of the fleet's tier that were rejected, by reason."},
    {"remote_puts", nullptr, "kiln_remote_puts_total", "result",
     "Entries handed to the fleet's tier, by result."},
    {"remote", "leases", "kiln_remote_leases_total", nullptr,
     "Leases that were taken: each lets one node compile for the whole fleet."},
    {"remote", "waits", "kiln_remote_waits_total", nullptr,
     "Waits for kernels that another node was compiling."},
    {"remote", "takeovers", "kiln_remote_takeovers_total", nullptr,
     "Waits for another node whose lease ended without an entry, so that the kernel was compiled here."},
    {"remote", "wait_timeouts", "kiln_remote_wait_timeouts_total", nullptr,
     "Waits for another node that took too long, so that the kernel was compiled here."},
    {"remote", "leases_lost", "kiln_remote_leases_lost_total", nullptr,
     "Leases that ended before their compile did."},
    {"remote", "reported", "kiln_remote_reported_total", nullptr,
     "Missed kernels that were reported to the tier's prewarm job."},
    {"", "fallbacks", "kiln_fallbacks_total", nullptr,
     "Kernels whose fallback was served while they were compiled."},
    {"", "adopted", "kiln_fallbacks_adopted_total", nullptr,
     "Fallbacks that were replaced by the requested kernel."},
};

void add_counters(Exposition& out, const std::vector<std::uint64_t>& values) {
  const auto counters = runtime::lifetime_counters();
  for (const Metric& m : kMetrics) {
    out.metric(m.metric, Type::counter, m.help);
    for (std::size_t i = 0; i < counters.size(); ++i) {
      if (std::string_view(counters[i].group) != m.group) continue;
      if (m.name && std::string_view(counters[i].name) != m.name) continue;
      const Exposition::Labels labels =
          m.label ? Exposition::Labels{{m.label, counters[i].name}} : Exposition::Labels{};
      if (m.microseconds)
        out.sample(labels, static_cast<double>(values[i]) / 1e6);
      else
        out.sample(labels, values[i]);
    }
  }
}

void add_store(Exposition& out, const StatsReport& report) {
  out.metric("kiln_store_bytes", Type::gauge,
             "Bytes of the store: of live entries, of its file, and of its cap.");
  out.sample({{"kind", "live"}}, report.store.live_bytes);
  out.sample({{"kind", "file"}}, report.store.file_bytes);
  out.sample({{"kind", "cap"}}, report.store.cap_bytes);
  out.metric("kiln_store_entries", Type::gauge, "Entries in the store.");
  for (const auto& [name, archs] : report.entries)
    for (const auto& [arch, sum] : archs) out.sample({{"template", name}, {"arch", arch}}, sum.entries);
  out.metric("kiln_store_damaged_entries", Type::gauge, "Entries in the store that cannot be served.");
  out.sample({}, static_cast<std::uint64_t>(report.damaged.size()));
  out.metric("kiln_store_info", Type::gauge,
             "Directory of the store and version of kiln, as labels; always 1.");
  out.sample({{"directory", report.view.directory}, {"version", kiln_version()}}, std::uint64_t{1});
}

void add_activity(Exposition& out, const cache::Activity& now) {
  std::uint64_t compiling = 0, left_behind = 0, flights = 0, turns = 0, fleet = 0;
  for (const auto& compile : now.compiling) ++(compile.held ? compiling : left_behind);
  for (const auto& waiter : now.waiting)
    ++(waiter.wait_for == cache::WaitFor::flight ? flights
       : waiter.wait_for == cache::WaitFor::turn ? turns
                                                 : fleet);
  out.metric("kiln_compiling", Type::gauge,
             "Compiles under way on this host, including compiles that wait for their turn.");
  out.sample({}, compiling);
  out.metric("kiln_compiles_left_behind", Type::gauge,
             "Compiles whose process was killed before it stored a record.");
  out.sample({}, left_behind);
  out.metric(
      "kiln_waiting", Type::gauge,
      "Waiting callers: for another process's compile, for a turn to compile, for another node's compile.");
  out.sample({{"for", "flight"}}, flights);
  out.sample({{"for", "turn"}}, turns);
  out.sample({{"for", "fleet"}}, fleet);
  out.metric("kiln_compile_slots_used", Type::gauge, "Compile slots of this host that are in use.");
  out.sample({}, static_cast<std::uint64_t>(now.slots.size()));
}

}  // namespace

std::string exposition_of(const StatsReport& report,
                          const std::vector<std::pair<std::string, std::string>>& labels) {
  Exposition out(labels);
  add_counters(out, report.lifetime);
  add_store(out, report);
  add_activity(out, cache::look_at(report.view.directory + "/v1"));
  return out.text();
}

}  // namespace kiln::cli
