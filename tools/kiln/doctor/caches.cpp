#include "tools/kiln/doctor/caches.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "cache/store/file/pages.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/python_start.hpp"
#include "tools/kiln/store/spaces.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;

constexpr const char* kName = "caches";
constexpr const char *kManager = "kiln.caches.triton:CacheManager",
                     *kRemoteManager = "triton.runtime.cache:RemoteCacheManager",
                     *kRemoteBackend = "kiln.caches.triton:RemoteCacheBackend";

std::string set_to(const char* variable) {
  return std::string(variable) + " = " + base::quote(base::environment(variable));
}

/// The caches that KILN_CACHES switches on.
struct Wanted {
  bool any = false, triton = false;
};

Wanted probe_switch(Findings& out) {
  Wanted wanted;
  for (const std::string& part : base::split(base::environment("KILN_CACHES"), ',')) {
    std::string word = part;
    std::erase(word, ' ');
    if (word.empty() || word == "off") continue;
    if (word != "on" && word != "triton" && word != "inductor") {
      out.push_back({kName, Status::warning,
                     set_to("KILN_CACHES") + " has the word " + base::quote(word) +
                         ", so Python programs use none of kiln's caches",
                     "set it to on, off, or a list of triton and inductor"});
      return {};
    }
    wanted.any = true;
    wanted.triton = wanted.triton || word != "inductor";
  }
  return wanted;
}

/// Python runs the first sitecustomize.py that it finds, and no other one.
void probe_start(Findings& out) {
  const std::string installed = start_directory();
  const std::string start = installed.empty() ? "the directory share/kiln/python-start of kiln's installation"
                                              : "'" + installed + "'";
  std::string first;
  for (const std::string& entry : base::split(base::environment("PYTHONPATH"), ':')) {
    const std::string directory = entry.empty() ? "." : entry;
    if (has_kiln_start(directory)) {
      if (first.empty()) return;
      out.push_back({kName, Status::warning,
                     "'" + first +
                         "/sitecustomize.py' comes before kiln's in PYTHONPATH, so Python runs only "
                         "that one, and KILN_CACHES has no effect",
                     "put " + start + " first in PYTHONPATH; kiln's file runs the other one, too"});
      return;
    }
    if (first.empty() && ::access((directory + "/sitecustomize.py").c_str(), R_OK) == 0) first = directory;
  }
  out.push_back(
      {kName, Status::warning,
       set_to("KILN_CACHES") +
           ", but no directory of PYTHONPATH has kiln's sitecustomize.py: Python programs use kiln's "
           "caches only where their code says so",
       "put " + start + " on PYTHONPATH, or start the program with 'kiln wrap -- COMMAND'"});
}

void probe_triton(bool wanted, Findings& out) {
  const std::string manager(base::environment("TRITON_CACHE_MANAGER"));
  if (manager.empty() || manager == kManager) return;
  if (manager == kRemoteManager) {
    const std::string backend(base::environment("TRITON_REMOTE_CACHE_BACKEND"));
    if (wanted && backend != kRemoteBackend && backend != "kiln.caches.triton:Backend")
      out.push_back({kName, Status::warning,
                     set_to("TRITON_REMOTE_CACHE_BACKEND") + ", so Triton's kernels are not kept by kiln",
                     std::string("set it to ") + kRemoteBackend});
    return;
  }
  if (manager.starts_with("kiln.")) {
    out.push_back({kName, Status::warning,
                   set_to("TRITON_CACHE_MANAGER") + " names no cache manager of kiln, so Triton fails",
                   std::string("set it to ") + kManager});
    return;
  }
  if (wanted)
    out.push_back(
        {kName, Status::warning,
         set_to("TRITON_CACHE_MANAGER") +
             " is set already, and KILN_CACHES leaves it as it is: Triton's kernels are not kept by "
             "kiln",
         std::string("unset it, or set it to ") + kManager});
}

void probe_wait(Findings& out) {
  const std::string text(base::environment("KILN_CACHES_WAIT"));
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = error == std::errc{} && end == text.data() + text.size() && !std::isnan(seconds);
  if (text.empty() || (is_number && seconds >= 0)) return;
  out.push_back({kName, Status::warning,
                 set_to("KILN_CACHES_WAIT") + (is_number ? " is negative" : " is no number of seconds") +
                     ", so every compile of Triton fails",
                 "set it to a number of seconds, or unset it: then it is 120"});
}

void probe_sealed(Findings& out) {
  const std::string text(base::environment("KILN_CACHES_SEALED"));
  if (text.empty() || text == "count" || text == "refuse") return;
  out.push_back(
      {kName, Status::warning,
       set_to("KILN_CACHES_SEALED") + " is neither count nor refuse, so every compile of Triton fails",
       "set it to one of them, or unset it: then it is count"});
}

void probe_report(Findings& out) {
  const std::string directory(base::environment("KILN_CACHES_REPORT"));
  if (directory.empty() || ::access(directory.c_str(), W_OK | X_OK) == 0) return;
  out.push_back({kName, Status::warning,
                 set_to("KILN_CACHES_REPORT") + " is no directory that can be written, so no process reports",
                 "make the directory, or unset it; 'kiln wrap' sets it by itself"});
}

/// Reports one space.
class SpaceProbe {
 public:
  SpaceProbe(const SpaceView& space, Findings& out) : space_(space), out_(out) {}

  void run(std::uint64_t budget) {
    const std::size_t before = out_.size();
    probe_budget(budget);
    say("sealed_misses", "lookup", "after the seal found nothing",
        "make these blobs before the seal, or ship them: 'kiln bundle export --all-jits'; the log of the "
        "program "
        "names them");
    say("puts_skipped", "blob", "could not be stored",
        "free some space or raise KILN_CACHE_MAX_SIZE; the log of the program has the reason");
    say("damaged", "record", "failed its checks and was a miss", "run 'kiln verify'");
    say("wait_timeouts", "caller", "waited for another process and then made the blob alone",
        "see 'kiln top' for the process that makes it; KILN_CACHES_WAIT is the limit of the caches");
    if (out_.size() == before)
      add(Status::ok, counted(space_.blobs, "blob") + ", " + human_bytes(space_.stored_bytes) + "; " +
                          counted(space_.counts.at("hits"), "hit") + ", " +
                          counted(space_.counts.at("misses"), "miss", "misses"));
  }

 private:
  void add(Status status, const std::string& text, const std::string& fix = {}) {
    out_.push_back({kName, status, "space " + space_.space + ": " + text, fix});
  }
  void say(const char* counter, const char* one, const char* what, const char* fix) {
    if (const std::uint64_t count = space_.counts.at(counter))
      add(Status::note, counted(count, one) + ' ' + what + ", since the store was made", fix);
  }
  /// The store does not record a budget that a program gave, so only the budget of the configuration is known here.
  void probe_budget(std::uint64_t budget) {
    const std::string has = "its blobs have " + human_bytes(space_.stored_bytes);
    const std::string least = "the least recently used ones";
    const std::string of_default = human_bytes(budget) + " that a space has without a budget of its own";
    const std::string unknown = "The store does not record a budget that a program gave to kiln.Blobs. ";
    const std::string clear = "run 'kiln caches clear " + space_.space + " --older-than 30d'";
    const std::uint64_t evictions = space_.counts.at("evictions");
    if (space_.stored_bytes > budget)
      return add(
          Status::warning,
          has + ", more than the " + of_default + ": a program without one deletes " + least +
              " at its next put",
          unknown + "If every program gives one, this is right; else raise KILN_CACHE_MAX_SIZE, or " + clear);
    if (evictions == 0) return;
    const std::string gone = ", and " + counted(evictions, "record") + " had to go since the store was made";
    if (space_.stored_bytes > budget / 10 * 9)
      return add(Status::note, has + " of the " + of_default + gone,
                 "raise KILN_CACHE_MAX_SIZE, or " + clear);
    add(Status::note,
        has + " of the " + of_default + gone + ": the store was full, or a program gave a smaller budget",
        unknown + "Raise that budget, or KILN_CACHE_MAX_SIZE if the store was full");
  }

  const SpaceView& space_;
  Findings& out_;
};

}  // namespace

void probe_cache_settings(Findings& out) {
  const std::size_t before = out.size();
  const Wanted wanted = probe_switch(out);
  if (wanted.any) probe_start(out);
  probe_triton(wanted.triton, out);
  probe_wait(out);
  probe_sealed(out);
  probe_report(out);
  if (wanted.any && out.size() == before)
    out.push_back(
        {kName, Status::ok, set_to("KILN_CACHES") + ": Python programs keep what they compile in kiln"});
}

void probe_spaces(const runtime::Config& config, Findings& out) try {
  const StoreView view = view_store(config);
  const std::uint64_t budget = std::max(config.cache_max_bytes(), cache::kSmallestCap) / 2;
  for (const SpaceView& space : spaces_of(view.store.get(), view.directory))
    SpaceProbe(space, out).run(budget);
} catch (const cache::Damaged&) {  // the probe of the cache reports it
}

}  // namespace kiln::cli
