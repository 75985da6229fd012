#include "tools/kiln/lint/debris.hpp"
#include "tools/kiln/cli/table.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/text.hpp"
#include "toolchain/cubin.hpp"
#include "toolchain/elf.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr const char* kStrings = "strings";

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// True for sections of an entry point, such as ".text.NAME" and ".nv.constant0.NAME".
bool belongs(std::string_view section, const std::vector<std::string>& entries) {
  return std::any_of(entries.begin(), entries.end(), [&](const std::string& entry) {
    return section.size() > entry.size() && section.ends_with(entry) &&
           section[section.size() - entry.size() - 1] == '.';
  });
}

}  // namespace

std::string origin_of_variable(const std::string& mangled) {
  if (mangled.starts_with("$str") || mangled.starts_with("__unnamed")) return kStrings;
  std::string text = demangled(mangled);
  if (const std::size_t of = text.rfind(" for ", text.find('<')); of != std::string::npos)
    text.erase(0, of + 5);
  text.erase(std::min(text.find_first_of("<("), text.size()));
  if (const std::size_t type = text.rfind(' '); type != std::string::npos) text.erase(0, type + 1);
  std::vector<std::string> parts = base::split(text, ':');
  if (!parts.empty()) parts.pop_back();  // removes its own name, or the name of a class template
  std::erase_if(parts, [](const std::string& part) { return part.starts_with('_'); });
  if (parts.empty()) return "the global namespace";
  if (parts.size() > 2) parts.resize(2);
  return base::join(parts, "::");
}

Debris debris_of(std::string_view image, const std::vector<std::string>& entries,
                 const std::vector<std::string>& wanted) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(image.data()), image.size());
  Debris out;
  out.image_bytes = image.size();
  std::uint64_t own = 0, largest = 0, names = 0;
  const toolchain::Elf elf(bytes);
  for (const toolchain::ElfSection& section : elf.sections()) {
    const std::uint64_t size = section.bytes.size();  // 0 for memory that a launch zeroes
    const std::string_view name = section.name;
    if (belongs(name, entries)) {
      own += size;
    } else if (name.starts_with(".text.")) {
      ++out.functions, out.function_bytes += size;
      if (size > largest) largest = size, out.largest_function = demangled(std::string(name.substr(6)));
    } else if (name.find("debug") != std::string_view::npos) {
      out.debug_bytes += size;
    } else if (name == ".strtab" || name == ".symtab" || name == ".nv.global.init" ||
               name.starts_with(".nv.constant") || name.starts_with(".rela.nv.constant")) {
      names += size;
    }
  }
  std::map<std::string, std::uint64_t> origins;
  const toolchain::CubinFacts facts = toolchain::read_cubin(bytes);
  for (const toolchain::CubinVariable& variable : facts.variables) {
    if (contains(wanted, variable.name) || variable.name.starts_with("kiln_export_")) continue;
    const std::string origin = origin_of_variable(variable.name);
    if (origin == kStrings)
      ++out.strings;
    else
      ++out.variables, ++origins[origin];
  }
  if (out.variables + out.strings > 0) out.variable_bytes = names;
  out.bytes = image.size() - std::min<std::uint64_t>(own, image.size());
  out.origins.assign(origins.begin(), origins.end());
  std::stable_sort(out.origins.begin(), out.origins.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string debris_text(const Debris& debris) {
  std::vector<std::string> parts;
  if (debris.variable_bytes > 0) {
    std::vector<std::string> kinds;
    if (debris.variables > 0) {
      std::vector<std::string> most;
      for (std::size_t i = 0; i < std::min<std::size_t>(debris.origins.size(), 3); ++i)
        most.push_back(debris.origins[i].first + ' ' + std::to_string(debris.origins[i].second));
      kinds.push_back(counted(debris.variables, "variable") + " (" + base::join(most, ", ") + ')');
    }
    if (debris.strings > 0) kinds.push_back(counted(debris.strings, "string") + " of printf or assert");
    parts.push_back(base::join(kinds, " and ") + " with names and addresses, " +
                    human_bytes(debris.variable_bytes));
  }
  if (debris.debug_bytes > 0) parts.push_back("debug information, " + human_bytes(debris.debug_bytes));
  if (debris.functions > 0)
    parts.push_back(counted(debris.functions, "function") + " not inlined, " +
                    human_bytes(debris.function_bytes) + ", the largest " +
                    clipped(debris.largest_function, 80));
  return base::join(parts, "; ");
}

}  // namespace kiln::cli
