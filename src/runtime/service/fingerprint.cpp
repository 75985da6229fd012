#include "runtime/service/fingerprint.hpp"

#include <nlohmann/json.hpp>

#include "base/hash.hpp"

namespace kiln::runtime {

Digest fingerprint_of(const std::string& space, const UsedItems& items) {
  std::string text = "kiln fingerprint 2\n" + space + '\n';
  for (const auto& [name, contents] : items) {
    text += std::to_string(name.size()) + ':' + name;  // names of blobs may be any bytes
    for (const std::string& content : contents) text += ' ' + content;
    text += '\n';
  }
  return base::digest_of(text);
}

Digest fingerprint_of(const Used& used) {
  std::string text = "kiln fingerprint 2\n";
  for (const auto& [space, items] : used)
    if (!items.empty()) text += space + ' ' + fingerprint_of(space, items).hex() + '\n';
  return base::digest_of(text);
}

std::string to_json(const Used& used) {
  nlohmann::json spaces = nlohmann::json::array();
  for (const auto& [space, items] : used)
    if (!items.empty())
      spaces.push_back(
          {{"space", space}, {"fingerprint", fingerprint_of(space, items).hex()}, {"items", items}});
  return nlohmann::json({{"fingerprint", fingerprint_of(used).hex()}, {"spaces", spaces}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kiln::runtime
