// Looks at an answer's bytes before the parser does, and stops what would cost too much.
//
// hiredis believes what it reads: "*1000000000\r\n" alone makes it reserve 7.6 GB.
//
//   reply = "+" line | "-" line | ":" number | "$" length CRLF bytes CRLF | "*" count CRLF reply...
//   A length or count of -1 is nil. Arrays nest seven deep (hiredis).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

namespace kiln::fleet {

class ReplyBound {
 public:
  enum class Verdict : std::uint8_t { fine, too_large, malformed };
  struct Seen {
    Verdict verdict = Verdict::fine;
    /// How many of the bytes a parser may have: all when fine, else up to the last whole reply.
    std::size_t usable = 0;
  };

  /// The charge for an element of an array beside its bytes: it takes memory before it has come.
  static constexpr std::uint64_t kElementCharge = 64;
  static constexpr int kDeepest = 7;
  /// The most bytes of a status or an error, whatever the reply's limit. hiredis begins a line again with
  /// every piece of it, so that a line of 16 MiB took 4 s.
  static constexpr std::uint64_t kLongestLine = 64 << 10;

  /// One more reply is expected, of at most `limit` bytes, elements charged.
  void expect(std::uint64_t limit) { limits_.push_back(limit); }
  /// Takes bytes in the order they came. Bytes of a reply that nobody expects are malformed. After a verdict
  /// that is not fine the connection is of no use any more.
  Seen see(std::string_view bytes) noexcept;
  /// Bytes of values that lengths have promised so far, whether they have come or not.
  std::uint64_t announced() const noexcept { return announced_; }
  /// No reply is expected or half read.
  bool idle() const noexcept { return limits_.empty(); }

 private:
  enum class State : std::uint8_t { type, number, text, body, body_cr, body_lf };
  Verdict byte(char c) noexcept;
  Verdict line_ended() noexcept;
  bool charge(std::uint64_t bytes) noexcept;
  void element_ended() noexcept;

  std::deque<std::uint64_t> limits_;  // of replies not yet whole; the first shrinks as it is used up
  State state_ = State::type;
  char type_ = 0;
  bool cr_ = false, negative_ = false;
  int digits_ = 0;
  std::uint64_t number_ = 0, body_ = 0, announced_ = 0;
  std::array<std::uint64_t, kDeepest> open_{};  // elements still to come, outermost first
  int depth_ = 0;
};

}  // namespace kiln::fleet
