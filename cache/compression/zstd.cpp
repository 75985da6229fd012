#include "cache/compression/zstd.hpp"

#include <zstd.h>

#include <algorithm>
#include <new>
#include <vector>

namespace kiln::compression {
namespace {

/// Parameters of a stream. A bundle's bytes are reproducible, and other values give other bytes.
constexpr int kStreamLevel = 10, kWindowLog = 24;
/// zstd sees the content in pieces of this size, however it was written.
constexpr std::size_t kFeedBytes = std::size_t{1} << 17;
/// The level of a frame. Level 3 takes about as much time for an image as it saves on the network.
constexpr int kFrameLevel = 3;
/// The first bytes of a frame. libzstd's own functions also take skippable frames, which hold nothing.
constexpr std::string_view kFrameMagic{"\x28\xb5\x2f\xfd", 4};

void set(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) {
  if (const std::size_t rc = ZSTD_CCtx_setParameter(context, parameter, value); ZSTD_isError(rc))
    throw Error(Errc::internal, std::string("libzstd refuses a parameter: ") + ZSTD_getErrorName(rc));
}

struct FreeCompress {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};
struct FreeDecompress {
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

}  // namespace

struct Compressor::State {
  std::unique_ptr<ZSTD_CCtx, FreeCompress> context{ZSTD_createCCtx()};
  base::Write out;
  std::string feed;
  std::vector<char> buffer = std::vector<char>(ZSTD_CStreamOutSize());
};

Compressor::Compressor(base::Write out) : state_(new State) {
  state_->out = std::move(out);
  if (!state_->context) throw std::bad_alloc();
  ZSTD_CCtx* context = state_->context.get();
  set(context, ZSTD_c_compressionLevel, kStreamLevel);
  set(context, ZSTD_c_windowLog, kWindowLog);
  set(context, ZSTD_c_enableLongDistanceMatching, 1);  // kernels of one template have much in common
  set(context, ZSTD_c_contentSizeFlag, 0);
  set(context, ZSTD_c_checksumFlag, 0);  // the content has its own digest
  set(context, ZSTD_c_dictIDFlag, 0);
  state_->feed.reserve(kFeedBytes);
}
Compressor::~Compressor() = default;

void Compressor::compress(bool last) {
  ZSTD_inBuffer in{state_->feed.data(), state_->feed.size(), 0};
  for (;;) {
    ZSTD_outBuffer out{state_->buffer.data(), state_->buffer.size(), 0};
    const std::size_t rc =
        ZSTD_compressStream2(state_->context.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(rc))
      throw Error(Errc::internal, std::string("libzstd cannot compress: ") + ZSTD_getErrorName(rc));
    if (out.pos > 0) state_->out({state_->buffer.data(), out.pos});
    if (last ? rc == 0 : in.pos == in.size) break;
  }
  state_->feed.clear();
}

void Compressor::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t take = std::min(bytes.size(), kFeedBytes - state_->feed.size());
    state_->feed.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (state_->feed.size() == kFeedBytes) compress(false);
  }
}

void Compressor::end() {
  compress(false);  // so that the end has no input, and zstd takes no shortcut for small contents
  compress(true);
}

struct Decompressor::State {
  std::unique_ptr<ZSTD_DCtx, FreeDecompress> context{ZSTD_createDCtx()};
  base::Read in;
  std::vector<char> buffer = std::vector<char>(ZSTD_DStreamInSize());
  ZSTD_inBuffer input{buffer.data(), 0, 0};
  bool held_back = false, ended = false;
};

Decompressor::Decompressor(base::Read in) : state_(new State) {
  state_->in = std::move(in);
  if (!state_->context) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(state_->context.get(), ZSTD_d_windowLogMax, kWindowLogMax);
}
Decompressor::~Decompressor() = default;

std::size_t Decompressor::read(char* out, std::size_t size) {
  State& s = *state_;
  ZSTD_outBuffer output{out, size, 0};
  while (output.pos == 0 && size > 0 && !s.ended) {
    if (s.input.pos == s.input.size && !s.held_back) {
      s.input = {s.buffer.data(), s.in(s.buffer.data(), s.buffer.size()), 0};
      if (s.input.size == 0) throw BadFrame("it ends in the middle of its compressed content");
    }
    const std::size_t rc = ZSTD_decompressStream(s.context.get(), &output, &s.input);
    if (ZSTD_isError(rc))
      throw BadFrame(std::string("its compressed content is damaged: ") + ZSTD_getErrorName(rc));
    s.held_back = output.pos == output.size;  // zstd may have more for which `out` had no room
    if (rc != 0) continue;
    s.ended = true;
    char more;
    if (s.input.pos != s.input.size || s.in(&more, 1) != 0)
      throw BadFrame("something follows the end of its compressed content");
  }
  return output.pos;
}

std::string compress_frame(std::string_view bytes) {
  std::string out(::ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ::ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kFrameLevel);
  if (::ZSTD_isError(size))
    throw Error(Errc::internal, std::string("libzstd cannot compress: ") + ::ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

std::optional<std::string> decompress_frame(std::string_view frame, std::size_t size) {
  if (!frame.starts_with(kFrameMagic) || ::ZSTD_getFrameContentSize(frame.data(), frame.size()) != size ||
      ::ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size())
    return std::nullopt;
  std::string out(size, '\0');
  if (::ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size()) != size) return std::nullopt;
  return out;
}

}  // namespace kiln::compression
