// A forked child uses its parent's service in the background and destroys it.
#include <thread>

#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/child.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;
using runtime::Service;

class BackgroundFork : public ServiceTest {};

TEST_F(BackgroundFork, AChildThatEndsItsParentsServiceEndsItsOwnBackgroundWork) {
  write_endless();
  auto service = std::make_unique<Service>(options());
  EXPECT_EQ(in_child([&] {
              auto& endless = service->open("endless", KILN_DEVICE_NONE, "sm_90a");
              for (int n = 1; n <= 30; ++n) endless.prefetch(std::vector<Value>{Dtype::f32, n});
              std::this_thread::sleep_for(500ms);
              service.reset();
              std::this_thread::sleep_for(1500ms);
              return 0;
            }),
            0)
      << "134, 139: it crashed; 142: it was stuck";
}

TEST_F(BackgroundFork, AChildThatEndsItsParentsServiceLeavesNoThread) {
  auto service = std::make_unique<Service>(options());
  EXPECT_EQ(in_child([&] {
              auto& scale = service->open("scale", KILN_DEVICE_NONE, "sm_90a");
              scale.prefetch(std::vector<Value>{Dtype::f32, 1});
              std::this_thread::sleep_for(100ms);
              service.reset();
              // The background thread ends by itself after its work.
              const auto left = [] {
                for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
                  std::ifstream in(task.path() / "comm");
                  std::string comm;
                  if (std::getline(in, comm) && comm == "kiln-behind") return false;
                }
                return true;
              };
              return base::poll_until(base::Deadline::after(10s), left) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace kiln::testing
