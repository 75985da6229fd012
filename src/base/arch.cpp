#include "base/arch.hpp"

#include <charconv>

#include "kiln/error.hpp"

namespace kiln::base {

Arch Arch::parse(std::string_view text) {
  std::string_view digits = text;
  if (digits.substr(0, 3) == "sm_") digits.remove_prefix(3);
  const bool suffix = !digits.empty() && digits.back() == 'a';
  if (suffix) digits.remove_suffix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool number_ok =
      error == std::errc{} && end == digits.data() + digits.size() && number >= 50 && number < 1000;
  if (!number_ok || (suffix && number < 90)) {
    throw Error(Errc::unsupported_arch,
                "unknown arch '" + std::string(text) +
                    "': expected a compute capability such as 80, sm_80, sm_90a or sm_120 "
                    "(kiln adds the 'a' from 9.0 on)");
  }
  return {number};
}

}  // namespace kiln::base
