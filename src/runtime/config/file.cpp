#include "runtime/config/file.hpp"

#define TOML_ASSERT(condition) \
  static_cast<void>(0)  // malformed input trips the assertions; parse errors report it properly
#include <toml++/toml.h>

#include <cstdint>

#include "base/file.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {

std::vector<std::pair<std::string, std::string>> read_config_file(const std::string& path) {
  const auto file = base::read_file(path, 1 << 20);
  if (!file) return {};
  std::vector<std::pair<std::string, std::string>> out;
  try {
    const toml::table table = toml::parse(file->bytes, path);
    for (const auto& [key, node] : table) {
      std::string name(key.str());
      if (const auto text = node.value_exact<std::string>())
        out.emplace_back(name, *text);
      else if (const auto integer = node.value_exact<std::int64_t>())
        out.emplace_back(name, std::to_string(*integer));
      else {
        throw Error(Errc::invalid_argument, path + ":" + std::to_string(node.source().begin.line) + ": '" +
                                                name + "' must be a string or an integer");
      }
    }
  } catch (const toml::parse_error& error) {
    throw Error(Errc::invalid_argument, path + ":" + std::to_string(error.source().begin.line) + ": " +
                                            std::string(error.description()));
  }
  return out;
}

}  // namespace kiln::runtime
