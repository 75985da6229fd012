#include "compile/worker/protocol.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/wire.hpp"

namespace kiln::compile {
namespace {

using base::Reader;
using base::Writer;

void put_strings(Writer& out, const std::vector<std::string>& items) {
  out.list(items, [](Writer& w, const std::string& item) { w.bytes(item); });
}
std::vector<std::string> get_strings(Reader& in) {
  std::vector<std::string> items;
  in.list([&](Reader& r) { items.push_back(r.string()); });
  return items;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;
void put_pairs(Writer& out, const Pairs& items) {
  out.list(items, [](Writer& w, const auto& item) { w.bytes(item.first).bytes(item.second); });
}
Pairs get_pairs(Reader& in) {
  Pairs items;
  in.list([&](Reader& r) {
    std::string first = r.string();
    items.emplace_back(std::move(first), r.string());
  });
  return items;
}

struct Header {
  char magic[4] = {'k', 'i', 'l', 'n'};
  std::uint32_t version = kProtocolVersion;
  std::uint64_t size = 0;
};

int poll_timeout(base::Deadline deadline) {
  const auto left = deadline.left();
  if (left == base::Clock::duration::max()) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<long long>(ms, 0, 1 << 30));
}

constexpr auto kFinish = std::chrono::seconds(1);

/// One end of a connection.
struct Connection {
  int fd, peer;
  base::Deadline deadline;

  /// Waits until the socket is ready for `what`.
  Transfer wait_for(short what) const {
    for (;;) {
      pollfd fds[] = {{fd, what, 0}, {peer, POLLIN, 0}};
      const int ready = ::poll(fds, peer >= 0 ? 2 : 1, poll_timeout(deadline));
      if (ready < 0 && errno != EINTR) return Transfer::closed;
      if (ready == 0 && deadline.passed()) return Transfer::deadline;
      if (ready <= 0) continue;
      if (fds[0].revents) return Transfer::ok;
      // The peer has ended. Its last bytes may have arrived after the socket was polled.
      return ::poll(fds, 1, 0) == 1 ? Transfer::ok : Transfer::closed;
    }
  }
  Transfer receive(char* into, std::size_t size) const {
    while (size > 0) {
      if (const Transfer ready = wait_for(POLLIN); ready != Transfer::ok) return ready;
      const ssize_t n = ::recv(fd, into, size, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Transfer::closed;
      into += n;
      size -= static_cast<std::size_t>(n);
    }
    return Transfer::ok;
  }
};

}  // namespace

std::string encode(const WorkerRequest& r) {
  Writer out;
  out.bytes(r.compiler.library).bytes(r.compiler.builtins).bytes(r.program_name).bytes(r.source);
  put_pairs(out, r.roots);
  put_pairs(out, r.replace);
  put_pairs(out, r.overlay);
  put_pairs(out, r.beside);
  out.bytes(r.arch);
  put_strings(out, r.options);
  out.bytes(r.random_seed);
  put_strings(out, r.name_expressions);
  put_strings(out, r.linked);
  out.number<std::uint8_t>(r.trace_headers).number<std::uint8_t>(r.only_headers);
  out.number<std::uint8_t>(r.want_ptx);
  out.number(r.header.step).bytes(r.header.file).number(r.header.heap_bytes).number(r.header.only_in);
  return std::move(out.str());
}

WorkerRequest decode_request(std::string_view bytes) {
  Reader in(bytes);
  WorkerRequest r;
  r.compiler.library = in.string();
  r.compiler.builtins = in.string();
  r.program_name = in.string();
  r.source = in.string();
  r.roots = get_pairs(in);
  r.replace = get_pairs(in);
  r.overlay = get_pairs(in);
  r.beside = get_pairs(in);
  r.arch = in.string();
  r.options = get_strings(in);
  r.random_seed = in.string();
  r.name_expressions = get_strings(in);
  r.linked = get_strings(in);
  r.trace_headers = in.number<std::uint8_t>() != 0;
  r.only_headers = in.number<std::uint8_t>() != 0;
  r.want_ptx = in.number<std::uint8_t>() != 0;
  r.header.step = in.number<HeaderOrder::Step>();
  if (r.header.step > HeaderOrder::Step::use) throw base::Malformed("unknown header step");
  r.header.file = in.string();
  r.header.heap_bytes = in.number<std::uint64_t>();
  r.header.only_in = in.number<std::int32_t>();
  return r;
}

std::string encode(const WorkerResponse& r) {
  Writer out;
  out.number(r.status).bytes(r.message).bytes(r.image).bytes(r.ptx).bytes(r.log);
  put_strings(out, r.lowered_names);
  put_strings(out, r.headers_read);
  out.bytes(r.private_directory).bytes(r.compiler_version);
  out.number(r.frontend_ms).number(r.nvvm_ms).number(r.ptxas_ms).number(r.total_ms);
  out.number(r.header.end).bytes(r.header.file).bytes(r.header.why).number(r.worker_pid);
  return std::move(out.str());
}

WorkerResponse decode_response(std::string_view bytes) {
  Reader in(bytes);
  WorkerResponse r;
  r.status = in.number<WorkerResponse::Status>();
  if (r.status > WorkerResponse::Status::failed) throw base::Malformed("unknown status");
  r.message = in.string();
  r.image = in.string();
  r.ptx = in.string();
  r.log = in.string();
  r.lowered_names = get_strings(in);
  r.headers_read = get_strings(in);
  r.private_directory = in.string();
  r.compiler_version = in.string();
  for (double* ms : {&r.frontend_ms, &r.nvvm_ms, &r.ptxas_ms, &r.total_ms}) *ms = in.number<double>();
  r.header.end = in.number<HeaderOutcome::End>();
  if (r.header.end > HeaderOutcome::End::not_here) throw base::Malformed("unknown header outcome");
  r.header.file = in.string();
  r.header.why = in.string();
  r.worker_pid = in.number<std::int32_t>();
  return r;
}

Transfer send_frame(int fd, std::string_view bytes, base::Deadline deadline, int peer) {
  const Connection connection{fd, peer, deadline};
  Header header;
  header.size = bytes.size();
  char raw[sizeof header];
  std::memcpy(raw, &header, sizeof header);
  for (std::string_view part : {std::string_view(raw, sizeof raw), bytes}) {
    while (!part.empty()) {
      const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        part.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (const Transfer ready = connection.wait_for(POLLOUT); ready != Transfer::ok) return ready;
      } else if (errno != EINTR) {
        return Transfer::closed;
      }
    }
  }
  return Transfer::ok;
}

Transfer receive_frame(int fd, std::string& bytes, base::Deadline deadline, int peer) {
  Connection connection{fd, peer, deadline};
  Header header, expected;
  char raw[sizeof header];
  if (const Transfer r = connection.receive(raw, sizeof raw); r != Transfer::ok) return r;
  std::memcpy(&header, raw, sizeof header);
  if (std::memcmp(header.magic, expected.magic, 4) != 0 || header.version != expected.version ||
      header.size > kMaxFrame) {
    return Transfer::malformed;
  }
  if (const auto finish = base::Deadline::after(kFinish); deadline.at() < finish.at())
    connection.deadline = finish;
  bytes.clear();
  // Memory grows as bytes arrive, so that a false length costs no more memory than the bytes that were sent.
  constexpr std::size_t step = std::size_t{1} << 20;
  while (bytes.size() < header.size) {
    const std::size_t have = bytes.size(), want = std::min<std::size_t>(step, header.size - have);
    bytes.resize(have + want);
    if (const Transfer r = connection.receive(bytes.data() + have, want); r != Transfer::ok) return r;
  }
  return Transfer::ok;
}

}  // namespace kiln::compile
