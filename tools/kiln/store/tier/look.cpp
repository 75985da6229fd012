#include "tools/kiln/store/tier/look.hpp"

namespace kiln::cli {

std::vector<fleet::ServerLook> look_at_servers(fleet::Tier& tier) {
  std::vector<fleet::ServerLook> out;
  for (const auto& server : tier.backend().upkeep().servers()) out.push_back(server->look());
  return out;
}

Json json_of(const fleet::ServerLook& look) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  return {{"name", look.name},
          {"answers", static_cast<bool>(look)},
          {"fault", look ? Json(nullptr) : Json(name_of(look.fault))},
          {"detail", text(look.detail)},
          {"round_trip_ms", look ? Json(look.round_trip_ms) : Json(nullptr)},
          {"version", text(look.version)},
          {"keys", known(look.keys)},
          {"used_bytes", known(look.used_bytes)},
          {"max_bytes", known(look.max_bytes)},
          {"policy", text(look.policy)},
          {"evicted", known(look.evicted)},
          {"clients", known(look.clients)},
          {"persists", known(look.persists)},
          {"missing", known(look.missing)},
          {"advice", look.advice}};
}

}  // namespace kiln::cli
