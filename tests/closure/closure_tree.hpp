// A source with include directories, and the closure's content as text.
#pragma once

#include <gtest/gtest.h>

#include "closure/closure.hpp"
#include "tests/closure/tree.hpp"

namespace kiln::source {

struct ClosureTree : Tree {
  SearchPath search;
  ScanCache cache;
  std::vector<std::string> extra;

  /// Adds directories of this tree to the search path.
  void project(std::initializer_list<std::string> names) { add(search.project, names); }
  void toolkit(std::initializer_list<std::string> names) { add(search.toolkit, names); }
  Closure scan(const std::string& source) { return scan_closure(source, extra, search, cache); }

 private:
  void add(std::vector<std::string>& to, std::initializer_list<std::string> names) {
    for (const std::string& name : names) {
      std::filesystem::create_directories(path(name));
      to.push_back(path(name));
    }
  }
};

inline std::vector<std::string> symbolic(const Closure& closure) {
  std::vector<std::string> out;
  for (const ClosureFile& file : closure.files) out.push_back(file.symbolic);
  return out;
}
/// The edges as "includer spelling -> target".
inline std::vector<std::string> edges(const Closure& closure) {
  std::vector<std::string> out;
  for (const ProjectEdge& edge : closure.edges)
    out.push_back(edge.includer + ' ' + edge.spelling + " -> " + closure.files[edge.file].symbolic);
  return out;
}
inline std::vector<std::string> roots(const Closure& closure) {
  std::vector<std::string> out;
  for (const Root& root : closure.roots)
    out.push_back(root.name + ' ' + root.path.substr(root.path.rfind('/') + 1));
  return out;
}
/// Everything in a closure that reaches the specialisation's half of the key.
inline std::vector<std::string> identity(const Closure& closure) {
  std::vector<std::string> out = edges(closure);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] += ' ' + closure.files[closure.edges[i].file].digest.hex();
  return out;
}
inline const ClosureFile& file_of(const Closure& closure, const std::string& name) {
  for (const ClosureFile& file : closure.files) {
    if (file.symbolic == name) return file;
  }
  ADD_FAILURE() << "no " << name;
  static const ClosureFile none;
  return none;
}

using Strings = std::vector<std::string>;

}  // namespace kiln::source
