// Step 1 of the path for images: those of this process, and what compiles of it failed with.
#pragma once

#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

/// How long a compile's error is remembered.
enum class Lasting { no, pause, until_changed };
/// An error of the source itself lasts until its key changes, if nothing is at play that the key does not
/// cover and that may be mended without another key. An error of the machine is not run into again for a
/// while.
Lasting lasting(const source::Closure& closure, const std::exception_ptr& error) noexcept;

/// Thread-safe. A forked child starts with nothing: it has none of the threads that may hold the mutex.
class ImageMemory {
 public:
  explicit ImageMemory(Counters& counters) : counters_(counters) {}

  /// Null when it is not there. Counts nothing.
  std::shared_ptr<const StoredImage> find(const Key& key);
  /// A counted hit, unless `options` reject the image. Throws what a compile of this key failed with, as long
  /// as that is remembered.
  std::optional<Obtained> ask(const Key& key, const ObtainOptions& options);
  /// Images are kept for other contexts and for stores that cannot be written; the oldest go first.
  void keep(const std::shared_ptr<const StoredImage>& image);
  void keep_failure(const Key& key, const std::exception_ptr& error, Lasting lasts);
  /// The next failure of this key rests as shortly as a first one.
  void end_rest(const Key& key);
  void throw_failure(const Key& key);

 private:
  /// After a fault of the machine rather than of the source.
  struct Rest {
    std::exception_ptr error;
    base::Clock::time_point until;
    base::Clock::duration pause{};
  };
  struct State {
    std::mutex mutex;  // guards what follows
    std::map<Key, std::shared_ptr<const StoredImage>> images;
    std::deque<Key> order;
    std::size_t bytes = 0;
    std::map<Key, std::exception_ptr> refused;
    std::map<Key, Rest> resting;
  };
  void throw_failure(const State& state, const Key& key);

  Counters& counters_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
