#include "compile/worker/protocol.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "base/fd.hpp"
#include "base/wire.hpp"
#include "compile/key/facts.hpp"

namespace kiln::compile {
namespace {

WorkerRequest sample_request() {
  WorkerRequest r;
  r.compiler.library = "/x/libnvrtc.so", r.compiler.builtins = "/x/b.so", r.program_name = "/dev/null/t.cu",
  r.source = std::string("a\0b", 3);
  r.roots = {{".k0", "/t"}, {".t0", "/cuda"}};
  r.arch = "sm_90a", r.options = {"-std=c++17", ""}, r.random_seed = "ff", r.name_expressions = {"k<1>"},
  r.linked = {"/farm/x.h"}, r.trace_headers = true;
  r.header = {HeaderOrder::Step::use, "/proc/7/fd/3", 1 << 20, 42};
  return r;
}

WorkerResponse sample_response() {
  WorkerResponse r;
  r.status = WorkerResponse::Status::ok;
  r.image = std::string(
      "\x7f"
      "ELF\0",
      5),
  r.log = "log", r.lowered_names = {"_Z1k"}, r.headers_read = {".k0/a.h"}, r.compiler_version = "13.0";
  r.ptxas_ms = 1.5, r.total_ms = 40;
  r.header = {HeaderOutcome::End::refused, "/x/header.pch", "why"}, r.worker_pid = 43;
  return r;
}

TEST(Protocol, RequestAndResponseSurviveTheRoundTrip) {
  const WorkerRequest request = decode_request(encode(sample_request()));
  EXPECT_EQ(request.source, sample_request().source);
  EXPECT_EQ(request.roots, sample_request().roots);
  EXPECT_EQ(request.options, sample_request().options);
  EXPECT_TRUE(request.trace_headers);
  const WorkerResponse response = decode_response(encode(sample_response()));
  EXPECT_EQ(response.image, sample_response().image);
  EXPECT_EQ(response.lowered_names, sample_response().lowered_names);
  EXPECT_EQ(response.ptxas_ms, 1.5);
  EXPECT_EQ(request.header.step, HeaderOrder::Step::use);
  EXPECT_EQ(request.header.file, "/proc/7/fd/3");
  EXPECT_EQ(request.header.heap_bytes, 1u << 20);
  EXPECT_EQ(request.header.only_in, 42);
  EXPECT_EQ(response.header.end, HeaderOutcome::End::refused);
  EXPECT_EQ(response.header.file, "/x/header.pch");
  EXPECT_EQ(response.header.why, "why");
  EXPECT_EQ(response.worker_pid, 43);
}

TEST(Protocol, EveryTruncationIsMalformedAndNothingWorse) {
  const std::string request = encode(sample_request()), response = encode(sample_response());
  for (std::size_t n = 0; n < request.size(); ++n)
    EXPECT_THROW(decode_request(std::string_view(request).substr(0, n)), base::Malformed) << n;
  for (std::size_t n = 0; n < response.size(); ++n)
    EXPECT_THROW(decode_response(std::string_view(response).substr(0, n)), base::Malformed) << n;
}

TEST(Protocol, RandomDamageNeverDoesMoreThanThrow) {
  std::mt19937 random(7);
  const std::string good = encode(sample_response());
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int flips = 0; flips < 3; ++flips)
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    try {
      decode_response(bad);
    } catch (const base::Malformed&) {
    }
  }
}

TEST(Protocol, FramesPassASocketAndABadOneIsRefused) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  base::Fd a(pair[0]), b(pair[1]);
  const std::string big(5 << 20, 'x');
  std::thread sender([&] { EXPECT_EQ(send_frame(a.get(), big, base::Deadline::never()), Transfer::ok); });
  std::string got;
  EXPECT_EQ(receive_frame(b.get(), got, base::Deadline::after(std::chrono::seconds(10))), Transfer::ok);
  sender.join();
  EXPECT_EQ(got, big);

  EXPECT_EQ(receive_frame(b.get(), got, base::Deadline::after(std::chrono::milliseconds(20))),
            Transfer::deadline);
  ASSERT_EQ(::write(a.get(), "garbage garbage garbage", 23), 23);
  EXPECT_EQ(receive_frame(b.get(), got, base::Deadline::after(std::chrono::seconds(1))), Transfer::malformed);
  a.reset();
  std::string rest(64, '\0');
  while (::read(b.get(), rest.data(), rest.size()) > 0) {
  }
  EXPECT_EQ(receive_frame(b.get(), got, base::Deadline::never()), Transfer::closed);
}

TEST(Protocol, APeerThatDoesNotReadCostsNoMoreThanTheDeadline) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const base::Fd a(pair[0]), b(pair[1]);
  EXPECT_EQ(
      send_frame(a.get(), std::string(8 << 20, 'x'), base::Deadline::after(std::chrono::milliseconds(50))),
      Transfer::deadline);
}

TEST(Protocol, ALengthThatLiesCostsNoMemory) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  base::Fd a(pair[0]), b(pair[1]);
  struct {
    char magic[4] = {'k', 'i', 'l', 'n'};
    std::uint32_t version = kProtocolVersion;
    std::uint64_t size = kMaxFrame;
  } header;
  ASSERT_EQ(::write(a.get(), &header, sizeof header), static_cast<ssize_t>(sizeof header));
  a.reset();
  std::string got;
  EXPECT_EQ(receive_frame(b.get(), got, base::Deadline::never()), Transfer::closed);
  EXPECT_LE(got.capacity(), std::size_t{4} << 20);
}

TEST(Facts, SurviveTheRoundTripAndEveryTruncationIsMalformed) {
  Facts f;
  f.unit = "rms_norm", f.parameters = {{"T", "bf16"}, {"H", "4096"}}, f.arch = "sm_90a",
  f.lowered_name = "_Z", f.arguments = {{0, 8}, {1, 4}};
  f.registers = 40, f.cluster = {2, 1, 1}, f.performance_warnings = {"C7508"}, f.ptxas_ms = 3,
  f.created_s = 1, f.project_header_through_toolkit = true;
  const std::string bytes = encode(f);
  const Facts g = decode_facts(bytes);
  EXPECT_EQ(g.specialization().to_string(), "rms_norm T=bf16 H=4096");
  EXPECT_EQ(g.arguments[1].size, 4u);
  EXPECT_EQ(g.cluster[0], 2u);
  EXPECT_TRUE(g.project_header_through_toolkit);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(decode_facts(std::string_view(bytes).substr(0, n)), base::Malformed) << n;
}

}  // namespace
}  // namespace kiln::compile
