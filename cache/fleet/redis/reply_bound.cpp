#include "cache/fleet/redis/reply_bound.hpp"

#include <algorithm>
#include <limits>

namespace kiln::fleet {

bool ReplyBound::charge(std::uint64_t bytes) noexcept {
  if (bytes > limits_.front()) return false;
  limits_.front() -= bytes;
  return true;
}

ReplyBound::Seen ReplyBound::see(std::string_view bytes) noexcept {
  std::size_t whole = 0, at = 0;
  while (at < bytes.size()) {
    if (limits_.empty()) return {Verdict::malformed, whole};
    const std::size_t replies = limits_.size();
    Verdict verdict = Verdict::fine;
    if (state_ == State::body) {
      const std::uint64_t skipped = std::min<std::uint64_t>(body_, bytes.size() - at);
      body_ -= skipped;
      at += skipped;
      if (body_ == 0) state_ = State::body_cr;
    } else {
      verdict = charge(1) ? byte(bytes[at]) : Verdict::too_large;
      ++at;
    }
    if (verdict != Verdict::fine) return {verdict, whole};
    if (limits_.size() != replies) whole = at;
  }
  return {Verdict::fine, bytes.size()};
}

ReplyBound::Verdict ReplyBound::byte(char c) noexcept {
  switch (state_) {
    case State::type:
      if (c != '+' && c != '-' && c != ':' && c != '$' && c != '*') return Verdict::malformed;
      type_ = c;
      state_ = c == '+' || c == '-' ? State::text : State::number;
      cr_ = negative_ = false;
      digits_ = 0;
      number_ = 0;
      return Verdict::fine;
    case State::text:
      if (cr_ && c == '\n') {
        element_ended();
        return Verdict::fine;
      }
      cr_ = c == '\r';
      return ++number_ > kLongestLine ? Verdict::too_large : Verdict::fine;
    case State::number:
      if (cr_) return c == '\n' ? line_ended() : Verdict::malformed;
      if (c == '\r') {
        cr_ = true;
        return digits_ > 0 ? Verdict::fine : Verdict::malformed;
      }
      if (c == '-' && digits_ == 0 && !negative_) {
        negative_ = true;
        return Verdict::fine;
      }
      if (c < '0' || c > '9' || ++digits_ > 19) return Verdict::malformed;
      if (digits_ > 1 && number_ == 0) return Verdict::malformed;  // "01"
      if (digits_ == 1 && negative_ && c == '0') return Verdict::malformed;
      number_ = number_ * 10 + static_cast<std::uint64_t>(c - '0');
      return Verdict::fine;
    case State::body:
      break;  // skipped by see()
    case State::body_cr:
      state_ = State::body_lf;
      return c == '\r' ? Verdict::fine : Verdict::malformed;
    case State::body_lf:
      if (c != '\n') return Verdict::malformed;
      element_ended();
      return Verdict::fine;
  }
  return Verdict::malformed;
}

ReplyBound::Verdict ReplyBound::line_ended() noexcept {
  if (number_ > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return Verdict::malformed;
  if (type_ == ':') {
    element_ended();
    return Verdict::fine;
  }
  if (negative_) {
    if (number_ != 1) return Verdict::malformed;
    element_ended();
    return Verdict::fine;
  }
  if (type_ == '$') {
    if (!charge(number_)) return Verdict::too_large;
    announced_ += number_;
    body_ = number_;
    state_ = number_ == 0 ? State::body_cr : State::body;
    return Verdict::fine;
  }
  if (number_ > limits_.front() / kElementCharge) return Verdict::too_large;
  charge(number_ * kElementCharge);
  if (number_ == 0) {
    element_ended();
    return Verdict::fine;
  }
  if (depth_ == kDeepest) return Verdict::malformed;
  open_[static_cast<std::size_t>(depth_++)] = number_;
  state_ = State::type;
  return Verdict::fine;
}

void ReplyBound::element_ended() noexcept {
  state_ = State::type;
  while (depth_ > 0 && --open_[static_cast<std::size_t>(depth_) - 1] == 0) --depth_;
  if (depth_ == 0) limits_.pop_front();
}

}  // namespace kiln::fleet
