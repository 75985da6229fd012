// A manifest while it is read: the parts that were read, and the names that expressions may use.
#pragma once

#include <set>
#include <string>

#include "manifest/manifest.hpp"
#include "manifest/toml/tree.hpp"

namespace kiln::source {

/// [work_list] as in the file.
struct WorkListTable {
  const TomlValue* table = nullptr;  ///< null: there is none
  const WorkListKind* kind = nullptr;
  std::string name = "work_list";  ///< or "plan", the old name
  std::string title() const { return '[' + name + ']'; }
  std::string run_title() const { return '[' + name + ".run]"; }
  /// [work_list.run]; null when there is none.
  const TomlValue* run() const { return table ? table->find("run") : nullptr; }
};

struct Draft {
  Manifest out;
  WorkListTable work_list;
  /// Names of parameters, derives, arguments and run-time values: one name space.
  std::set<std::string, std::less<>> taken;

  // Names that expressions may use. `launch` and the members after it are layers on each other
  // (make_symbols). They point to each other, so a draft must not move.
  Symbols resolve;    ///< parameters, derives, arch: defaults and derives
  Symbols launch;     ///< `resolve` and arguments, run-time values, exports, dev.*: everything else
  Symbols require;    ///< `launch` and floating-point arguments: [[require]]
  Symbols geometry;   ///< `launch` and occupancy: [launch]
  Symbols run;        ///< `launch` and values that only `kiln run` knows: shapes, fills, [cost]
  Symbols reference;  ///< `geometry` without exports, which the reference's image does not have: [reference]

  Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
};

}  // namespace kiln::source
