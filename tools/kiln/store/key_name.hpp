// Short names of keys, as commands show and take them. Each name in a list is unique.
#pragma once

#include <string>
#include <vector>

#include "kiln/digest.hpp"

namespace kiln::cli {

/// What names a key: its first digits; or the first digits of each half, "7ca0631d9df0-b743", which tells
/// records apart that several toolchains made of one specialisation.
class KeyName {
 public:
  /// `toolchain` (--toolchain): more about the second half; empty: not given. Throws Error(invalid_argument)
  /// for what no key can have.
  explicit KeyName(const std::string& said = {}, const std::string& toolchain = {});
  bool names(const Key& key) const;
  /// All keys that it names lie between these, both included.
  Key first() const;
  Key last() const;
  /// As a message has it: "'7ca0'", "'7ca0' (toolchain 'b743')".
  const std::string& quoted() const noexcept { return quoted_; }

 private:
  std::string quoted_, specialisation_, toolchain_;
};

/// Refuses what is no beginning of a toolchain's digest: --toolchain takes neither `own` nor `any`. Throws
/// Error(invalid_argument).
void check_toolchain(const std::string& digits);

/// The shortest name that a list shows for each of its keys: `digits` of the specialisation half, more where
/// those are not unique; and where several toolchains have the specialisation, digits of the toolchain half.
class KeyNames {
 public:
  explicit KeyNames(std::vector<Key> all, std::size_t digits = 12);
  /// No other key of the list has this name. Also for a key that is not in the list.
  std::string of(const Key& key) const;

 private:
  std::vector<Key> all_;  // ascending, each once
  std::size_t digits_;
};

/// The name of a key that no list stands beside: "7ca0631d9df0-b743".
std::string short_name(const Key& key);

}  // namespace kiln::cli
