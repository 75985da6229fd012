// Short names of keys, as commands show and take them. Each name in a list is unique.
#pragma once

#include <string>
#include <vector>

#include "kiln/digest.hpp"

namespace kiln::cli {

/// A short name of a key: its first digits, or the first digits of each half, as in "7ca0631d9df0-b743". The
/// second form distinguishes records that several toolchains made of one specialisation.
class KeyName {
 public:
  /// `toolchain` (--toolchain) gives digits of the second half; empty: not given. Throws
  /// Error(invalid_argument) for text that no key can have.
  explicit KeyName(const std::string& said = {}, const std::string& toolchain = {});
  bool names(const Key& key) const;
  /// All keys that this name matches lie between these two, both included.
  Key first() const;
  Key last() const;
  /// The name as messages quote it: "'7ca0'", "'7ca0' (toolchain 'b743')".
  const std::string& quoted() const noexcept { return quoted_; }

 private:
  std::string quoted_, specialisation_, toolchain_;
};

/// Checks that `digits` can begin a toolchain's digest; `own` and `any` are refused, too. Throws
/// Error(invalid_argument).
void check_toolchain(const std::string& digits);

/// The shortest names for the keys of a list. A name has `digits` digits of the specialisation half,
/// or more where those are not unique. It adds digits of the toolchain half where several toolchains
/// made the specialisation.
class KeyNames {
 public:
  explicit KeyNames(std::vector<Key> all, std::size_t digits = 12);
  /// The name of `key`, which no other key of the list has. `key` itself need not be in the list.
  std::string of(const Key& key) const;

 private:
  std::vector<Key> all_;  // ascending, without duplicates
  std::size_t digits_;
};

/// The name of a key that is shown without a list: "7ca0631d9df0-b743".
std::string short_name(const Key& key);

}  // namespace kiln::cli
