// The protocol between a compile worker and its host: one request, one response. Both are length-prefixed and
// versioned, and every length has a limit. Both ends come from one build, so another version is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "compile/backend/request.hpp"

namespace kiln::compile {

inline constexpr std::uint32_t kProtocolVersion = 5;
inline constexpr std::size_t kMaxFrame = std::size_t{1} << 30;

std::string encode(const WorkerRequest& request);
std::string encode(const WorkerResponse& response);
/// Both throw base::Malformed.
WorkerRequest decode_request(std::string_view bytes);
WorkerResponse decode_response(std::string_view bytes);

/// Result of sending or receiving one frame: magic "kiln", u32 version, u64 length, bytes. The wait for a
/// peer that does not read or write ends at the deadline. Once the peer has begun to answer, a receiver waits
/// at least one second more, in case it was stopped itself. `peer` is the pidfd of the other side, or -1. The
/// end of that process counts as end of file. A socket does not report it while another process holds the
/// socket, such as a child forked at the wrong moment.
enum class Transfer { ok, closed, deadline, malformed };
Transfer send_frame(int fd, std::string_view bytes, base::Deadline deadline, int peer = -1);
Transfer receive_frame(int fd, std::string& bytes, base::Deadline deadline, int peer = -1);

}  // namespace kiln::compile
