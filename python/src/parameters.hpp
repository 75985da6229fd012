// Parameters of a template as Python gives them: get("bf16", 4096), get(T=torch.bfloat16, H=4096).
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <string>
#include <vector>

#include "kiln/kiln.h"

namespace kiln::python {

/// The parameters as the C ABI takes them. Owns their text. The constructor throws a Python exception.
class Parameters {
 public:
  Parameters(const nanobind::args& positional, const nanobind::dict& named);
  Parameters(const Parameters&) = delete;

  const char* const* names() const noexcept { return names_.empty() ? nullptr : names_.data(); }
  const kiln_value* values() const noexcept { return values_.data(); }
  std::size_t count() const noexcept { return values_.size(); }

 private:
  void add(nanobind::handle value);
  const std::string& keep(std::string text) { return texts_.emplace_back(std::move(text)); }

  std::deque<std::string> texts_;  // a deque, as its strings must not move
  std::vector<const char*> names_;
  std::vector<kiln_value> values_;
};

}  // namespace kiln::python
