// Pieces of the manifests of launch tests.
#pragma once

#include <string>

namespace kiln::testing {

inline std::string argument_toml(const std::string& name, const std::string& type,
                                 const std::string& more = "") {
  return "[[arg]]\nname = \"" + name + "\"\ntype = \"" + type + "\"\n" + more + "\n";
}
inline constexpr const char* kOneBlock = "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n";

}  // namespace kiln::testing
