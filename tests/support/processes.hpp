// Real processes for the fault tests: forked children, a barrier, and memory that they share.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "base/deadline.hpp"

namespace kiln::fault {

/// A T that forked children share. T needs a default constructor and no destructor.
template <class T>
class Shared {
 public:
  Shared() {
    void* memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) T{};
  }
  ~Shared() { ::munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const noexcept { return value_; }
  T& operator*() const noexcept { return *value_; }

 private:
  T* value_;
};

/// Forked children. The destructor kills and reaps them.
class Children {
 public:
  Children() = default;
  ~Children() { end(); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  pid_t start(const std::function<int()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int status = 99;
      try {
        status = body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
      }
      ::_exit(status);
    }
    pids_.push_back(pid);
    return pid;
  }
  void end() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    wait();
  }
  /// Exit statuses in order of start; 128 + the signal for a child that a signal ended.
  std::vector<int> wait() {
    std::vector<int> out;
    for (const pid_t pid : pids_) {
      int status = 0;
      while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      out.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    pids_.clear();
    return out;
  }

 private:
  std::vector<pid_t> pids_;
};

/// Waits until `ready()` returns true, at most 30 s. Returns false when the time is over.
template <class Ready>
bool eventually(Ready&& ready) {
  return base::poll_until(base::Deadline::after(std::chrono::seconds(30)), ready);
}

/// All `count` processes leave wait() together.
struct Barrier {
  std::atomic<int> arrived{0};
  void wait(int count) {
    ++arrived;
    eventually([&] { return arrived.load() >= count; });
  }
};

inline int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

inline double ms_since(base::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
}

}  // namespace kiln::fault
