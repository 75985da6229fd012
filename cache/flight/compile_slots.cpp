#include "cache/flight/compile_slots.hpp"

#include <algorithm>

#include "cache/flight/paths.hpp"

namespace kiln::cache {

SlotRequest::SlotRequest(std::shared_ptr<FlightFile> file, SlotUse use, int count)
    : file_(std::move(file)), use_(use), count_(std::max(1, count)) {}

SlotRequest::~SlotRequest() { mark_.release(); }

std::shared_ptr<Slot> SlotRequest::try_take() {
  const auto now = base::Deadline::after(base::Clock::duration::zero());
  FdPool::Lease fd = file_->lease();
  if (use_ == SlotUse::ahead && RangeLock::excluded(fd.get(), kSlotMark, RangeLock::Mode::exclusive))
    return nullptr;
  const int all = use_ == SlotUse::caller ? count_ + std::max(1, count_ / 4) : count_;
  const auto take = [&](int slot) -> std::shared_ptr<Slot> {
    auto lock = RangeLock::acquire(fd.get(), kFirstSlot + slot, RangeLock::Mode::exclusive, now);
    return lock ? std::make_shared<Slot>(file_, std::move(fd), std::move(*lock)) : nullptr;
  };
  std::shared_ptr<Slot> out;
  for (int i = count_; i-- > 0 && !out;) out = take(i);
  for (int i = count_; i < all && !out; ++i) out = take(i);
  if (out) {
    mark_.release();
  } else if (use_ == SlotUse::caller && !mark_fd_) {
    if (auto mark = RangeLock::acquire(fd.get(), kSlotMark, RangeLock::Mode::shared, now)) {
      mark_fd_ = std::move(fd);
      mark_ = std::move(*mark);
    }
  }
  return out;
}

}  // namespace kiln::cache
