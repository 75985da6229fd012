// Probes of the cache: its directory and filesystem, and whether its locks and transactions work there.
#include "tools/kiln/doctor/cache.hpp"
#include "tools/kiln/doctor/locks.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "cache/place/directory.hpp"
#include "cache/place/filesystem.hpp"
#include "cache/store/file/pages.hpp"
#include "runtime/state/places.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/doctor/finding.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;
namespace fs = std::filesystem;

/// A directory for probes inside a candidate place for the cache. The destructor removes it, with every
/// directory that was made for it.
class Scratch {
 public:
  explicit Scratch(const std::string& place) {
    for (fs::path p = place; !p.empty() && !fs::exists(p); p = p.parent_path()) made_ = p;
    path_ = place + "/doctor-XXXXXX";
    try {
      cache::make_own(place, cache::FinalLink::followed);
      if (!::mkdtemp(path_.data()))
        throw Error(Errc::io, "'" + place + "' cannot be written: " + std::strerror(errno));
    } catch (...) {
      remove_made();
      throw;
    }
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    remove_made();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  void remove_made() const {
    std::error_code ignored;
    if (!made_.empty()) fs::remove_all(made_, ignored);
  }
  fs::path made_;  // the topmost directory that did not exist before
  std::string path_;
};

void probe_round_trip(const std::string& scratch, Findings& out) {
  const auto start = base::Clock::now();
  const auto store = cache::Store::open({.directory = scratch + "/store"});
  const Key key{base::digest_of("doctor"), base::digest_of("probe")};
  const cache::Record record{key, "facts", "key text", std::string(50000, 'x')};
  const cache::PutResult put = store->put(record);
  if (put.put != cache::Put::stored) {
    out.push_back(
        {"store", Status::error,
         "a probe record could not be stored: " + std::string(to_string(put.put)) + ' ' + put.detail,
         "free some space, or set KILN_CACHE_DIR to another filesystem"});
    return;
  }
  const auto stored = base::Clock::now();
  const cache::GetResult got =
      store->get(key, record.key_text, base::Deadline::after(std::chrono::seconds(5)));
  const auto read = base::Clock::now();
  if (!got.record || got.record->image != record.image) {
    out.push_back(
        {"store", Status::error,
         "a probe record was stored but could not be read back: " + std::string(to_string(got.miss)),
         "set KILN_CACHE_DIR to another filesystem"});
    return;
  }
  const auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
  out.push_back({"store", Status::ok,
                 "put in " + human_ms(ms(stored - start)) + ", get in " + human_ms(ms(read - stored)) +
                     " (50 KB, synced, verified)"});
}

/// Reads the store's entries and reports damage. Returns an empty list when nothing can be read.
std::vector<StoredEntry> probe_entries(const runtime::Config& config, const std::string& directory,
                                       Findings& out) {
  std::vector<StoredEntry> entries;
  std::vector<std::string> damaged;
  const std::string how = "run 'kiln verify' for details; ";
  try {
    const StoreView view = view_store(config);
    if (view.store) entries = read_entries(*view.store, &damaged);
    out.push_back(
        {"directory", Status::ok,
         directory + (view.store ? ", " + counted(entries.size(), "kernel") : ", nothing cached yet")});
    if (!damaged.empty())
      out.push_back({"entries", Status::warning,
                     counted(damaged.size(), "entry is", "entries are") + " damaged",
                     how + "a damaged entry is compiled and stored again at its next use, and 'kiln gc' "
                           "removes all of them now"});
  } catch (const cache::Damaged& damage) {
    out.push_back({"entries", Status::error, "the store's file is damaged: " + std::string(damage.what()),
                   how + "the next publish replaces the file, and 'kiln gc' does so now"});
  } catch (const Error& error) {
    out.push_back({"entries", Status::error, error.what(), how + "or set KILN_CACHE_DIR to another place"});
  }
  return entries;
}

void probe_clock(const std::vector<StoredEntry>& entries, Findings& out) {
  constexpr std::int64_t year_2024 = 1704067200, tolerance = 120;
  const std::int64_t now = std::time(nullptr);
  std::size_t future = 0;
  for (const StoredEntry& e : entries) future += e.facts.created_s > now + tolerance;
  if (now < year_2024)
    out.push_back({"clock", Status::warning, "the clock shows a time before 2024", "set the clock"});
  else if (future)
    out.push_back({"clock", Status::warning,
                   counted(future, "entry is", "entries are") +
                       " from the future: the clock of this machine, or of one that shares the cache, is "
                       "wrong",
                   "set the clock"});
  else
    out.push_back({"clock", Status::ok, "no entry is from the future"});
}

/// The first usable candidate, by the rules of runtime::open_store.
std::unique_ptr<Scratch> choose(const runtime::Config& config, std::string& directory, Findings& out) {
  const auto candidates = runtime::store_candidates(config);
  const bool no_home = candidates.front().kind == runtime::Candidate::Kind::temporary;
  for (const runtime::Candidate& candidate : candidates) {
    try {
      directory = runtime::directory_of(candidate);
      auto scratch = std::make_unique<Scratch>(directory);
      cache::check_own_store(directory);
      struct stat st {};
      if (::stat((directory + "/v1/data.mdb").c_str(), &st) == 0) {
        cache::StoreOptions options;
        options.directory = directory;
        cache::Store::open(options);
      }
      if (no_home)
        out.push_back({"directory", Status::warning,
                       "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME names an absolute directory: the "
                       "cache is in '" +
                           directory + "', which a reboot or a clean-up may empty",
                       "set KILN_CACHE_DIR"});
      if (directory != candidate.directory)
        out.push_back({"directory", Status::note,
                       "other users may write '" + candidate.directory +
                           "', so the store is in a private directory inside it"});
      return scratch;
    } catch (const Error& error) {
      out.push_back({"directory", Status::warning, std::string(error.what()) + "; this directory is not used",
                     "set KILN_CACHE_DIR to a local directory that only this user may write"});
    }
  }
  return nullptr;
}

/// Reports each layer with its number of entries, or the reason why it is not used.
void probe_layers(const runtime::Config& config, Findings& out) {
  for (const std::string& directory : base::split(config.get("cache_layers"), ':')) {
    const std::string not_used = "layer '" + directory + "' is not used: ";
    try {
      const auto layer = runtime::open_layer(directory);
      out.push_back({"layer", Status::ok,
                     directory + ", " + counted(layer->stats().entries, "entry", "entries") + ", on " +
                         cache::filesystem_of(directory).name});
    } catch (const cache::Damaged& error) {
      out.push_back({"layer", Status::warning, not_used + error.what(),
                     "write it again with 'kiln prewarm --layer', or take it out of KILN_CACHE_LAYERS"});
    } catch (const Error& error) {
      out.push_back({"layer", Status::warning, not_used + error.what(),
                     "correct that, or take the layer out of KILN_CACHE_LAYERS"});
    }
  }
}

void probe_filesystem(const std::string& directory, Findings& out) {
  const cache::Filesystem filesystem = cache::filesystem_of(directory);
  out.push_back({"filesystem", filesystem.volatile_ ? Status::note : Status::ok,
                 filesystem.name + (filesystem.volatile_ ? ", which a reboot empties" : "") + ", " +
                     human_bytes(filesystem.free_bytes) + " free"});
}

}  // namespace

bool anything_cached(const runtime::Config& config) noexcept {
  const auto holds = [](auto&& open) {
    try {
      const std::shared_ptr<cache::Store> store = open();
      return store && store->stats().entries > 0;
    } catch (const std::exception&) {  // an unreadable store serves nothing; probe_cache reports why
      return false;
    }
  };
  if (holds([&] { return view_store(config).store; })) return true;
  for (const std::string& directory : base::split(config.get("cache_layers"), ':'))
    if (holds([&] { return runtime::open_layer(directory); })) return true;
  return false;
}

void probe_cache(Context& context, Findings& out) {
  const runtime::Config& config = context.service().config();
  std::string directory;
  const auto scratch = choose(config, directory, out);
  if (!scratch) {
    out.push_back({"directory", Status::error,
                   "no directory can hold the cache, so every process compiles its kernels again",
                   "set KILN_CACHE_DIR to a writable directory"});
  } else {
    const std::vector<StoredEntry> entries = probe_entries(config, directory, out);
    probe_filesystem(directory, out);
    const auto step = [&](const char* name, auto&& probe) {
      try {
        probe();
      } catch (const std::exception& error) {
        out.push_back({name, Status::error, error.what(), "set KILN_CACHE_DIR to another filesystem"});
      }
    };
    step("store", [&] { probe_round_trip(scratch->path(), out); });
    step("gate", [&] { probe_gate(scratch->path() + "/gate", out); });
    probe_clock(entries, out);
  }
  probe_layers(config, out);
}

void probe_temporary(Findings& out) {
  try {
    const base::TempDir directory("kiln-doctor");
    base::write_file(directory.path() + "/probe", "x");
    out.push_back({"temporary", Status::ok, base::directory_of(directory.path()) + " can be written"});
  } catch (const Error& error) {
    out.push_back(
        {"temporary", Status::error, error.what(), "set TMPDIR to a writable directory: compiles run there"});
  }
}

}  // namespace kiln::cli
