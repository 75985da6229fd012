// The reports of the processes of a wrapped command about their blobs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kiln::cli {

struct ReportedCounts {
  std::uint64_t hits = 0, misses = 0, puts = 0, damaged = 0;
};
struct WrapReports {
  std::uint64_t processes = 0;
  std::map<std::string, ReportedCounts> spaces;
};

/// Adds up the reports DIRECTORY/*.json. Each is an object {"process": pid, "argv": [...], "spaces": [...]},
/// whose spaces are as kiln_service_describe_blobs() has them. A file that is none is left out with a warning.
WrapReports read_reports(const std::string& directory);

}  // namespace kiln::cli
