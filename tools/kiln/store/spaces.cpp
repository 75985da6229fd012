#include "tools/kiln/store/spaces.hpp"

#include <dirent.h>

#include <memory>
#include <set>

#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "kiln/error.hpp"
#include "runtime/blob/counters.hpp"

namespace kiln::cli {
namespace {

SpaceCounts named(const std::vector<std::uint64_t>& values) {
  SpaceCounts out;
  std::size_t i = 0;
  for (const runtime::BlobCounter& counter : runtime::blob_counters()) out[counter.name] = values[i++];
  return out;
}

bool is_space(const std::string& name) {
  try {
    cache::check_blob_name({name, {}, {}});
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string SpaceView::hit_rate() const {
  const auto hits = static_cast<double>(counts.at("hits")), misses = static_cast<double>(counts.at("misses"));
  if (hits + misses <= 0) return "-";
  char out[32];
  std::snprintf(out, sizeof out, "%.1f %%", hits / (hits + misses) * 100);
  return out;
}

std::uint64_t failed_of(const SpaceCounts& counts) {
  return counts.at("puts_skipped") + counts.at("damaged") + counts.at("sealed_misses");
}

std::map<std::string, SpaceCounts> space_counts(const std::string& directory) {
  const std::string prefix = runtime::kSpaceTally;
  std::map<std::string, SpaceCounts> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir((directory + "/v1").c_str()), ::closedir);
  while (const dirent* const entry = listed ? ::readdir(listed.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.starts_with(prefix) || !is_space(name.substr(prefix.size()))) continue;
    const std::string space = name.substr(prefix.size());
    out[space] = named(runtime::tally_of_space(directory, space)->read());
  }
  return out;
}

std::vector<SpaceView> spaces_of(cache::Store* store, const std::string& directory) {
  std::map<std::string, SpaceView> spaces;
  std::map<std::string, std::set<std::string>> compatibilities;
  const auto add = [&](const cache::Entry& entry) {
    if (!cache::is_blob(entry.facts)) return;
    try {
      cache::BlobFacts facts = cache::decode_blob(entry.facts);
      SpaceView& space = spaces[facts.space];
      space.stored_bytes += entry.stored_bytes;
      if (facts.part != 0) return;
      ++space.blobs;
      space.content_bytes += facts.size;
      compatibilities[facts.space].insert(std::move(facts.compatibility));
    } catch (const base::Malformed&) {  // of another version of kiln
    }
  };
  if (store) store->list(add);
  const auto counts = space_counts(directory);
  for (const auto& [name, count] : counts) spaces[name].counts = count;
  std::vector<SpaceView> out;
  for (auto& [name, space] : spaces) {
    space.space = name;
    space.compatibilities = compatibilities[name].size();
    if (space.counts.empty()) space.counts = named(std::vector<std::uint64_t>(cache::kTallyValues));
    out.push_back(std::move(space));
  }
  return out;
}

void add_counts(Json& to, const SpaceCounts& counts) {
  for (const runtime::BlobCounter& counter : runtime::blob_counters())
    to[counter.name] = counts.at(counter.name);
}

Json json_of(const SpaceView& space) {
  Json out{{"space", space.space},
           {"compatibilities", space.compatibilities},
           {"blobs", space.blobs},
           {"stored_bytes", space.stored_bytes},
           {"content_bytes", space.content_bytes}};
  add_counts(out, space.counts);
  return out;
}

}  // namespace kiln::cli
