#include "runtime/path/host_slots.hpp"

#include <optional>

#include "base/log.hpp"
#include "cache/flight/compile_slots.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

class FlightFileRequest final : public compile::HostSlots::Request {
 public:
  FlightFileRequest(std::shared_ptr<cache::FlightFile> file, cache::SlotUse use, int count) {
    if (file) request_.emplace(std::move(file), use, count);
  }
  std::shared_ptr<void> try_take() override try {
    return request_ ? std::shared_ptr<void>(request_->try_take()) : std::make_shared<char>();
  } catch (const Error& error) {
    base::warn_once("slots", std::string(error.what()) +
                                 "; processes of this host may compile more at once than it has cores");
    return std::make_shared<char>();
  }

 private:
  std::optional<cache::SlotRequest> request_;
};

}  // namespace

std::unique_ptr<compile::HostSlots::Request> HostSlots::request(compile::Urgency urgency) {
  const auto use = urgency == compile::Urgency::caller ? cache::SlotUse::caller : cache::SlotUse::ahead;
  return std::make_unique<FlightFileRequest>(file_(), use, count_());
}

std::shared_ptr<void> HostSlots::show_waiting(const compile::Demand& demand) noexcept try {
  struct Shown {
    std::shared_ptr<cache::FlightFile> file;  // first, so destroyed last
    std::unique_ptr<cache::ShownWaiter> waiter;
  };
  auto out = std::make_shared<Shown>(Shown{file_(), nullptr});
  if (out->file) out->waiter = out->file->show_waiting(cache::WaitFor::turn, demand.what);
  return out;
} catch (...) {
  return nullptr;
}

}  // namespace kiln::runtime
