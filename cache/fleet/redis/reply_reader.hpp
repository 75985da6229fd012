// hiredis's parser, which makes our replies.
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
  /// Returns the next whole reply. `fine` receives false when the bytes are no reply; the reader is
  /// of no use then.
  std::optional<Reply> next(bool& fine);

 private:
  struct Free {
    void operator()(redisReader* reader) const noexcept;
  };
  std::unique_ptr<redisReader, Free> reader_;
};

}  // namespace kiln::fleet
