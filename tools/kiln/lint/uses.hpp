// Finds which names of a manifest reach the kernel, and how.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "manifest/manifest.hpp"

namespace kiln::cli {

/// How a name is used:
/// - none: nothing reads it.
/// - launch: only geometry, arguments, run-time values, requirements, defaults or cost read it.
/// - code: it stands in a C++ text.
enum class Reach { none, launch, code };

/// Uses of parameters, derives, run-time values and exports by name. The entry points of a manifest and its
/// variants for archs are taken together.
class Uses {
 public:
  explicit Uses(const source::Manifest& manifest);
  Reach of(std::string_view name) const;

 private:
  struct Need {
    std::string name;
    Reach at_most;
  };
  void needs_of(const source::Manifest& manifest);
  void texts_of(const source::Manifest& manifest);
  void expressions_of(const source::Manifest& manifest);
  void text(const std::string& cpp);
  void reads(const source::Manifest& manifest, const source::Expression& expression);
  void mark(const std::string& name, Reach reach);

  std::map<std::string, Reach, std::less<>> reach_;
  std::multimap<std::string, Need> needs_;  ///< names that a name's own text or expression reads
};

}  // namespace kiln::cli
