#include "cache/bundle/chunks.hpp"

#include <algorithm>

#include "cache/bundle/format.hpp"

namespace kiln::bundle {
namespace {

/// Reads the next piece, which is shorter only at the end.
std::string next_piece(const base::Read& in) {
  std::string out(kPieceBytes, '\0');
  std::size_t size = 0;
  while (size < out.size()) {
    const std::size_t got = in(out.data() + size, out.size() - size);
    if (got == 0) break;
    size += got;
  }
  out.resize(size);
  return out;
}

}  // namespace

FirstPass first_pass(const base::Read& in, std::uint64_t max_bytes) {
  FirstPass out;
  trust::Blake2b whole(64);
  for (;;) {
    const std::string piece = next_piece(in);
    if (piece.empty()) break;
    out.bytes += piece.size();
    if (out.bytes > max_bytes)
      throw Error(Errc::io,
                  "it has more than " + std::to_string(max_bytes) + " bytes; --max-bytes allows more");
    whole.add(piece);
    out.pieces.push_back(trust::blake2b<32>(piece));
  }
  out.digest = whole.digest<64>();
  return out;
}

void SecondPass::load() {
  piece_ = next_piece(in_);
  at_ = 0;
  const bool same =
      next_ < seen_.pieces.size() ? trust::blake2b<32>(piece_) == seen_.pieces[next_] : piece_.empty();
  if (!same) throw Refused("it changed after its signature was verified");
  ++next_;
}

std::size_t SecondPass::read(char* out, std::size_t size) {
  if (at_ == piece_.size() && next_ <= seen_.pieces.size()) load();
  const std::size_t take = std::min(size, piece_.size() - at_);
  std::copy_n(piece_.data() + at_, take, out);
  at_ += take;
  return take;
}

}  // namespace kiln::bundle
