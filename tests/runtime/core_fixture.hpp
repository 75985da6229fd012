// The vocabulary of the tests of the runtime's core: small templates from memory, compiles and loads that a
// test holds back, recorded events.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "base/deadline.hpp"
#include "runtime/fake_runtime.hpp"
#include "support/gated_driver/gated_driver.h"
#include "support/places.hpp"

namespace kiln::testing {

/// A limit that only a hang reaches.
inline base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(100)); }
template <class Condition>
[[nodiscard]] bool comes_true(Condition&& condition) {
  return base::poll_until(soon(), std::forward<Condition>(condition));
}

/// The number of threads of this process with this name.
inline int threads_named(const std::string& name) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(task.path() / "comm");
    std::string comm;
    count += std::getline(in, comm) && comm == name;
  }
  return count;
}

/// Records a service's events in order. Give listener() to Options::on_event. Must outlive the service.
class Told {
 public:
  struct One {
    Event::Kind kind;
    std::string specialization, arch, message;
    double milliseconds;
    std::uint64_t count, bytes;
  };
  std::function<void(const Event&)> listener() {
    return [this](const Event& e) {
      const std::lock_guard lock(mutex_);
      all_.push_back({e.kind, std::string(e.specialization), std::string(e.arch), std::string(e.message),
                      e.milliseconds, e.count, e.bytes});
    };
  }
  std::vector<One> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  std::vector<One> of(Event::Kind kind) const {
    std::vector<One> out;
    for (const One& one : all())
      if (one.kind == kind) out.push_back(one);
    return out;
  }
  std::size_t count(Event::Kind kind) const { return of(kind).size(); }

 private:
  mutable std::mutex mutex_;
  std::vector<One> all_;
};

/// Tests over the gated driver, whose loads wait while a gate is shut (support/gated_driver).
class Core : public FakeRuntime {
 protected:
  ~Core() override {
    kiln_gate_shut(0);
    // Removes flight files and boards, which kiln itself never unlinks.
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(tree_.path(), ignored)) {
      const std::string base = "/dev/shm/" + flight_name(entry.path());
      ::unlink((base + ".flight").c_str());
      ::unlink((base + ".board").c_str());
    }
  }

  /// The name that the flight file and board of a store share. Without a store it is
  /// a name that matches none.
  static std::string flight_name(const std::string& cache_dir) {
    struct stat st {};
    ::stat((cache_dir + "/v1").c_str(), &st);
    return "kiln-" + std::to_string(::geteuid()) + '-' + std::to_string(st.st_dev) + '-' +
           std::to_string(st.st_ino);
  }

  /// Adds a template f<N>(float* out, int n). `more` goes into [template], `body` into the kernel.
  static void small(Service& service, const std::string& name, const std::string& more = "",
                    const std::string& body = "out[n] = N;") {
    service.add_template("format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
                             ".cu\"\ninstantiate = \"f<{N}>\"\n" + more +
                             "\n[param.N]\nkind = \"int\"\nrange = [1, 100000]\ndefault = 1\n" +
                             "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n"
                             "[[arg]]\nname = \"n\"\ntype = \"i32\"\n"
                             "[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
                         "template <int N> __global__ void f(float* out, int n) { " + body + " }\n");
  }
  static void broken(Service& service, const std::string& name) {
    small(service, name, "", "this_is_not_declared(N);");
  }

  /// Options whose compiles wait until let_compile().
  Options held() const {
    Options o = options();
    o.worker = tree_.write("worker.sh", "#!/bin/sh\nwhile [ ! -e " + tree_.at("go") +
                                            " ]; do sleep 0.02; done\nexec " +
                                            std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
    ::chmod(o.worker.c_str(), 0755);
    return o;
  }
  void let_compile() const { tree_.write("go", ""); }

  template <class Body>
  void on_threads(int count, Body&& body) {
    std::barrier start(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        cu().cuCtxSetCurrent(contexts_[0]);
        start.arrive_and_wait();
        try {
          body(i);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "thread " << i << ": " << error.what();
        }
      });
    }
    for (auto& t : threads) t.join();
  }
};

}  // namespace kiln::testing
