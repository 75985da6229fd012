#include "runtime/state/places.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cache/place/directory.hpp"
#include "cache/store/file/pages.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

using Kind = Candidate::Kind;

/// The variable's value when it is an absolute path, as the base directory specification wants it.
const char* directory_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value == '/' ? value : nullptr;
}

cache::StoreOptions options_of(const std::string& directory, cache::Access access) {
  cache::StoreOptions out;
  out.directory = directory;
  out.access = access;
  return out;
}

/// Throws Error(io).
std::shared_ptr<cache::Store> open_writable(const Candidate& candidate, std::uint64_t cap_bytes) {
  const std::string directory = directory_of(candidate);
  // A directory that the user named may be a symlink. A directory that kiln named may not.
  const bool named_by_user = directory == candidate.directory && candidate.kind != Kind::temporary;
  cache::make_own(directory, named_by_user ? cache::FinalLink::followed : cache::FinalLink::refused);
  cache::refuse_network(directory);
  cache::check_own_store(directory);
  cache::StoreOptions options = options_of(directory, cache::Access::read_write);
  options.cap_bytes = cap_bytes;
  if (cap_bytes < cache::kSmallestCap)
    base::warn_once("small cap", "KILN_CACHE_MAX_SIZE is " + std::to_string(cap_bytes) +
                                     " bytes, but the smallest cap of a store is " +
                                     std::to_string(cache::kSmallestCap) +
                                     " bytes (4M), which is used instead");
  return cache::Store::open(options);
}

/// Opens the store of a place for reading when it may not be written; else null.
std::shared_ptr<cache::Store> open_unwritable(const Candidate& candidate) {
  if (!only_readable(candidate)) return nullptr;
  try {
    return open_layer(candidate.directory);
  } catch (const Error& error) {
    base::debug(error.what());
    return nullptr;
  }
}

}  // namespace

std::vector<Candidate> store_candidates(const Config& config) {
  std::vector<Candidate> out;
  const std::string& configured = config.get("cache_dir");
  const char *xdg = directory_in("XDG_CACHE_HOME"), *home = directory_in("HOME");
  if (!configured.empty())
    out.push_back({base::absolute(configured).value_or(configured), Kind::configured});
  else if (xdg)
    out.push_back({std::string(xdg) + "/kiln", Kind::user});
  else if (home)
    out.push_back({std::string(home) + "/.cache/kiln", Kind::user, home});
  const std::string below = '/' + cache::private_name();
  if (const char* temporary = directory_in("TMPDIR"))
    out.push_back({temporary + below, Kind::temporary, temporary});
  out.push_back({"/var/tmp" + below, Kind::temporary, "/var/tmp"});
  return out;
}

std::string directory_of(const Candidate& candidate) {
  struct stat st {};
  if (!candidate.required.empty() && (::stat(candidate.required.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)))
    throw Error(Errc::io, "'" + candidate.required + "' is not a directory");
  cache::refuse_network(candidate.directory);
  if (candidate.kind != Kind::temporary) return cache::own_directory(candidate.directory);
  cache::refuse_foreign_links(candidate.directory);
  return candidate.directory;
}

bool only_readable(const Candidate& candidate) noexcept {
  const std::string file = candidate.directory + "/v1/data.mdb";
  return candidate.kind != Kind::temporary && ::access(file.c_str(), R_OK) == 0 &&
         (::access(file.c_str(), W_OK) != 0 || ::access(candidate.directory.c_str(), W_OK) != 0);
}

Places open_store(const Config& config) {
  Places out;
  std::string reasons;
  const auto candidates = store_candidates(config);
  if (candidates.front().kind == Kind::temporary)
    reasons = "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME names an absolute directory; ";
  for (const Candidate& candidate : candidates) {
    try {
      out.writable = open_writable(candidate, config.cache_max_bytes());
      break;
    } catch (const Error& error) {
      reasons += std::string(error.what()) + "; ";
    }
    if (!out.readable && (out.readable = open_unwritable(candidate)))
      reasons += "reading what '" + candidate.directory + "' holds; ";
  }
  const std::string remedy = "set KILN_CACHE_DIR to a local directory that only this user may write";
  if (!out.writable) {
    base::warn_once("no store",
                    reasons + "nothing is cached on disk, so every process compiles again; " + remedy);
  } else if (!reasons.empty()) {
    base::warn_once("store " + out.writable->directory(),
                    reasons + "caching in '" + out.writable->directory() + "' instead; " + remedy);
  }
  return out;
}

std::shared_ptr<cache::Store> open_layer(const std::string& directory) {
  cache::check_layer(directory);
  return cache::Store::open(options_of(directory, cache::Access::read_only));
}

std::shared_ptr<cache::Store> open_configured_store(const Config& config) {
  const Candidate first = store_candidates(config).front();
  if (first.kind == Kind::temporary)
    throw Error(Errc::io,
                "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME names an absolute directory for the cache; "
                "set KILN_CACHE_DIR");
  try {
    return open_writable(first, config.cache_max_bytes());
  } catch (const Error& error) {
    throw Error(error.code(), std::string("the cache cannot be written: ") + error.what());
  }
}

std::string existing_store(const Config& config) {
  for (const Candidate& candidate : store_candidates(config)) {
    try {
      std::string directory = directory_of(candidate);
      const std::string file = directory + "/v1/data.mdb";
      struct stat st {};
      if (::stat(file.c_str(), &st) == 0 && st.st_uid == ::geteuid() && ::access(file.c_str(), W_OK) == 0)
        return directory;
    } catch (const Error&) {  // no store can be there
    }
  }
  return {};
}

bool nothing_cached(const Config& config) noexcept try {
  if (!config.get("cache_layers").empty()) return false;
  for (const Candidate& candidate : store_candidates(config)) {
    try {
      return ::access((directory_of(candidate) + "/v1/data.mdb").c_str(), F_OK) != 0;
    } catch (const Error&) {  // no store can be there
    }
  }
  return true;
} catch (...) {
  return false;
}

bool any_store(const Config& config) noexcept try {
  for (const Candidate& candidate : store_candidates(config)) {
    if (only_readable(candidate)) return true;
    try {
      if (::access((directory_of(candidate) + "/v1/data.mdb").c_str(), F_OK) == 0) return true;
    } catch (const Error&) {  // no store can be there
    }
  }
  return false;
} catch (...) {
  return true;  // opening the store will say what is wrong
}

std::vector<std::shared_ptr<cache::Store>> open_layers(const Config& config) {
  std::vector<std::shared_ptr<cache::Store>> out;
  for (const std::string& directory : base::split(config.get("cache_layers"), ':')) {
    const auto leave_out = [&](const std::string& why) {
      base::warn_once("layer " + directory,
                      "cache layer '" + directory + "' (KILN_CACHE_LAYERS) is left out: " + why);
    };
    try {
      out.push_back(open_layer(directory));
    } catch (const cache::Damaged& error) {
      leave_out(std::string(error.what()) + "; write it again with 'kiln prewarm --layer'");
    } catch (const Error& error) {
      leave_out(error.what());
    }
  }
  return out;
}

std::shared_ptr<cache::Store> create_layer(const std::string& directory) {
  const std::string path = base::absolute(directory).value_or(directory);
  cache::make_layer(path);
  cache::StoreOptions options = options_of(path, cache::Access::read_write);
  options.cap_bytes = cache::kNoCap;
  auto store = cache::Store::open(options);
  cache::check_layer(path);
  return store;
}

}  // namespace kiln::runtime
