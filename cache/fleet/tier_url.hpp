// The URL of a fleet's tier: its scheme chooses the backend.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cache/fleet/backend.hpp"

namespace kiln::fleet {

/// A URL that its backend has accepted. Copies are cheap enough for options.
class TierUrl {
 public:
  using Open = std::function<std::shared_ptr<Backend>(const BackendOptions&)>;

  TierUrl() = default;
  TierUrl(std::string safe, Open open) : safe_(std::move(safe)), open_(std::move(open)) {}
  /// Throws Error(invalid_argument) that says what is wrong, and never repeats the text, which may hold a
  /// password.
  static TierUrl parse(std::string_view text);

  /// For people, without user and password: "rediss://host:port,host:port/2".
  const std::string& safe() const noexcept { return safe_; }
  /// Makes the backend. Touches neither the network nor a file. REQUIRES: the URL is not a default one.
  std::shared_ptr<Backend> open(const BackendOptions& options) const { return open_(options); }

 private:
  std::string safe_;
  Open open_;
};

}  // namespace kiln::fleet
