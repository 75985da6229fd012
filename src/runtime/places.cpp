#include "runtime/places.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {

std::vector<std::string> store_candidates(const Config& config) {
  std::vector<std::string> out;
  const auto add = [&](const char* base, const std::string& below) {
    if (base && *base == '/') out.push_back(base + below);
  };
  const std::string private_name = "/kiln-" + std::to_string(::geteuid());
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (!config.get("cache_dir").empty())
    out.push_back(config.get("cache_dir"));
  else if (xdg && *xdg == '/')
    add(xdg, "/kiln");
  else
    add(std::getenv("HOME"), "/.cache/kiln");
  add(std::getenv("TMPDIR"), private_name);
  add("/var/tmp", private_name);
  return out;
}

namespace {

/// A place below a directory that everybody may write to must be ours alone: what lies in a store ends up on
/// the GPU.
void check_private(const std::string& directory) {
  if (!directory.ends_with("/kiln-" + std::to_string(::geteuid()))) return;
  struct stat st;
  if (::lstat(directory.c_str(), &st) != 0) return;  // not there: it will be made 0700
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & 022) != 0) {
    throw Error(Errc::io, "store " + directory + ": not a directory that belongs to this user alone");
  }
}

}  // namespace

std::shared_ptr<cache::Store> open_store(const Config& config) {
  std::string reasons;
  const auto candidates = store_candidates(config);
  const bool has_home =
      config.get("cache_dir").empty() && (std::getenv("HOME") || std::getenv("XDG_CACHE_HOME"));
  if (config.get("cache_dir").empty() && !has_home)
    reasons = "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set; ";
  for (const std::string& directory : candidates) {
    try {
      check_private(directory);
      auto store = cache::Store::open({.directory = directory});
      if (!reasons.empty()) {
        base::warn_once("store " + directory, reasons + "caching in '" + directory +
                                                  "' instead; set KILN_CACHE_DIR to a writable directory");
      }
      return store;
    } catch (const Error& error) {
      reasons += std::string(error.what()) + "; ";
    }
  }
  base::warn_once("no store", reasons +
                                  "nothing is cached on disk: every process compiles anew. Set "
                                  "KILN_CACHE_DIR to a writable directory");
  return nullptr;
}

}  // namespace kiln::runtime
