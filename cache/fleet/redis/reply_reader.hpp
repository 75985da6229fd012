// hiredis's parser, making our replies.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "cache/fleet/redis/reply.hpp"

struct redisReader;

namespace kiln::fleet {

/// Believes what it reads: show the bytes to a ReplyBound first. Throws std::bad_alloc.
class ReplyReader {
 public:
  ReplyReader();
  void feed(std::string_view bytes);
  /// The next whole reply. False in `fine` when the bytes are none; the reader is of no use then.
  std::optional<Reply> next(bool& fine);

 private:
  struct Free {
    void operator()(redisReader* reader) const noexcept;
  };
  std::unique_ptr<redisReader, Free> reader_;
};

}  // namespace kiln::fleet
