// What libkiln uses of libzstd (see late_library.hpp). Without it everything is an error of its kind.
#include <zstd.h>

#include "late/late_library.hpp"

namespace {
constinit const char* const kNames[] = {"libzstd.so.1"};
constinit kiln::late::LateLibrary g_zstd(kNames);
constexpr std::size_t kError = static_cast<std::size_t>(-1);
}  // namespace

KILN_LATE(g_zstd, unsigned, ZSTD_versionNumber, (void), (), 0)
KILN_LATE(g_zstd, std::size_t, ZSTD_compressBound, (std::size_t size), (size), 0)
KILN_LATE(g_zstd, std::size_t, ZSTD_compress,
          (void* out, std::size_t out_size, const void* in, std::size_t in_size, int level),
          (out, out_size, in, in_size, level), kError)
KILN_LATE(g_zstd, std::size_t, ZSTD_decompress,
          (void* out, std::size_t out_size, const void* in, std::size_t in_size),
          (out, out_size, in, in_size), kError)
KILN_LATE(g_zstd, unsigned long long, ZSTD_getFrameContentSize, (const void* in, std::size_t size),
          (in, size), ZSTD_CONTENTSIZE_ERROR)
KILN_LATE(g_zstd, std::size_t, ZSTD_findFrameCompressedSize, (const void* in, std::size_t size), (in, size),
          kError)
KILN_LATE(g_zstd, unsigned, ZSTD_isError, (std::size_t code), (code), 1)
KILN_LATE(g_zstd, const char*, ZSTD_getErrorName, (std::size_t code), (code), "libzstd.so.1 is not there")
