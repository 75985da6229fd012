#include "remote/payload.hpp"

#include <zstd.h>

#include <memory>
#include <new>

#include "kiln/error.hpp"

namespace kiln::remote {
namespace {

/// Level 3 of an image costs as much as its way over the network saves.
constexpr int kLevel = 3;
/// The first bytes of a frame; libzstd's own functions take skippable ones, too, which hold nothing.
constexpr std::string_view kFrameMagic{"\x28\xb5\x2f\xfd", 4};

}  // namespace

std::string compress(std::string_view bytes) {
  std::string out(::ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ::ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  if (::ZSTD_isError(size))
    throw Error(Errc::internal, std::string("libzstd cannot compress: ") + ::ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

std::optional<std::string> decompress(std::string_view frame, std::size_t size) {
  if (!frame.starts_with(kFrameMagic) || ::ZSTD_getFrameContentSize(frame.data(), frame.size()) != size ||
      ::ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size())
    return std::nullopt;
  std::string out(size, '\0');
  if (::ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size()) != size) return std::nullopt;
  return out;
}

}  // namespace kiln::remote
