// The events that an engine asked for; see kiln_event in kiln.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "kiln/kiln.h"

namespace kiln::runtime {

/// Cheap to copy. Thread-safe if the callback is.
class Events {
 public:
  struct Fields {
    const char* message = "";
    double milliseconds = 0;
    std::uint64_t count = 0, bytes = 0;
  };

  Events() = default;
  Events(kiln_event_callback callback, void* user) noexcept : callback_(callback), user_(user) {}

  /// False when nobody listens: the text of an event is then not needed.
  explicit operator bool() const noexcept { return callback_ != nullptr; }
  /// REQUIRES: the caller holds no lock that a call of kiln may take, because the callback may call kiln.
  void tell(int32_t kind, const std::string& specialization, const std::string& arch,
            const Fields& fields) const noexcept {
    if (!callback_) return;
    const kiln_event event{sizeof event, kind,           specialization.c_str(),
                           arch.c_str(), fields.message, fields.milliseconds,
                           fields.count, fields.bytes};
    callback_(&event, user_);
  }

 private:
  kiln_event_callback callback_ = nullptr;
  void* user_ = nullptr;
};

/// Events for a thread that may outlive the listener. Thread-safe.
class LastingEvents {
 public:
  explicit LastingEvents(Events events) : events_(events) {}
  template <class... Args>
  void tell(const Args&... args) noexcept {
    const std::lock_guard lock(mutex_.get());
    events_.tell(args...);
  }
  /// The listener is told nothing after this returns.
  void end() noexcept {
    const std::lock_guard lock(mutex_.get());
    events_ = {};
  }

 private:
  base::PerProcess<std::mutex> mutex_;  // a forked child calls end(), too
  Events events_;
};

/// Events for threads that may outlive the listener: they end with this object.
class OwnedEvents {
 public:
  explicit OwnedEvents(Events events) : events_(std::make_shared<LastingEvents>(events)) {}
  ~OwnedEvents() { events_->end(); }
  OwnedEvents(const OwnedEvents&) = delete;
  OwnedEvents& operator=(const OwnedEvents&) = delete;
  const std::shared_ptr<LastingEvents>& shared() const noexcept { return events_; }

 private:
  const std::shared_ptr<LastingEvents> events_;
};

/// Measures the milliseconds since it was made.
class Stopwatch {
 public:
  double ms() const noexcept {
    return std::chrono::duration<double, std::milli>(base::Clock::now() - start_).count();
  }

 private:
  base::Clock::time_point start_ = base::Clock::now();
};

}  // namespace kiln::runtime
