// Makes a whole plan ready in the background. This is the one explicit way past the seal.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "kiln/kiln.h"
#include "runtime/kernels/scope.hpp"

namespace kiln::runtime {

struct PrepareRequest {
  std::string plan, file;  ///< the text, and what messages call it
  bool image_only = false, may_compile = true;
  int device = KILN_DEVICE_CURRENT;
  std::string arch;
  base::Deadline deadline = base::Deadline::never();
  void (*on_progress)(const kiln_progress*, void*) = nullptr;
  void* user = nullptr;
};

/// Thread-safe. Its work keeps it alive.
class Preparation : public std::enable_shared_from_this<Preparation> {
 public:
  /// Begins the work. `all` are the scopes of the service that was asked, and `scope` must be one of them.
  /// Throws Error when the plan, its templates or its values are wrong.
  static std::shared_ptr<Preparation> begin(Scopes& all, Scope& scope, const PrepareRequest& request);

  /// False when `deadline` passed before all rows were done. Throws the first failure once all are done.
  bool wait(base::Deadline deadline);
  kiln_progress progress();
  /// Rows that have not begun are not made, and on_progress is not called any more.
  void cancel() noexcept;

 private:
  struct Row {
    std::shared_ptr<KernelTemplate> opened;
    std::vector<Parameter> values;
    std::string name;
    std::uint64_t epoch;  ///< epoch of `opened` when the row was read
  };
  explicit Preparation(const PrepareRequest& request) : request_(request) {}
  /// Throws in a forked child, where work and locks are still the parent's.
  void refuse_in_child() const;
  void make(const Row& row, const char* why_not) noexcept;
  void ended(std::uint64_t kiln_progress::*count, std::exception_ptr error = nullptr);

  const PrepareRequest request_;
  const std::uint64_t generation_ = base::process_generation();
  std::mutex mutex_;  // guards what follows
  std::condition_variable all_done_;
  kiln_progress progress_{sizeof(kiln_progress), 0, 0, 0, 0, 0, 0, 0, 0};
  std::exception_ptr first_;
  bool cancelled_ = false;
  std::recursive_mutex telling_;  // one on_progress at a time; on_progress itself may cancel
};

}  // namespace kiln::runtime
