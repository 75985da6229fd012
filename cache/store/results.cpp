#include "cache/store/results.hpp"

namespace kiln::cache {

std::string_view to_string(Miss miss) noexcept {
  constexpr std::string_view names[] = {"absent", "damaged", "other_key_text", "gate_timeout", "unreadable"};
  return names[static_cast<int>(miss)];
}

std::string_view to_string(Put put) noexcept {
  constexpr std::string_view names[] = {"stored", "present", "read_only", "gate_timeout", "full", "failed"};
  return names[static_cast<int>(put)];
}

}  // namespace kiln::cache
