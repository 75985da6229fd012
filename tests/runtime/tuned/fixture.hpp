// The vocabulary of the tests of tuned choices: a template with candidates, a choice as `kiln tune` stores
// it, and processes that use the choice.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "cache/store/store.hpp"
#include "compile/key/tuned_choice.hpp"
#include "runtime/core_fixture.hpp"
#include "support/child.hpp"

namespace kiln::testing {

inline constexpr const char* kGpu = "Fake sm_90";

class Tuned : public Core {
 protected:
  void SetUp() override {}  // process() sets up in a child: a process keeps its choices until it ends
  void TearDown() override {}
  /// Runs `body` in a new process.
  template <class Body>
  void process(Body&& body) {
    EXPECT_EQ(in_child([&] {
                Core::SetUp();
                if (IsSkipped()) return 0;
                try {
                  if (!HasFatalFailure()) body();
                } catch (const std::exception& error) {
                  ADD_FAILURE() << error.what();
                }
                return HasFailure() ? 1 : 0;
              }),
              0);
  }
  /// Adds template t, with the tuned parameter B. `more` goes into [template], `rule` is a [[require]].
  static void tunable(Service& service, const std::string& more = "", const std::string& rule = "N > 0") {
    service.add_template(
        "format = 1\n[template]\nname = \"t\"\nsource = \"t.cu\"\ninstantiate = \"f<{N}, {B}>\"\n" + more +
            "[param.N]\nkind = \"int\"\nrange = [1, 100]\n"
            "[param.B]\nkind = \"int\"\nvalues = [32, 64, 128]\ndefault = 128\ntune = [32, 64]\n"
            "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n"
            "[[require]]\nexpr = \"" +
            rule +
            "\"\nmessage = \"no\"\n"
            "[launch]\ngrid = [\"1\"]\nblock = [\"B\"]\n",
        "template <int N, int B> __global__ void f(float* out) { out[threadIdx.x] = N * B; }\n");
  }
  /// Adds a template with the arguments of t, and a parameter of the same name with another default.
  static void generic(Service& service, const std::string& name = "generic") {
    service.add_template("format = 1\n[template]\nname = \"" + name +
                             "\"\nsource = \"g.cu\"\ninstantiate = \"g<{N}, {B}>\"\n"
                             "[param.N]\nkind = \"int\"\nrange = [1, 100]\n"
                             "[param.B]\nkind = \"int\"\nrange = [1, 1024]\ndefault = 96\n"
                             "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n"
                             "[launch]\ngrid = [\"1\"]\nblock = [\"B\"]\n",
                         "template <int N, int B> __global__ void g(float* out) { out[0] = N + B; }\n");
  }
  /// Stores a choice for t N=n as `kiln tune` would. Its key is made from the default's key,
  /// which is compiled first.
  void choose(int n, const std::string& value, const std::string& device = kGpu) const {
    const auto store = cache::Store::open({.directory = tree_.at("cache")});
    compile::MadeKey made;
    std::string compiled;
    {
      Service service(options());
      tunable(service);
      compiled = service.open("t", Device::none("sm_90a")).compile({{"N", n}, {"B", 128}}).key();
    }
    made.text = store->peek(*Key::from_hex(compiled), base::Deadline::never()).value().key_text;
    made.toolchain_at = compile::toolchain_section(made.text);
    const compile::MadeChoiceKey key = compile::make_choice_key(made, {{"B", {"32", "64"}}}, device);
    compile::TunedChoice choice;
    choice.template_name = "t", choice.arch = "sm_90a", choice.device = device;
    choice.fixed = {{"N", std::to_string(n)}}, choice.chosen = {{"B", value}};
    const cache::Record record{key.key, compile::encode(choice), key.text, {}};
    EXPECT_EQ(store->put(record, store->put_wait(), cache::Existing::replaced).put, cache::Put::stored);
  }
  /// Holds the cache's gate, like a writer that was stopped in the middle of a write. Waits for a put that runs.
  class Held {
   public:
    explicit Held(const std::string& cache) : fd_(::open((cache + "/v1/data.mdb").c_str(), O_RDWR)) {
      for (const int byte : {0, 1}) {
        struct flock lock {};
        lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET, lock.l_start = (off_t{1} << 62) + byte,
        lock.l_len = 1;
        EXPECT_EQ(::fcntl(fd_, F_OFD_SETLKW, &lock), 0);
      }
    }
    ~Held() { ::close(fd_); }

   private:
    const int fd_;
  };
  template <class Body>
  static double seconds(Body&& body) {
    const auto start = base::Clock::now();
    body();
    return std::chrono::duration<double>(base::Clock::now() - start).count();
  }
  std::string text_of(const std::string& file) const {
    std::ifstream in(tree_.at(file));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Runs an engine that asks for N = 1 and records its requests in `file`.
  void record_one(const std::string& file) {
    process([&] {
      Options o = options();
      o.record = tree_.at(file);
      Service service(o);
      tunable(service);
      block_of(service, 1);
    });
  }
  static unsigned block_of(const Kernel& kernel) {
    kernel(nullptr, device_pointer<float>());
    return last_launch().block[0];
  }
  static unsigned block_of(Service& service, int n) { return block_of(service.open("t").get({{"N", n}})); }
};

}  // namespace kiln::testing
