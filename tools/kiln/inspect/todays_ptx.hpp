// PTX of a cached entry. PTX is not stored, so it is made again from today's sources.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"
#include "kiln/digest.hpp"
#include "runtime/service/service.hpp"

namespace kiln::cli {

/// Throws Error(io), which names the differences, when today's sources give another entry. Throws as a
/// compile does.
std::string todays_ptx(runtime::Service& service, const Key& key, const compile::Facts& facts,
                       std::string_view key_text);

}  // namespace kiln::cli
