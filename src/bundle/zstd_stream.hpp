// zstd as streams of bounded memory. One thread and fixed parameters: the same content gives the same bytes
// with the same libzstd.
#pragma once

#include <memory>
#include <string>

#include "bundle/stream.hpp"

namespace kiln::bundle {

class Compressor {
 public:
  explicit Compressor(Write out);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  void write(std::string_view bytes);
  /// Ends the frame. Once.
  void end();

 private:
  struct State;
  void compress(bool last);
  std::unique_ptr<State> state_;
};

class Decompressor {
 public:
  /// One frame, which is all that `in` has.
  explicit Decompressor(Read in);
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  /// As Read. Throws Refused for what is no frame, is damaged, wants a larger window, ends early or has
  /// something behind it.
  std::size_t read(char* out, std::size_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::bundle
