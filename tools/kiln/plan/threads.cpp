#include "tools/kiln/plan/threads.hpp"

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace kiln::cli {
namespace {

/// One in this many threads that the system gives may work. A working thread also needs a worker process
/// with two further threads. The rest leaves room for threads that all compiles share: the watcher of
/// workers, the publisher.
constexpr std::size_t kTakenByOne = 10;

}  // namespace

void run_in_threads(int wanted, const std::function<void()>& work,
                    const std::function<void(int, const std::string&)>& on_fewer) {
  std::atomic<int> working{0};  // 0 until the number is known
  std::vector<std::jthread> threads;
  std::string why;
  try {
    threads.reserve(static_cast<std::size_t>(wanted));
    for (int i = 1; i < wanted; ++i) {
      threads.emplace_back([&working, &work, i] {
        working.wait(0);
        if (i < working) work();
      });
    }
  } catch (const std::exception& error) {
    why = error.what();
    wanted = 1 + static_cast<int>(threads.size() / kTakenByOne);
  }
  working = wanted;
  working.notify_all();
  while (threads.size() >= static_cast<std::size_t>(wanted)) threads.pop_back();  // joins
  if (!why.empty()) on_fewer(wanted, why);
  work();
}

}  // namespace kiln::cli
