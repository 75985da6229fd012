// A slot of the board: the bytes as they are, and as the body of a slot with the right head.
#include "cache/flight/board.hpp"

#include <cstring>

#include "base/hash.hpp"
#include "base/wire.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;

namespace {

constexpr std::uint64_t kSalt = 4711;

void read_and_write(const fuzz::File& file, std::string_view bytes) {
  file.write(bytes);
  cache::Board board(file.path(), kSalt);
  for (const cache::BoardEntry& entry : board.read_all()) {
    entry.who();
    entry.endings_without_record();
    const auto same = board.read(entry.key);
    fuzz::expect(!same || same->key == entry.key, "the entry of this key");
    const cache::BoardEntry begun = board.begin(entry.key, "a subject");
    board.end(begun, cache::FlightState::published);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file("board");
  const std::string body(fuzz::view(data, size));
  read_and_write(file, body);
  base::Writer slot;
  slot.number(std::uint32_t{0x4452424b}).number(std::uint32_t{1}).number(static_cast<std::uint32_t>(size));
  slot.number(base::hash64(body) ^ kSalt);
  slot.str() += body;
  read_and_write(file, slot.str());
  return 0;
}
