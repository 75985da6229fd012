// Step 1 of the path for images: the images of this process, and the errors of its compiles.
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

/// The time for which a compile's error is remembered.
enum class Lasting { no, pause, until_changed };
/// An error of the source lasts until its key changes. It does not last when something that the key does not
/// cover (computed includes, files that changed meanwhile) may mend it. An error of the machine lasts
/// for a pause.
Lasting lasting(const source::Closure& closure, const std::exception_ptr& error) noexcept;

/// Thread-safe. A forked child starts with nothing: it has none of the threads that may hold the mutex.
class ImageMemory {
 public:
  explicit ImageMemory(Counters& counters) : counters_(counters) {}

  /// The image, or null. Counts nothing.
  std::shared_ptr<const StoredImage> find(const Key& key);
  /// The image as a counted hit, unless `options` reject it. Throws the error of a failed compile of this key
  /// while it is remembered.
  std::optional<Obtained> ask(const Key& key, const ObtainOptions& options);
  /// Images are kept for other contexts and for stores that cannot be written; the oldest go first.
  void keep(const std::shared_ptr<const StoredImage>& image);
  void keep_failure(const Key& key, const std::exception_ptr& error, Lasting lasts);
  /// Ends the doubling of this key's pauses: the next one is as short as the first.
  void end_rest(const Key& key);
  void throw_failure(const Key& key);

 private:
  /// The pause after a fault of the machine rather than of the source.
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
