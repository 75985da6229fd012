#include "tools/kiln/caches/wrap/reports.hpp"

#include <dirent.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/log.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kLargestReport = std::size_t{16} << 20;

std::uint64_t count_in(const nlohmann::json& space, const char* name) {
  const auto found = space.find(name);
  return found != space.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

/// False for text that is no report.
bool add(const std::string& text, WrapReports& out) {
  const auto report = nlohmann::json::parse(text, nullptr, false);
  if (!report.is_object() || !report.contains("spaces") || !report["spaces"].is_array()) return false;
  ++out.processes;
  for (const auto& space : report["spaces"]) {
    if (!space.is_object() || !space.contains("space") || !space["space"].is_string()) continue;
    ReportedCounts& counts = out.spaces[space["space"].get<std::string>()];
    counts.hits += count_in(space, "hits");
    counts.misses += count_in(space, "misses");
    counts.puts += count_in(space, "puts");
    counts.damaged += count_in(space, "damaged");
  }
  return true;
}

}  // namespace

WrapReports read_reports(const std::string& directory) {
  WrapReports out;
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir(directory.c_str()), ::closedir);
  while (const dirent* const entry = listed ? ::readdir(listed.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.ends_with(".json")) continue;
    const auto content = base::read_file(directory + '/' + name, kLargestReport);
    if (!content || !add(content->bytes, out)) base::warn("report " + name + " of a process cannot be read");
  }
  return out;
}

}  // namespace kiln::cli
