// Answers of a server. hiredis must parse everything that the scanner lets through, into as
// many replies, and within the memory limit.
// The first two bytes are the number of expected replies and the
// size of the pieces in which the rest arrives.
#include "cache/fleet/redis/cluster_slots.hpp"
#include "cache/fleet/redis/reply_bound.hpp"
#include "cache/fleet/redis/reply_reader.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;
using namespace kiln::fleet;

namespace {

constexpr std::uint64_t kLimit = 4096;

/// The charge of a reply, counted like the scanner does.
std::uint64_t charge_of(const Reply& reply) {
  std::uint64_t sum = reply.text.size();
  for (const Reply& element : reply.elements) sum += ReplyBound::kElementCharge + charge_of(element);
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t expected = data[0] % 4 + 1u, piece = data[1] % 32 + 1u;
  const std::string_view bytes = fuzz::view(data + 2, size - 2);
  ReplyBound bound;
  ReplyReader reader;
  for (std::size_t i = 0; i < expected; ++i) bound.expect(kLimit);
  std::size_t replies = 0;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    const ReplyBound::Seen seen = bound.see(part);
    fuzz::expect(seen.usable <= part.size(), "usable bytes are some that came");
    reader.feed(part.substr(0, seen.usable));
    bool fine = true;
    while (const auto reply = reader.next(fine)) {
      ++replies;
      fuzz::expect(charge_of(*reply) <= kLimit, "a reply within its limit");
      hash_slot_ranges(*reply);
      if (reply->kind == Reply::Kind::error) redirection(reply->text);
    }
    fuzz::expect(fine, "the parser takes what the scanner lets through");
    if (seen.verdict != ReplyBound::Verdict::fine) return 0;
    fuzz::expect(bound.idle() == (replies == expected), "both count the same replies");
  }
  return 0;
}
