#include "tools/kiln/store/key/name.hpp"

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kHalf = 32, kToolchainDigits = 4;

bool is_hex(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Digits are shown in lower case and accepted in both cases.
std::string lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

Key padded(const std::string& specialisation, const std::string& toolchain, char digit) {
  // The toolchain's digits can bound the range only when the specialisation half is complete.
  const std::string second = specialisation.size() == kHalf ? toolchain : "";
  return *Key::from_hex(specialisation + std::string(kHalf - specialisation.size(), digit) + second +
                        std::string(kHalf - second.size(), digit));
}

/// How many leading digits of `one` tell it from `other`.
std::size_t digits_apart(const Digest& one, const Digest& other) {
  const std::string a = one.hex(), b = other.hex();
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin()) + 1;
}

}  // namespace

KeyName::KeyName(const std::string& said, const std::string& toolchain) : quoted_('\'' + said + '\'') {
  const std::string text = lowered(said);
  const std::size_t dash = text.find('-');
  specialisation_ = text.substr(0, std::min(dash, kHalf));
  toolchain_ = dash != std::string::npos ? text.substr(dash + 1) : text.substr(std::min(text.size(), kHalf));
  const bool fits = dash == std::string::npos || dash <= kHalf;
  if (!fits || !is_hex(specialisation_ + toolchain_) || toolchain_.size() > kHalf)
    throw Error(Errc::invalid_argument,
                quoted_ +
                    " is no key: expected up to 64 digits 0-9a-f, or the first digits of each half as in "
                    "7ca0631d9df0-b743, as 'kiln ls' shows them");
  if (toolchain.empty()) return;
  const std::string wanted = lowered(toolchain);
  check_toolchain(wanted);
  const std::size_t both = std::min(toolchain_.size(), wanted.size());
  if (toolchain_.compare(0, both, wanted, 0, both) != 0)
    throw Error(Errc::invalid_argument, quoted_ + " is a key of the toolchain '" + toolchain_ +
                                            "', and --toolchain '" + toolchain +
                                            "' asks for another; leave one of them out");
  if (wanted.size() > toolchain_.size()) toolchain_ = wanted;
  quoted_ += " (toolchain '" + toolchain + "')";
}

bool KeyName::names(const Key& key) const {
  return key.specialisation.hex().starts_with(specialisation_) && key.toolchain.hex().starts_with(toolchain_);
}

Key KeyName::first() const { return padded(specialisation_, toolchain_, '0'); }
Key KeyName::last() const { return padded(specialisation_, toolchain_, 'f'); }

void check_toolchain(const std::string& digits) {
  if (!is_hex(digits) || digits.size() > kHalf)
    throw Error(Errc::invalid_argument,
                "--toolchain '" + digits + "': expected the first hex digits of a toolchain's digest");
}

KeyNames::KeyNames(std::vector<Key> all, std::size_t digits) : all_(std::move(all)), digits_(digits) {
  std::sort(all_.begin(), all_.end());
  all_.erase(std::unique(all_.begin(), all_.end()), all_.end());
}

std::string KeyNames::of(const Key& key) const {
  const Digest none{}, every = [] {
    Digest out;
    out.bytes.fill(0xff);
    return out;
  }();
  const auto first = std::lower_bound(all_.begin(), all_.end(), Key{key.specialisation, none});
  const auto end = std::upper_bound(first, all_.end(), Key{key.specialisation, every});
  std::size_t digits = digits_, of_toolchain = 0;
  if (first != all_.begin())
    digits = std::max(digits, digits_apart(key.specialisation, std::prev(first)->specialisation));
  if (end != all_.end()) digits = std::max(digits, digits_apart(key.specialisation, end->specialisation));
  for (auto other = first; other != end; ++other)
    if (other->toolchain != key.toolchain)
      of_toolchain =
          std::max({of_toolchain, kToolchainDigits, digits_apart(key.toolchain, other->toolchain)});
  const std::string name = key.specialisation.hex().substr(0, digits);
  return of_toolchain ? name + '-' + key.toolchain.hex().substr(0, of_toolchain) : name;
}

std::string short_name(const Key& key) {
  return key.specialisation.hex().substr(0, 12) + '-' + key.toolchain.hex().substr(0, kToolchainDigits);
}

}  // namespace kiln::cli
