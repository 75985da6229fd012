#include "tools/kiln/store/view.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/log.hpp"
#include "cache/place/directory.hpp"
#include "cache/store/file/pages.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

/// True when the directory, or the nearest existing directory above it, can be written.
bool could_be_made(std::string directory) {
  struct stat st {};
  while (::stat(directory.c_str(), &st) != 0 && directory.size() > 1)
    directory = base::directory_of(directory);
  return S_ISDIR(st.st_mode) && ::access(directory.c_str(), W_OK) == 0;
}

bool has_file(const std::string& directory) {
  struct stat st {};
  return ::stat((directory + "/v1/data.mdb").c_str(), &st) == 0;
}

std::shared_ptr<cache::Store> open_to_read(const std::string& directory, const runtime::Config& config) {
  cache::StoreOptions options;
  options.directory = directory, options.access = cache::Access::read_only;
  options.cap_bytes = config.cache_max_bytes();
  return cache::Store::open(options);
}

/// The directory of the store that a compile would open for writing in this place. Empty when a compile would
/// try the next place.
std::string writable_directory(const runtime::Candidate& candidate) {
  try {
    const std::string directory = runtime::directory_of(candidate);
    if (::access(directory.c_str(), F_OK) != 0) return could_be_made(directory) ? directory : "";
    const bool named_by_user =
        directory == candidate.directory && candidate.kind != runtime::Candidate::Kind::temporary;
    // The directory exists, so make_own only checks its owner.
    cache::make_own(directory, named_by_user ? cache::FinalLink::followed : cache::FinalLink::refused);
    cache::check_own_store(directory);
    const std::string file = directory + "/v1/data.mdb";
    return ::access((has_file(directory) ? file : directory).c_str(), W_OK) == 0 ? directory : "";
  } catch (const Error& error) {
    if (candidate.kind == runtime::Candidate::Kind::configured) base::warn_once("view", error.what());
    return {};
  }
}

/// The store that open_store would read as a layer; null when there is none.
std::shared_ptr<cache::Store> open_readable(const runtime::Candidate& candidate) {
  if (!runtime::only_readable(candidate)) return nullptr;
  try {
    return runtime::open_layer(candidate.directory);
  } catch (const cache::Damaged&) {
    throw;
  } catch (const Error& error) {
    base::debug(error.what());
    return nullptr;
  }
}

}  // namespace

StorePlace find_store(const runtime::Config& config) {
  const std::vector<runtime::Candidate> candidates = runtime::store_candidates(config);
  for (const runtime::Candidate& candidate : candidates) {
    std::string directory;
    try {
      directory = runtime::directory_of(candidate);
    } catch (const Error& error) {
      if (candidate.kind == runtime::Candidate::Kind::configured) base::warn_once("view", error.what());
      continue;
    }
    if (has_file(directory)) return {directory, true};
    if (could_be_made(directory)) return {directory, false};
    // A store of another user that cannot be written is read as a layer is.
    if (has_file(candidate.directory)) return {candidate.directory, true};
  }
  return {candidates.front().directory, false};
}

StoreView view_store(const runtime::Config& config) {
  const StorePlace place = find_store(config);
  return {place.directory, place.there ? open_to_read(place.directory, config) : nullptr};
}

PlacesView view_places(const runtime::Config& config) {
  PlacesView out;
  for (const runtime::Candidate& candidate : runtime::store_candidates(config)) {
    out.directory = writable_directory(candidate);
    if (!out.directory.empty()) {
      if (has_file(out.directory)) out.places.writable = open_to_read(out.directory, config);
      break;
    }
    if (!out.places.readable) out.places.readable = open_readable(candidate);
  }
  return out;
}

}  // namespace kiln::cli
