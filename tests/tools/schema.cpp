#include "tools/schema.hpp"

#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "base/file.hpp"
#include "support/places.hpp"

namespace kiln::test {
namespace {

using Adapter = valijson::adapters::NlohmannJsonAdapter;

/// bundle-export.json describes "kiln.bundle-export/1". kiln.json
/// describes "kiln/1", an error before any command.
std::string file_of(const std::string& id) {
  std::string name = id.substr(0, id.find('/'));
  if (name.starts_with("kiln.")) name.erase(0, 5);
  return std::string(places::kSourceDirectory) + "/docs/schema/" + name + ".json";
}

}  // namespace

std::string breach_of_schema(const nlohmann::json& object) {
  if (!object.contains("schema") || !object["schema"].is_string()) return "it has no \"schema\"";
  const std::string id = object["schema"], file = file_of(id);
  const auto content = base::read_file(file);
  if (!content) return file + " is missing";
  const nlohmann::json text = nlohmann::json::parse(content->bytes, nullptr, false);
  if (text.is_discarded()) return file + " is no JSON";
  if (text.value("$id", "") != id) return file + " has another $id than " + id;
  valijson::Schema schema;
  valijson::SchemaParser parser;
  parser.populateSchema(Adapter(text), schema);
  valijson::ValidationResults results;
  if (valijson::Validator(valijson::Validator::kStrongTypes).validate(schema, Adapter(object), &results))
    return {};
  std::string out = "not as " + file + " says:";
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    out += "\n  ";
    for (const std::string& step : error.context) out += step;
    out += ": " + error.description;
  }
  return out;
}

}  // namespace kiln::test
