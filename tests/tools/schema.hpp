// Checks the output of --json against docs/schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kiln::test {

/// Why `object` breaks the schema that its "schema" names in docs/schema; empty when it does not.
std::string breach_of_schema(const nlohmann::json& object);

}  // namespace kiln::test
