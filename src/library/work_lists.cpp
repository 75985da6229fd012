#include "library/work_lists.hpp"

#include "attention/work_list.hpp"

namespace kiln::library {

source::WorkListKinds work_lists() noexcept { return {&attention::kWorkList, 1}; }

}  // namespace kiln::library
