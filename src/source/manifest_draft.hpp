// The steps of parse_manifest, in the order in which they run. Private to manifest*.cpp.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "source/manifest.hpp"
#include "source/table_reader.hpp"

namespace kiln::source {

struct Draft {
  Manifest out;
  /// Names of parameters, derives, arguments and run-time values: one name space.
  std::set<std::string, std::less<>> taken;

  // What expressions know. `launch` and what follows it are layers on each other (make_symbols), so a draft
  // stays where it is.
  Symbols resolve;    ///< parameters, derives, arch: defaults and derives
  Symbols launch;     ///< and arguments, run-time values, exports, dev.*: everything else
  Symbols require;    ///< `launch` and floating-point arguments: [[require]]
  Symbols geometry;   ///< `launch` and occupancy: [launch]
  Symbols run;        ///< `launch` and what `kiln run` alone knows: shapes, fills, [cost]
  Symbols reference;  ///< `geometry` without exports, which the reference's image does not have: [reference]

  Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
};

/// One entry point of one arch: the tree without [arch.*] and [[kernel]].
Manifest parse_tree(const TomlValue& tree, const std::string& file);

/// The trees that a manifest with [arch.*] stands for. The first is the base; where [template] leaves the
/// source or the entry point to the overrides, it is the first of these, and its archs are theirs.
struct ArchTrees {
  TomlValue base;
  std::vector<std::pair<base::Arch, TomlValue>> variants;
  bool base_is_variant = false;  ///< [template] names no kernel: the base is the first variant
};
ArchTrees split_archs(TomlValue tree, const std::string& file);
/// The trees that a manifest with [[kernel]] stands for: the main entry point first.
std::vector<std::pair<std::string, TomlValue>> split_entries(TomlValue tree, const std::string& file);

/// Throws unless `name` is an identifier that is not reserved and not taken; takes it.
void take_name(Draft& draft, const TableReader& reader, std::string_view key, const std::string& name,
               const char* what);

void read_template(Draft& draft, const TableReader& root);
void read_compile(Draft& draft, const TableReader& root);

/// Counts every name, so that slots are known before the first expression is compiled.
void lay_out_slots(Draft& draft, const TableReader& root);
/// All of [param.*] but the defaults.
void read_parameters(Draft& draft, const TableReader& root);
/// Names and types of [[arg]], names of [runtime] and [derive]: what the Symbols need.
void declare_arguments(Draft& draft, const TableReader& root);
void make_symbols(Draft& draft, const TableReader& root);
/// Defaults and derives: compiled, ordered, checked where they are constant.
void read_defaults(Draft& draft, const TableReader& root);
void read_arguments(Draft& draft, const TableReader& root);
/// `fill` of an [[arg]] that has one.
ArgumentSpec::Fill read_fill(const Draft& draft, const ArgumentSpec& argument, const TableReader& reader);
/// How many values [plan.run] declares, then their names; the rest of [plan] when the arguments are read.
int count_run_values(const TableReader& root);
void declare_plan(Draft& draft, const TableReader& root);
void read_plan(Draft& draft, const TableReader& root);
void read_launch(Draft& draft, const TableReader& root);
void read_requirements(Draft& draft, const TableReader& root);
void read_prewarm(Draft& draft, const TableReader& root);
void read_globals(Draft& draft, const TableReader& root);
/// Names of [export]; their texts are read when the parameters are known.
void declare_exports(Draft& draft, const TableReader& root);
void read_exports(Draft& draft, const TableReader& root);
/// Checks the {P} of every value's C++ text and of every define.
void check_spellings(Draft& draft, const TableReader& root);

/// Checks every {NAME} of a text that becomes C++; fails with `key`.
void check_cpp(const Draft& draft, const TableReader& reader, std::string_view key, const std::string& text);
/// Fails for what cannot stand between the quotes or brackets of an include, and for absolute names.
void check_header(const TableReader& reader, std::string_view key, const std::string& name);

/// "a.b" of a file name that stays inside the manifest's directory; fails otherwise.
std::string inner_path(const TableReader& reader, std::string_view key);
/// A name expression with every {NAME} checked.
std::string name_expression(const Draft& draft, const TableReader& reader, std::string_view key);

/// Indices in an order in which each comes after what it needs, earlier ones first among the free. When that
/// is impossible, calls `cycle` with the indices of one, first and last equal.
std::vector<int> topological_order(const std::vector<std::vector<int>>& needs,
                                   const std::function<void(const std::vector<int>&)>& cycle);

/// The values of one key of a [[prewarm]] row as texts; fails for anything that is no string, integer, bool,
/// range or list of these.
std::vector<std::string> prewarm_texts(const TableReader& row, std::string_view key);
/// Those of its `arch`: canonical names, repeats removed.
std::vector<std::string> prewarm_archs(const TableReader& row);

}  // namespace kiln::source
