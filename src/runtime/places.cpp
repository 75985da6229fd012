#include "runtime/places.hpp"

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
  if (!config.get("cache_dir").empty()) out.push_back(config.get("cache_dir"));
  else if (xdg && *xdg == '/') add(xdg, "/kiln");
  else add(std::getenv("HOME"), "/.cache/kiln");
  add(std::getenv("TMPDIR"), private_name);
  add("/var/tmp", private_name);
  return out;
}

std::shared_ptr<cache::Store> open_store(const Config& config) {
  std::string reasons;
  for (const std::string& directory : store_candidates(config)) {
    try {
      auto store = cache::Store::open({.directory = directory});
      if (!reasons.empty()) {
        base::warn_once("store " + directory, reasons + "caching in '" + directory + "' instead; set KILN_CACHE_DIR to a writable directory");
      }
      return store;
    } catch (const Error& error) {
      reasons += std::string(error.what()) + "; ";
    }
  }
  base::warn_once("no store", reasons + "nothing is cached on disk: every process compiles anew. Set KILN_CACHE_DIR to a writable directory");
  return nullptr;
}

}  // namespace kiln::runtime
