#include "cache/trust/base64.hpp"

#include <sodium.h>

#include "cache/trust/sodium.hpp"

namespace kiln::trust {

std::string to_base64(std::string_view bytes) {
  std::string out(sodium_base64_encoded_len(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  ::sodium_bin2base64(out.data(), out.size(), raw(bytes), bytes.size(), sodium_base64_VARIANT_ORIGINAL);
  out.pop_back();  // its terminating zero
  return out;
}

std::optional<std::string> from_base64(std::string_view text, std::size_t size) {
  std::string out(size, '\0');
  std::size_t got = 0;
  const char* end = nullptr;
  if (::sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(),
                          nullptr, &got, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
      got != size || end != text.data() + text.size())
    return std::nullopt;
  return out;
}

}  // namespace kiln::trust
