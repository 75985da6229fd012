#include "tools/kiln/caches/space/blobs.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "cache/blob/join.hpp"
#include "compile/key/tuned_choice.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

using Name = std::tuple<std::string, std::string, std::string>;  // space, compatibility, key

/// The blobs of one store.
class StoreScan {
 public:
  StoreScan(BlobScan& out, const std::string& space) : out_(out), space_(space) {}

  void read(cache::Store& store) {
    const cache::KeyRange range = space_.empty() ? cache::kAllKeys : cache::keys_of_space(space_);
    const cache::Listed listed =
        store.list(range.first, range.last, [this](const cache::Entry& entry) { add(entry); });
    out_.unreadable += listed.unreadable;
    for (auto& [name, found] : blobs_) {
      if (!found.head) continue;  // parts that an eviction left
      found.blob.directory = store.directory();
      found.blob.whole = parts_.has_all(*found.head);
      out_.blobs.push_back(std::move(found.blob));
    }
  }

 private:
  struct Found {
    StoredBlob blob;
    std::optional<cache::BlobFacts>
        head;  ///< of the record that names the blob; nothing when only parts were met
  };

  void add(const cache::Entry& entry) {
    if (!cache::is_blob(entry.facts)) {
      RecordSum& sum = compile::is_choice(entry.facts) ? out_.choices : out_.kernels;
      ++sum.count;
      sum.stored_bytes += entry.stored_bytes;
      return;
    }
    try {
      add(cache::decode_blob(entry.facts), entry);
    } catch (const base::Malformed&) {
      ++out_.other_version;
    }
  }

  void add(const cache::BlobFacts& facts, const cache::Entry& entry) {
    if (!space_.empty() && facts.space != space_) return;
    Found& found = blobs_[Name(facts.space, facts.compatibility, facts.key)];
    StoredBlob& blob = found.blob;
    blob.stored_bytes += entry.stored_bytes;
    parts_.add(facts);
    if (facts.part != 0) return;
    found.head = facts;
    blob.space = facts.space, blob.compatibility = facts.compatibility, blob.key = facts.key;
    blob.content_bytes = facts.size;
    blob.last_used_s = entry.last_used_s, blob.uses = entry.uses;
  }

  BlobScan& out_;
  const std::string& space_;
  std::map<Name, Found> blobs_;
  cache::PartCount parts_;
};

}  // namespace

BlobScan scan_blobs(const runtime::Config& config, const std::string& space) {
  BlobScan out;
  const PlacesView view = view_places(config);
  out.directory = view.directory;
  std::vector<std::shared_ptr<cache::Store>> stores = runtime::open_layers(config);
  for (const auto& store : {view.places.readable, view.places.writable})
    if (store) stores.push_back(store);
  for (const auto& store : stores) StoreScan(out, space).read(*store);
  const auto name_of = [](const StoredBlob& blob) {
    return std::tie(blob.space, blob.compatibility, blob.key);
  };
  // The sort is stable, so the first store's blob stays.
  std::stable_sort(out.blobs.begin(), out.blobs.end(),
                   [&](const auto& a, const auto& b) { return name_of(a) < name_of(b); });
  const auto same = [&](const auto& a, const auto& b) { return name_of(a) == name_of(b); };
  out.blobs.erase(std::unique(out.blobs.begin(), out.blobs.end(), same), out.blobs.end());
  return out;
}

NamedBlobs blobs_named(const BlobScan& scan, const std::string& name) {
  std::set<std::string> spaces, directories;
  for (const StoredBlob& blob : scan.blobs) {
    spaces.insert(blob.space);
    if (blob.space == kDirectories) directories.insert(blob.key);
  }
  for (const std::string& space : {name, "dir." + name})
    if (spaces.contains(space)) return {space, {}};
  if (directories.contains(name)) return {kDirectories, name};
  const std::vector<std::string> all(spaces.begin(), spaces.end());
  std::vector<std::string> known = all;
  std::string text =
      all.empty() ? "there are no blobs at all" : "spaces with blobs: " + base::join(all, ", ");
  if (!directories.empty()) text += "; captured directories:";
  for (const std::string& directory : directories) {
    known.push_back(directory);
    text += (directory == *directories.begin() ? " " : ", ") + base::quote(directory, 60);
  }
  throw Error(Errc::invalid_argument, "no blob is in a space '" + name +
                                          "', and no captured directory has this name" +
                                          base::did_you_mean(name, known) + " (" + text + ')');
}

std::string one_line(const std::string& compatibility) {
  const std::string quoted =
      base::quote(base::join(base::split(compatibility, '\n'), "; "), std::string::npos);
  return quoted.substr(1, quoted.size() - 2);
}

std::string age_of(std::uint64_t used_s) {
  return used_s ? human_age(std::time(nullptr) - static_cast<std::int64_t>(used_s)) : "-";
}

int exit_of(const BlobScan& scan) {
  if (scan.unreadable == 0) return kDone;
  std::fprintf(stderr, "kiln: %s; see 'kiln verify'\n",
               (counted(scan.unreadable, "record") + " cannot be read").c_str());
  return kDamaged;
}

}  // namespace kiln::cli
