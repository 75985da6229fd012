#include "cache/fleet/redis/exchange.hpp"

#include <utility>

namespace kiln::fleet {
namespace {

constexpr std::size_t kReadStep = 32 << 10;
constexpr std::size_t kLongestDetail = 400;
/// A connection that read more than this gives the parser's buffer back, because it may be idle for ever.
constexpr std::uint64_t kKeptBuffer = 1 << 20;

}  // namespace

Failure failure_of(const Channel& channel, Io io, const char* doing) {
  bool tls = false;
  const std::string why = channel.why(tls);
  if (tls && io == Io::failed) return {Fault::tls, why};
  if (io == Io::closed)
    return {Fault::closed, std::string("the server closed the connection (") + doing + ')'};
  return {Fault::closed, std::string(doing) + ": " + why};
}

void Exchange::begin(std::string bytes, std::span<const std::uint64_t> limits) {
  replies_.clear();
  out_ = std::move(bytes);
  sent_ = 0;
  expected_ = limits.size();
  for (const std::uint64_t limit : limits) bound_.expect(limit);
  announced_before_ = bound_.announced();
  in_before_ = bytes_in_;
}

std::optional<Failure> Exchange::proceed(const std::function<bool()>& in_time) {
  while (send_some(in_time) && receive_some() && in_time()) {
  }
  return failure_;
}

void Exchange::finish() {
  out_ = {};
  if (bytes_in_ - in_before_ > kKeptBuffer) reader_ = ReplyReader();
}

void Exchange::clear() {
  out_.clear();
  sent_ = 0;
  replies_.clear();
}

/// The first failure counts.
void Exchange::fail(Failure failure) {
  if (!failure_) failure_ = std::move(failure);
}

bool Exchange::send_some(const std::function<bool()>& in_time) {
  while (sent_ < out_.size()) {
    std::size_t moved = 0;
    const Io io = channel_.write(std::string_view(out_).substr(sent_), moved);
    if (io == Io::again) return true;
    // A server that closes may have said why, so its bytes are read first.
    if (io == Io::closed) {
      while (receive_some() && in_time()) {
      }
      if (replies_.size() < expected_) fail(failure_of(channel_, io, "sending"));
      return false;
    }
    if (io != Io::done) {
      fail(failure_of(channel_, io, "sending"));
      return false;
    }
    sent_ += moved;
    bytes_out_ += moved;
  }
  if (channel_.unsent()) {
    const Io io = channel_.flush();
    if (io == Io::closed || io == Io::failed) {
      fail(failure_of(channel_, io, "sending"));
      return false;
    }
  }
  return true;
}

/// Returns whether there may be more to read.
bool Exchange::receive_some() {
  if (replies_.size() >= expected_) return false;
  char buffer[kReadStep];
  std::size_t moved = 0;
  const Io io = channel_.read(buffer, sizeof buffer, moved);
  if (io == Io::again) return false;
  if (io != Io::done) {
    fail(failure_of(channel_, io, "reading"));
    return false;
  }
  bytes_in_ += moved;
  const ReplyBound::Seen seen = bound_.see({buffer, moved});
  reader_.feed({buffer, seen.usable});
  take_replies();
  if (failure_) return false;
  if (seen.verdict == ReplyBound::Verdict::too_large)
    fail({Fault::too_large, "the answer is larger than this command allows"});
  else if (seen.verdict == ReplyBound::Verdict::malformed)
    fail({Fault::protocol, "the answer is not in the Redis protocol"});
  return !failure_;
}

void Exchange::take_replies() {
  bool fine = true;
  while (auto reply = reader_.next(fine)) {
    if (reply->text.size() > kLongestDetail && reply->kind == Reply::Kind::error)
      reply->text.resize(kLongestDetail);
    replies_.push_back(std::move(*reply));
  }
  if (!fine) fail({Fault::protocol, "the answer is malformed"});
}

}  // namespace kiln::fleet
