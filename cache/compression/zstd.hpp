// The only wrapper of libzstd: streams of bounded memory for bundles, and whole frames for the fleet's
// envelopes. Both use one thread and fixed parameters, so that the same content gives the same bytes with the
// same libzstd.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/stream.hpp"
#include "kiln/error.hpp"

namespace kiln::compression {

/// The largest window, as a power of two, that a Decompressor allocates.
inline constexpr int kWindowLogMax = 27;

/// Compressed bytes that are not one whole frame. The message says what is wrong with them.
struct BadFrame : Error {
  explicit BadFrame(const std::string& message) : Error(Errc::io, message) {}
};

/// Compresses a stream into one frame. Not thread-safe.
class Compressor {
 public:
  explicit Compressor(base::Write out);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  void write(std::string_view bytes);
  /// Ends the frame. REQUIRES: it is called once.
  void end();

 private:
  struct State;
  void compress(bool last);
  std::unique_ptr<State> state_;
};

/// Decompresses a stream that holds one frame and nothing else. Not thread-safe.
class Decompressor {
 public:
  explicit Decompressor(base::Read in);
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  /// Works as base::Read. Throws BadFrame when the stream is no frame, is damaged, wants a larger window,
  /// ends early or goes on after the frame.
  std::size_t read(char* out, std::size_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One frame that states the size of its content. Throws bad_alloc; Error(internal) when libzstd refuses.
std::string compress_frame(std::string_view bytes);

/// The content of a frame that states `size` bytes and holds them, with nothing after it. Returns nothing for
/// any other frame, and allocates nothing for a frame that states another size. Throws bad_alloc.
std::optional<std::string> decompress_frame(std::string_view frame, std::size_t size);

}  // namespace kiln::compression
