// Processes that compile, wait and hold a flight beside a store, and the rows that kiln top shows for them.
#pragma once

#include <functional>

#include "cache/flight/flight.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {

using cache::FlightFile;
using cache::test::key_of;

class Top : public StoreCommand {
 protected:
  void SetUp() override { fill(1); }
  /// The flight file that every process of this store opens.
  std::shared_ptr<FlightFile> flights() const {
    const auto store = open();
    return FlightFile::open({store->identity(), store->directory() + "/v1"});
  }
  nlohmann::json look() {
    const Finished r = kiln({"top", "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.json();
  }
  /// The rows with this state, once there are `count` of them.
  std::vector<nlohmann::json> rows(const std::string& state, std::size_t count) {
    std::vector<nlohmann::json> out;
    base::poll_until(cache::test::soon(), [&] {
      out.clear();
      const nlohmann::json seen = look();
      for (const auto& row : seen["processes"])
        if (row["state"] == state) out.push_back(row);
      return out.size() == count;
    });
    EXPECT_EQ(out.size(), count) << state;
    out.resize(count);
    return out;
  }
  /// A process that runs `body` and then stays until it is killed.
  class Child {
   public:
    explicit Child(const std::function<void(const std::function<void()>& stay)>& body) {
      int ready[2];
      EXPECT_EQ(::pipe(ready), 0);
      pid = ::fork();
      if (pid == 0) {
        body([&] {
          [[maybe_unused]] const auto n = ::write(ready[1], "x", 1);
          for (;;) ::pause();
        });
        ::_exit(0);
      }
      ::close(ready[1]);
      char byte = 0;
      EXPECT_EQ(::read(ready[0], &byte, 1), 1);
      ::close(ready[0]);
    }
    ~Child() { end(); }
    void end() {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
      pid = -1;
    }
    pid_t pid = -1;
  };
  std::unique_ptr<Child> compiling(std::uint32_t number) const {
    return std::make_unique<Child>([this, number](const auto& stay) {
      const auto taken = flights()->take(key_of(number), base::Deadline::never());
      taken.flight->compiling("kernel " + std::to_string(number));
      stay();
    });
  }
};

}  // namespace kiln::test
