// The draft of a kernel's manifest: parameters, arguments, launch and what the compiler needs. A `todo` marks
// what neither the source nor the image says.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/kiln/import/declaration.hpp"

namespace kiln::cli {

struct ImportParameter {
  enum class Kind { dtype, integer, boolean, enumeration, type };
  Kind kind = Kind::integer;
  std::string name, declared;  ///< declared: the text in the source
  /// Name -> C++ text; for a dtype and an integer only the name is used. An integer without choices has a range.
  Assignments choices;
  std::string fallback;  ///< its default as TOML; empty: no default
  std::string value;     ///< the value that is compiled; empty: the default
  std::string evidence;  ///< where the source shows the value: "norm.cu:374"
  bool guessed = false;  ///< nothing says that the kernel takes this value
  std::string ask;       ///< what to give instead of the guess
  std::string todo;
};
const char* name_of(ImportParameter::Kind kind) noexcept;

struct ImportArgument {
  std::string name, type, declared;
  std::uint32_t bytes = 0;  ///< in the image; 0: not known
  bool writes = false;      ///< a pointer to non-const
  std::string value;        ///< its default when that is a number
  std::string todo;
};

/// The lines of [compile] that the compiler needs beside the source.
struct Measures {
  bool shim = false, cut = false, default_device = false, int128 = false, cpp20 = false;
  bool unused = false;  ///< the cut takes device code that nothing mentions, too
  std::vector<std::string> empty, keep, dropped, preinclude;  ///< `dropped` is [compile] cut
  Assignments replace;                                        ///< given with --replace
  friend bool operator==(const Measures&, const Measures&) = default;
};

struct ImportDraft {
  KernelDeclaration kernel;
  std::string name, instantiate;
  std::vector<ImportParameter> parameters;
  std::vector<ImportArgument> arguments;
  /// Source parameters, in order, that keep the source's own default.
  std::vector<std::string> left_out;
  std::vector<std::string> block, cluster;  ///< expressions; an empty block is not known
  Measures measures;
  std::vector<std::string> include_dirs;
  Assignments define;
  std::set<std::string> includes;  ///< headers that the texts include
  bool cpp20 = false;              ///< the texts have words of C++20
};

/// Drafts a manifest without arguments, which the image gives. `given` holds the values of P=V. Throws
/// Error(unknown_parameter | invalid_value) for a bad value. Throws Error(source) for a kernel with a pack or
/// a template template parameter.
ImportDraft draft_of(const KernelDeclaration& kernel, const SourceTexts& texts, bool overloaded,
                     const Assignments& given);

bool has(const std::vector<std::string>& list, const std::string& text);
/// Appends a text that the list does not have. Returns false when it has it.
bool add_once(std::vector<std::string>& list, const std::string& text);

}  // namespace kiln::cli
