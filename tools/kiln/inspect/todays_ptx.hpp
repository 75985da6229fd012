// PTX of a cached entry. It is not stored: it is made again, from the sources as they are today.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"
#include "kiln/digest.hpp"
#include "runtime/service/service.hpp"

namespace kiln::cli {

/// Throws Error(io) that says what differs when today's sources would make another entry, and as compile.
std::string todays_ptx(runtime::Service& service, const Key& key, const compile::Facts& facts,
                       std::string_view key_text);

}  // namespace kiln::cli
