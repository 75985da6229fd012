// Workers that answer nothing, garbage, too much, or something that was not asked.
#include <cstring>

#include "compile/worker/protocol.hpp"
#include "tests/fault/compile/hostile_fixture.hpp"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

class HostileWorker : public HostileTest {
 protected:
  /// Makes one request to a service whose workers run this shell script; the socket is descriptor 3. The
  /// request must fail. Then a service with the real worker must work. Returns the error's message.
  std::string ask(const std::string& script, Errc code, double seconds, const std::vector<std::string>& words,
                  fs::perms permissions = fs::perms::owner_all) {
    const std::string path = tree_.write("worker/script", script);
    fs::permissions(path, permissions);
    return ask_executable(path, code, seconds, words);
  }
  std::string ask_executable(const std::string& path, Errc code, double seconds,
                             const std::vector<std::string>& words) {
    Options o = with_deadline(2);
    o.worker = path;
    std::string message;
    {
      Service service(o);
      add(service, "asked", small_source());
      message = expect_fails(service, "asked", code, seconds, words);
    }
    Service healthy(with_deadline(60));
    expect_works(healthy);
    return message;
  }
  /// A script that answers with these bytes.
  std::string answers(const std::string& bytes, const std::string& then = "exec sleep 600") const {
    return "#!/bin/sh\nhead -c 16 <&3 >/dev/null\ncat " + tree_.write("worker/answer", bytes) + " >&3\n" +
           then + '\n';
  }
  static std::string header(std::uint32_t version, std::uint64_t size) {
    std::string out = "kiln";
    out.append(reinterpret_cast<const char*>(&version), 4);
    out.append(reinterpret_cast<const char*>(&size), 8);
    return out;
  }
  static std::string frame(const std::string& body) {
    return header(compile::kProtocolVersion, body.size()) + body;
  }
};

TEST_F(HostileWorker, ExitsAtOnce) {
  ask("#!/bin/sh\nexit 3\n", Errc::compile_crashed, 1, {"the compile worker died", "status 3"});
}

TEST_F(HostileWorker, ClosesTheSocketAndLivesOn) {
  // The worker lives until it is killed: the host must not wait for it to end by itself.
  ask("#!/bin/sh\nexec 3>&-\nexec sleep 600\n", Errc::compile_crashed, 2,
      {"the compile worker died: it closed its socket without an answer"});
}

TEST_F(HostileWorker, NeverAnswers) {
  ask("#!/bin/sh\nexec sleep 600\n", Errc::compile_timeout, 2, {"killed at its deadline"});
}

TEST_F(HostileWorker, NeverReadsAndTheRequestIsLargerThanTheSocket) {
  const std::string path = tree_.write("worker/script", "#!/bin/sh\nexec sleep 600\n");
  fs::permissions(path, fs::perms::owner_all);
  Options o = with_deadline(2);
  o.worker = path;
  Service service(o);
  add(service, "large", small_source("/*" + std::string(std::size_t{8} << 20, 'x') + "*/\n"));
  expect_fails(service, "large", Errc::compile_timeout, 2, {"killed at its deadline"});
}

TEST_F(HostileWorker, WritesRandomBytes) {
  ask("#!/bin/sh\nhead -c 1000000 /dev/urandom >&3\nexec sleep 600\n", Errc::compile_crashed, 1,
      {"malformed"});
}

TEST_F(HostileWorker, AnnouncesMoreThanAFrameMayHold) {
  ask(answers(header(compile::kProtocolVersion, ~std::uint64_t{0})), Errc::compile_crashed, 1, {"malformed"});
}

TEST_F(HostileWorker, AnnouncesAGigabyteAndSendsNothing) {
  ask(answers(header(compile::kProtocolVersion, compile::kMaxFrame)), Errc::compile_timeout, 2, {"deadline"});
}

TEST_F(HostileWorker, EndsInTheMiddleOfItsAnswer) {
  const std::string whole = compile::encode(compile::WorkerResponse{});
  ask(answers(header(compile::kProtocolVersion, whole.size()) + whole.substr(0, whole.size() / 2), "exit 0"),
      Errc::compile_crashed, 1, {"the compile worker died"});
}

TEST_F(HostileWorker, AnswersWithLengthsThatLie) {
  for (std::size_t cut : {1, 5, 20, 60}) {
    std::string body = compile::encode(compile::WorkerResponse{});
    ask(answers(frame(body.substr(0, std::min(cut, body.size() - 1)))), Errc::compile_crashed, 1,
        {"malformed"});
    std::memset(body.data() + std::min(cut, body.size() - 4), 0xff, 4);
    ask(answers(frame(body)), Errc::compile_crashed, 1, {});
  }
}

TEST_F(HostileWorker, SpeaksAnOlderProtocol) {
  const std::string body = compile::encode(compile::WorkerResponse{});
  ask(answers(header(compile::kProtocolVersion - 1, body.size()) + body), Errc::compile_crashed, 1,
      {"malformed"});
}

TEST_F(HostileWorker, AnswersASuccessWithoutAnImage) {
  compile::WorkerResponse r;
  r.status = compile::WorkerResponse::Status::ok;
  r.lowered_names = {"_Z5scaleIfLi7EEvPT_i"};
  ask(answers(frame(compile::encode(r))), Errc::compile_crashed, 1, {"asked T=f32 N=7", "is no image"});
}

TEST_F(HostileWorker, AnswersWithAnImageOfAnotherRequest) {
  compile::WorkerResponse r;
  r.status = compile::WorkerResponse::Status::ok;
  {  // a real image, of another kernel
    Service service(with_deadline(60));
    r.image = compile(service, "scale", {Dtype::i32, 9}).image->bytes;
  }
  r.lowered_names = {"_Z5scaleIfLi7EEvPT_i"};
  ask(answers(frame(compile::encode(r))), Errc::compile_failed, 1, {"no entry point"});
}

TEST_F(HostileWorker, IsMissing) {
  ask_executable(tree_.at("worker/none"), Errc::no_compiler, 1,
                 {"cannot start the compile worker", "worker/none", "No such file"});
}

TEST_F(HostileWorker, IsNotExecutable) {
  ask("#!/bin/sh\nexit 0\n", Errc::no_compiler, 1,
      {"cannot start the compile worker", "worker/script", "Permission denied"}, fs::perms::owner_read);
}

TEST_F(HostileWorker, IsNoProgram) {
  ask(std::string("\x7f"
                  "ELF garbage"),
      Errc::no_compiler, 1, {"cannot start the compile worker", "worker/script", "Exec format error"});
}

TEST_F(HostileWorker, IsADirectory) {
  ask_executable(tree_.at("worker"), Errc::no_compiler, 1, {"cannot start the compile worker"});
}

}  // namespace
}  // namespace kiln::testing
