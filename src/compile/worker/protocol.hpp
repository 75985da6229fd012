// What goes over the socket between a compile worker and its host: one request, one response,
// length-prefixed, versioned, every length bounded. Both ends come from one build; a version that differs is
// refused, never guessed at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "compile/backend/request.hpp"

namespace kiln::compile {

inline constexpr std::uint32_t kProtocolVersion = 4;
inline constexpr std::size_t kMaxFrame = std::size_t{1} << 30;

std::string encode(const WorkerRequest& request);
std::string encode(const WorkerResponse& response);
/// Throw base::Malformed.
WorkerRequest decode_request(std::string_view bytes);
WorkerResponse decode_response(std::string_view bytes);

/// Frame: magic "kiln", u32 version, u64 length, bytes. A peer that does not read or write costs no more than
/// the deadline; once it has begun to answer it has a second more, for a receiver that was stopped meanwhile.
/// `peer`: the other side's pidfd. Its end counts as end of file, which does not come while somebody else,
/// such as a child forked at the wrong moment, has the socket; -1: end of file must do.
enum class Transfer { ok, closed, deadline, malformed };
Transfer send_frame(int fd, std::string_view bytes, base::Deadline deadline, int peer = -1);
Transfer receive_frame(int fd, std::string& bytes, base::Deadline deadline, int peer = -1);

}  // namespace kiln::compile
