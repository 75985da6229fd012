#include "tools/kiln/top/snapshot.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>

#include "cache/flight/paths.hpp"
#include "compile/pool/machine.hpp"
#include "runtime/state/lifetime.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/gate_holder.hpp"
#include "tools/kiln/store/lifetime_counters.hpp"
#include "tools/kiln/store/process_look.hpp"

namespace kiln::cli {
namespace {

using State = TopRow::State;

/// A compile that was left behind longer ago is not shown (as cache::BoardEntry::endings_without_record).
constexpr double kLeftBehindFor = 15 * 60;
constexpr std::size_t kFinishedShown = 20;
constexpr const char* kUnseen = "not visible from here (of another user, or in a container)";

/// Never below 0, because the boot clock may differ in a time namespace.
double seconds_until_now(std::int64_t boot_ms) {
  return static_cast<double>(std::max<std::int64_t>(0, cache::boot_us() / 1000 - boot_ms)) / 1000;
}

/// "4711 (engine)" in this namespace, "node7/12(ns)" in another one.
std::string process_text(const cache::ProcessIdentity& process, const ProcessLook& look) {
  if (!process.here()) return process.host + '/' + std::to_string(process.pid) + "(ns)";
  return std::to_string(process.pid) + (look.name.empty() ? "" : " (" + look.name + ')');
}

template <class Shown>
TopRow row_of(State state, const Shown& shown, const ProcessLook& look) {
  TopRow row;
  row.state = state;
  row.seconds = seconds_until_now(shown.started_ms);
  row.since_s = shown.started_unix_ms / 1000;
  row.pid = shown.pid, row.host = shown.host, row.same_namespace = shown.here();
  row.process = process_text(shown, look);
  row.subject = shown.subject;
  row.key = shown.key == Key{} ? "" : shown.key.hex();
  return row;
}

class Rows {
 public:
  explicit Rows(cache::Activity& activity) : activity_(activity) {
    for (const auto& waiter : activity_.waiting)
      if (waiter.wait_for == cache::WaitFor::turn) ++turns_[name_of_wait(waiter, waiter.subject)];
    for (const auto& compile : activity_.compiling) add(compile);
    for (const auto& waiter : activity_.waiting) add(waiter);
    add_holders();
    std::stable_sort(rows_.begin(), rows_.end(), [](const TopRow& a, const TopRow& b) {
      return a.state != b.state ? a.state < b.state : a.seconds > b.seconds;
    });
  }
  std::vector<TopRow> take() { return std::move(rows_); }

 private:
  static ProcessLook look_at(const cache::ProcessIdentity& process, std::int64_t at_ms) {
    return process.here() ? look_at_process(process.pid, at_ms) : ProcessLook{};
  }
  static std::string name_of_wait(const cache::ProcessIdentity& process, const std::string& subject) {
    return std::to_string(process.pid_namespace) + ' ' + std::to_string(process.pid) + ' ' + subject;
  }

  void add(const cache::Activity::Compile& compile) {
    const cache::BoardEntry& entry = compile.entry;
    const ProcessLook look = look_at(entry, entry.started_ms);
    const bool gone = look.state == ProcessLook::State::gone;
    if (compile.held && gone) activity_.unnamed.push_back({compile.file, cache::flight_offset(entry.key)});
    if (!compile.held || gone) {
      if (seconds_until_now(entry.started_ms) < kLeftBehindFor && entry.started_ms <= cache::boot_us() / 1000)
        rows_.push_back(row_of(State::left_behind, entry, look));
      return;
    }
    State state = look.state == ProcessLook::State::stopped ? State::stopped : State::compiling;
    // A compile is on the board as soon as its flight's lock is held. It may still wait for its compile slot.
    if (const auto turn = turns_.find(name_of_wait(entry, entry.subject));
        turn != turns_.end() && turn->second > 0) {
      --turn->second;
      state = State::queued;
    }
    subjects_[entry.key] = entry.subject;
    rows_.push_back(row_of(state, entry, look));
  }

  void add(const cache::Waiter& waiter) {
    const ProcessLook look = look_at(waiter, waiter.started_ms);
    if (waiter.wait_for == cache::WaitFor::turn) {
      // Waits of compiles on the board are already shown. Only a compile without a lock appears here.
      auto& unmatched = turns_[name_of_wait(waiter, waiter.subject)];
      if (unmatched == 0) return;
      --unmatched;
      return rows_.push_back(row_of(State::queued, waiter, look));
    }
    const bool fleet = waiter.wait_for == cache::WaitFor::remote;
    if (fleet)  // while it waits it holds the key's lock
      std::erase_if(activity_.unnamed,
                    [at = cache::flight_offset(waiter.key)](const auto& held) { return held.offset == at; });
    TopRow row = row_of(fleet ? State::fleet : State::waiting, waiter, look);
    if (row.subject.empty())
      row.subject = subjects_.contains(waiter.key) ? subjects_[waiter.key] : "key " + row.key;
    rows_.push_back(std::move(row));
  }

  void add_holders() {
    std::map<std::string, std::vector<std::int64_t>> by_file;
    for (const auto& [file, offset] : activity_.unnamed) by_file[file].push_back(offset);
    for (const auto& [file, offsets] : by_file) {
      const auto holders = lock_holders(file, offsets);
      for (const std::int64_t offset : offsets)
        add_holder(State::holding, holders.contains(offset) ? holders.at(offset) : "",
                   "a key's lock in " + file);
    }
    if (activity_.writing) {
      const std::string& file = activity_.data_file;
      const std::string holders = writers_at_gate(file);
      // A put holds the gate for milliseconds, so a holder that is gone already is not shown.
      if (holders.empty() && !cache::look_at_gate(file)) return;
      add_holder(State::writing, holders, "the store's gate, " + file);
    }
  }

  void add_holder(State state, const std::string& holder, std::string what) {
    TopRow row;
    row.state = state;
    row.process = holder.empty() ? kUnseen : holder;
    row.subject = std::move(what);
    rows_.push_back(std::move(row));
  }

  cache::Activity& activity_;
  std::map<std::string, int> turns_;  // waits for a compile slot that no compile has matched
  std::map<Key, std::string> subjects_;
  std::vector<TopRow> rows_;
};

}  // namespace

std::string_view name_of(State state) noexcept {
  static constexpr std::string_view names[] = {"compiling", "queued",      "waiting", "fleet",
                                               "stopped",   "left_behind", "holding", "writing"};
  return names[static_cast<int>(state)];
}

std::size_t TopSnapshot::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [&](const TopRow& row) { return row.state == state; }));
}

TopSeries::TopSeries(const runtime::Config& config)
    : directory_(find_store(config).directory),
      cores_(compile::Machine().cores()),
      slots_(std::max(config.jobs(), cores_)),
      began_ms_(cache::boot_us() / 1000),
      hits_before_(hits()),
      spaces_before_(space_counts(directory_)) {}

std::uint64_t TopSeries::hits() const {
  const std::vector<std::uint64_t> values = read_lifetime(directory_);
  const auto counters = runtime::lifetime_counters();
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < counters.size(); ++i)
    if (std::string_view(counters[i].group) == "hits") out += values[i];
  return out;
}

std::vector<TopSpace> TopSeries::spaces(double minutes) const {
  std::vector<TopSpace> out;
  for (auto& [name, counts] : space_counts(directory_)) {
    TopSpace space{name, counts, std::nullopt};
    if (minutes > 0) {
      const auto before = spaces_before_.find(name);
      const std::uint64_t now = counts.at("hits"),
                          then = before == spaces_before_.end() ? 0 : before->second.at("hits");
      space.hits_per_minute = now < then ? 0 : static_cast<double>(now - then) / minutes;
    }
    out.push_back(std::move(space));
  }
  return out;
}

TopSnapshot TopSeries::take() {
  cache::Activity activity = cache::look_at(directory_ + "/v1");
  TopSnapshot out;
  out.directory = directory_;
  out.taken_s = std::time(nullptr);
  out.rows = Rows(activity).take();
  const std::int64_t now_ms = cache::boot_us() / 1000;
  for (const cache::BoardEntry& entry : activity.finished) {
    if (entry.ended_ms > now_ms) continue;  // written before a reboot
    const double ago = static_cast<double>(now_ms - entry.ended_ms) / 1000;
    if (ago < 60) ++out.compiles_per_minute;
    if (out.finished.size() == kFinishedShown) continue;
    out.finished.push_back(
        {entry.subject, entry.key.hex(), process_text(entry, {}), entry.state,
         static_cast<double>(std::max<std::int64_t>(0, entry.ended_ms - entry.started_ms)) / 1000, ago});
  }
  out.slots_used = activity.slots.size();
  out.slots = slots_, out.express_slots = std::max(1, slots_ / 4), out.cores = cores_;
  out.caller_waits = activity.caller_waits;
  double load = 0;
  if (::getloadavg(&load, 1) == 1) out.load = load;
  const std::uint64_t hits_now = hits();
  const double minutes = first_ ? 0 : static_cast<double>(now_ms - began_ms_) / 60000;
  out.spaces = spaces(minutes);
  if (minutes > 0)
    out.hits_per_minute =
        hits_now < hits_before_ ? 0 : static_cast<double>(hits_now - hits_before_) / minutes;
  first_ = false;
  out.unseen = std::move(activity.unseen);
  return out;
}

Json json_of(const TopSnapshot& snapshot) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json rows = Json::array(), finished = Json::array();
  for (const TopRow& row : snapshot.rows) {
    rows.push_back({{"state", name_of(row.state)},
                    {"seconds", known(row.seconds)},
                    {"since", row.since_s ? Json(row.since_s) : Json(nullptr)},
                    {"pid", row.pid ? Json(row.pid) : Json(nullptr)},
                    {"host", row.host},
                    {"same_namespace", row.same_namespace},
                    {"process", row.process},
                    {"subject", row.subject},
                    {"key", row.key.empty() ? Json(nullptr) : Json(row.key)}});
  }
  static constexpr const char* ends[] = {"compiling", "published", "failed", "unpublished"};
  for (const TopFinished& flight : snapshot.finished) {
    finished.push_back({{"end", ends[static_cast<int>(flight.end)]},
                        {"seconds", flight.seconds},
                        {"ago", flight.ago_s},
                        {"process", flight.process},
                        {"subject", flight.subject},
                        {"key", flight.key}});
  }
  Json spaces = Json::array();
  for (const TopSpace& space : snapshot.spaces) {
    spaces.push_back({{"space", space.name}});
    add_counts(spaces.back(), space.counts);
  }
  return {{"directory", snapshot.directory},
          {"taken", snapshot.taken_s},
          {"processes", rows},
          {"finished", finished},
          {"spaces", spaces},
          {"slots",
           {{"used", snapshot.slots_used},
            {"regular", snapshot.slots},
            {"express", snapshot.express_slots},
            {"caller_waits", snapshot.caller_waits}}},
          {"cores", snapshot.cores},
          {"load", known(snapshot.load)},
          {"compiles_per_minute", snapshot.compiles_per_minute},
          {"unseen", snapshot.unseen}};
}

}  // namespace kiln::cli
