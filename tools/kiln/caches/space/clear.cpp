// kiln caches clear: removes blobs of one space from the writable store.
#include "tools/kiln/caches/space/clear.hpp"

#include <charconv>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/quote.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "cache/place/directory.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/caches/space/blobs.hpp"
#include "tools/kiln/caches/space/files.hpp"
#include "tools/kiln/caches/tree/listing.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/rewrite.hpp"

namespace kiln::cli {
namespace {

struct ClearArguments {
  std::string space, older_than;
  std::string compatibility;
  bool dry_run = false;
  double wait_s = 30;
};

/// "30d", "12h", "90m" or "45s" as seconds.
std::int64_t parse_age(const std::string& text) {
  const std::map<char, std::int64_t> units = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
  std::uint32_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc{} && end + 1 == last && units.contains(*end)) return number * units.at(*end);
  throw Error(Errc::invalid_argument,
              "--older-than: '" + text + "' is no age; expected a number with s, m, h, d or w, such as 30d");
}

/// Decides which blobs go.
class Choice {
 public:
  explicit Choice(const ClearArguments& arguments) : arguments_(arguments) {
    if (!arguments.older_than.empty()) used_before_ = std::time(nullptr) - parse_age(arguments.older_than);
  }
  bool takes(const StoredBlob& blob) const {
    if (!arguments_.compatibility.empty() &&
        blob.compatibility.find(arguments_.compatibility) == std::string::npos)
      return false;
    return !used_before_ || (blob.last_used_s && static_cast<std::int64_t>(blob.last_used_s) < *used_before_);
  }

 private:
  const ClearArguments& arguments_;
  std::optional<std::int64_t> used_before_;
};

using NameInSpace = std::pair<std::string, std::string>;  // compatibility, key

/// The keys of the chosen blobs of a space with their parts, and of parts that belong to no blob of the store. An
/// eviction or a killed put left such parts, or a put has not come to its end.
class GoingKeys {
 public:
  explicit GoingKeys(const std::vector<const StoredBlob*>& gone) {
    for (const StoredBlob* blob : gone) wanted_.emplace(blob->compatibility, blob->key);
  }

  std::vector<Key> list(cache::Store& store, const std::string& space) {
    const cache::KeyRange range = cache::keys_of_space(space);
    store.list(range.first, range.last, [&](const cache::Entry& entry) {
      try {
        cache::BlobFacts facts = cache::decode_blob(entry.facts);
        if (facts.space == space) add(entry.key, std::move(facts));
      } catch (const base::Malformed&) {  // of another version of kiln
      }
    });
    for (const auto& [key, facts] : parts_) {
      const auto whole = whole_.find({facts.compatibility, facts.key});
      if (whole != whole_.end() && whole->second == std::pair(facts.content, facts.part_bytes)) continue;
      keys_.push_back(key);
      swept_.insert(facts.key);
    }
    return std::move(keys_);
  }
  /// The blobs, by the keys that their makers gave, whose parts go because they have no head.
  const std::set<std::string>& swept() const noexcept { return swept_; }

 private:
  void add(const Key& key, cache::BlobFacts&& facts) {
    const NameInSpace name(facts.compatibility, facts.key);
    if (wanted_.contains(name))
      keys_.push_back(key);
    else if (facts.part != 0)
      parts_.emplace_back(key, std::move(facts));
    else if (facts.parts != 0)
      whole_.emplace(name, std::pair(facts.content, facts.part_bytes));
  }

  std::set<NameInSpace> wanted_;
  std::set<std::string> swept_;
  std::vector<Key> keys_;
  std::vector<std::pair<Key, cache::BlobFacts>> parts_;
  std::map<NameInSpace, std::pair<Digest, std::uint64_t>> whole_;
};

/// Removes blobs of spaces of one store.
class Removal {
 public:
  Removal(const runtime::Config& config, const std::string& directory, double wait_s)
      : deadline_(
            base::Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(wait_s * 1000)))) {
    cache::check_own_store(directory);
    cache::StoreOptions options;
    options.directory = directory;
    options.cap_bytes = config.cache_max_bytes();
    store_ = cache::Store::open(options);
  }

  void remove(const std::string& space, const std::vector<const StoredBlob*>& gone) {
    GoingKeys going(gone);
    const std::vector<Key> keys = going.list(*store_, space);
    if (space == kFileSpace) swept_files_.insert(going.swept().begin(), going.swept().end());
    if (store_->remove(keys, deadline_) < keys.size() && deadline_.passed())
      throw Error(Errc::io, "not everything was removed from '" + store_->directory() +
                                "', because other processes write to it; run the command again");
  }
  /// The files whose parts were removed because they had no head.
  const std::set<std::string>& swept_files() const noexcept { return swept_files_; }

 private:
  const base::Deadline deadline_;
  std::set<std::string> swept_files_;
  std::shared_ptr<cache::Store> store_;
};

/// A capture that stores its record after this process has looked at the records, and checks its files before they or
/// their parts are removed, does not notice that they go. So this process looks once more. `keys` are the files of which
/// something was removed. Throws Error(io).
void check_records(const runtime::Config& config, std::set<std::string> keys) {
  if (keys.empty()) return;
  const BlobScan scan = scan_blobs(config);
  for (const StoredBlob& blob : scan.blobs)
    if (blob.space == kFileSpace && blob.whole) keys.erase(blob.key);  // stored again
  for (const StoredBlob& blob : scan.blobs) {
    if (!is_of_directories(blob.space)) continue;
    for (const std::string& file : files_named_by({&blob}, config))
      if (keys.contains(file))
        throw Error(Errc::io, "the record " + base::quote(blob.key, 60) + " of space " + blob.space +
                                  " was captured meanwhile, and names files that this command has removed. "
                                  "A capture that still runs stores them again; otherwise capture the "
                                  "directory again");
  }
}

int clear(const Context& context, const ClearArguments& arguments) {
  const runtime::Config config = context.config();
  const Choice choice(arguments);
  const BlobScan scan = scan_blobs(config);
  const NamedBlobs named = blobs_named(scan, arguments.space);
  const std::string& space = named.space;
  std::vector<const StoredBlob*> gone;
  std::uint64_t bytes = 0, in_layers = 0, kept = 0;
  for (const StoredBlob& blob : scan.blobs) {
    if (!named.has(blob)) continue;
    if (blob.directory != scan.directory) {
      in_layers += choice.takes(blob);
      continue;
    }
    if (!choice.takes(blob)) {
      ++kept;
      continue;
    }
    gone.push_back(&blob);
    bytes += blob.stored_bytes;
  }
  std::set<std::string> going;
  if (is_of_directories(space)) going = files_named_by(gone, config);
  BlobScan rest;  // after the removal of the records
  UnnamedFiles unnamed;
  if (arguments.dry_run) {
    if (!going.empty()) unnamed = unnamed_files(config, scan, going, gone);
  } else if (!gone.empty()) {
    Removal removal(config, scan.directory, arguments.wait_s);
    removal.remove(space, gone);  // first, so that a record that is found has its files
    if (!going.empty()) {
      rest = scan_blobs(config);  // with the records that captures have stored meanwhile
      unnamed = unnamed_files(config, rest, going, {});
    }
    if (!unnamed.files.empty()) removal.remove(kFileSpace, unnamed.files);
    std::set<std::string> removed = removal.swept_files();
    for (const StoredBlob* file : unnamed.files) removed.insert(file->key);
    check_records(config, std::move(removed));
  }
  bytes += unnamed.bytes;
  if (context.json) {
    print_json({{"schema", context.schema()},
                {"directory", scan.directory},
                {"space", space},
                {"dry_run", arguments.dry_run},
                {"removed", gone.size()},
                {"removed_bytes", bytes},
                {"files", unnamed.files.size()},
                {"kept", kept},
                {"in_layers", in_layers}});
    return kDone;
  }
  print_paragraph(std::string(arguments.dry_run ? "Would remove " : "Removed ") +
                  counted(gone.size(), "blob") + " of space " + space +
                  (unnamed.files.empty() ? "" : ", and " + counted(unnamed.files.size(), "file")) + ", " +
                  human_bytes(bytes) + ", from " + scan.directory);
  if (!unnamed.unreadable.empty())
    print_paragraph("Files stay, because " + unnamed.unreadable + " cannot be read, and may name them.",
                    Style::dim);
  if (in_layers > 0)
    print_paragraph(counted(in_layers, "blob") + " of layers stay, because layers are only read.",
                    Style::dim);
  return kDone;
}

}  // namespace

void add_caches_clear(Command app, Context& context) {
  const auto arguments = std::make_shared<ClearArguments>();
  const Command sub = context.add_command(app, "clear", "Remove blobs of a space from the store",
                                          [&context, arguments] { return clear(context, *arguments); });
  sub.option("space", arguments->space, "The space; also the name of a captured directory")
      .type_name("SPACE|NAME")
      .required();
  sub.option("--compatibility", arguments->compatibility,
             "Only blobs whose compatibility has this text in it")
      .type_name("TEXT")
      .not_empty();
  sub.option("--older-than", arguments->older_than, "Only blobs whose last use is longer ago, such as 30d")
      .type_name("AGE")
      .not_empty();
  sub.flag("-n,--dry-run", arguments->dry_run, "Remove nothing; only count what would be removed");
  add_wait_flag(sub, arguments->wait_s);
  sub.footer(
      "Safe beside running engines: a blob that is gone is a miss, and its compiler makes it again.\n"
      "Layers are not changed. The last use of a blob is up to an hour old.\n"
      "A blob whose last use is not known stays when --older-than is given.\n"
      "The files of captured directories are blobs of space 'files'. With the record of a directory go the "
      "files\n"
      "that no other record names.\n"
      "Exit status: 0 done, 1 failed, 2 usage or no such space.\n"
      "Example: kiln caches clear triton --older-than 30d");
}

}  // namespace kiln::cli
