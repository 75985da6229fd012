// Shorthands of tests for calls of a client.
#pragma once

#include "cache/fleet/redis/client.hpp"

namespace kiln::fleet::test {

inline base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(20)); }

/// Client options with timeouts that a busy machine keeps.
inline ClientOptions options(const std::string& url) {
  ClientOptions out{.url = Url::parse(url)};
  out.timeouts = {.connect = std::chrono::seconds(5), .read = std::chrono::seconds(5)};
  return out;
}

inline Command command(std::vector<std::string> words, std::string tag = {}) {
  return {.words = std::move(words), .tag = std::move(tag)};
}

}  // namespace kiln::fleet::test
