// An exchange sends the bytes of several commands over a channel and takes their replies as they come.
// It has no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/fleet/net/channel.hpp"
#include "cache/fleet/redis/reply.hpp"
#include "cache/fleet/redis/reply_bound.hpp"
#include "cache/fleet/redis/reply_reader.hpp"

namespace kiln::fleet {

/// The fault that ended a connection.
struct Failure {
  Fault fault = Fault::none;
  std::string detail;  ///< for people
};
/// Says why an operation on the channel failed, while `doing` this.
Failure failure_of(const Channel& channel, Io io, const char* doing);

/// The exchanges on one connection, one after the other; a fault ends them all. Not thread-safe.
class Exchange {
 public:
  /// `channel` must outlive this object.
  explicit Exchange(Channel& channel) : channel_(channel) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// One reply is expected for each of `limits`, which bound their bytes.
  void begin(std::string bytes, std::span<const std::uint64_t> limits);
  /// Goes on as far as possible without waiting, while `in_time()` is true. Returns what ended the
  /// connection, if something did. Throws std::bad_alloc; then the connection is of no use.
  std::optional<Failure> proceed(const std::function<bool()>& in_time);
  /// All replies have come.
  bool answered() const noexcept { return replies_.size() >= expected_; }
  /// Some of the bytes have not been taken yet.
  bool sending() const noexcept { return sent_ < out_.size(); }
  /// Gives memory back that a large exchange took.
  void finish();
  /// Forgets the bytes and the replies.
  void clear();

  /// The replies that have come so far, in order.
  std::vector<Reply>& replies() noexcept { return replies_; }
  /// Bytes that are sent, and bytes that the replies' lengths have promised so far.
  std::uint64_t load() const noexcept { return out_.size() + bound_.announced() - announced_before_; }
  /// No reply is expected or half read.
  bool idle() const noexcept { return bound_.idle(); }
  /// Bytes of all exchanges on this connection.
  std::uint64_t bytes_in() const noexcept { return bytes_in_; }
  std::uint64_t bytes_out() const noexcept { return bytes_out_; }

 private:
  bool send_some(const std::function<bool()>& in_time);
  bool receive_some();
  void take_replies();
  void fail(Failure failure);

  Channel& channel_;
  ReplyBound bound_;
  ReplyReader reader_;
  std::string out_;
  std::size_t sent_ = 0, expected_ = 0;
  std::uint64_t announced_before_ = 0, in_before_ = 0;
  std::vector<Reply> replies_;
  std::optional<Failure> failure_;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
};

}  // namespace kiln::fleet
