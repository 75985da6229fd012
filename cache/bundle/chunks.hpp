// Two passes over a file that must be the same both times: the first for its signature, the second for its
// content.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stream.hpp"
#include "cache/trust/blake2b.hpp"

namespace kiln::bundle {

/// The result of the first pass: the digest that a signature covers, and a digest of each piece.
struct FirstPass {
  Bytes<64> digest;  ///< BLAKE2b-512 of the whole
  std::vector<Bytes<32>> pieces;
  std::uint64_t bytes = 0;
};
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Reads the whole file. Throws Error(io) when it has more than `max_bytes`.
FirstPass first_pass(const base::Read& in, std::uint64_t max_bytes);

/// Reads the file once more. A piece is handed out only when it is the one that the first pass saw. Throws
/// Refused when the file has changed.
class SecondPass {
 public:
  SecondPass(base::Read in, FirstPass seen) : in_(std::move(in)), seen_(std::move(seen)) {}
  std::size_t read(char* out, std::size_t size);

 private:
  void load();
  const base::Read in_;
  const FirstPass seen_;
  std::string piece_;
  std::size_t at_ = 0, next_ = 0;
};

}  // namespace kiln::bundle
