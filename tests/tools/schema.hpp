// docs/schema: what --json promises.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kiln::test {

/// Why `object` is not what docs/schema says of its "schema"; empty when it is.
std::string breach_of_schema(const nlohmann::json& object);

}  // namespace kiln::test
