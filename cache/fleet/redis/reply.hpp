// A command for a server of the Redis protocol, and what the server answered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/fleet/fault.hpp"

namespace kiln::fleet {

struct Command {
  std::vector<std::string> words;  ///< name and arguments; bytes, not text
  std::string tag;  ///< decides the server: the specialisation in hex, or empty for the first server
  /// The most bytes of the answer on the wire, everything inside counted. A longer answer is not read.
  std::uint64_t reply_limit = 1 << 16;
  /// True: no caller waits for the answer. The time for the exchange then begins again whenever the server takes bytes,
  /// so a slow server gets a large value, and one that hangs is given up as soon as for other commands.
  bool patient = false;
};

struct Reply {
  enum class Kind : std::uint8_t { nil, status, integer, bulk, array, error };
  Kind kind = Kind::nil;
  std::int64_t integer = 0;
  std::string text;             ///< of status, bulk, and of an error within an array
  std::vector<Reply> elements;  ///< of an array
};

struct Answer {
  Fault fault = Fault::none;
  std::string detail;  ///< for people; names no password
  Reply reply;         ///< nil unless the fault is none
  explicit operator bool() const noexcept { return fault == Fault::none; }
};

/// Returns whether a value of another Redis type lies under the name.
inline bool is_of_wrong_type(Fault fault, const std::string& detail) {
  return fault == Fault::refused && detail.starts_with("WRONGTYPE");
}

}  // namespace kiln::fleet
