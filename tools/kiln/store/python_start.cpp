#include "tools/kiln/store/python_start.hpp"

#include <unistd.h>

#include "base/file.hpp"
#include "base/installation.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kLargestStart = std::size_t{1} << 20;

}  // namespace

std::string start_directory() {
  for (const std::string& directory : base::candidates_of({.below = "share/kiln/python-start",
                                      .configured = KILN_INSTALL_DATADIR "/kiln/python-start",
                                      .beside = ""}))
    if (::access((directory + "/sitecustomize.py").c_str(), R_OK) == 0) return directory;
  return {};
}

bool has_kiln_start(const std::string& directory) {
  const auto start = base::read_file(directory + "/sitecustomize.py", kLargestStart);
  return start && start->bytes.find("kiln's caches") != std::string::npos;
}

}  // namespace kiln::cli
