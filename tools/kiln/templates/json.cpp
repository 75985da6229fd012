#include "tools/kiln/templates/json.hpp"

#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "manifest/bind/describe.hpp"
#include "tools/kiln/templates/page.hpp"

namespace kiln::cli {

using source::Expression;
using source::Manifest;

namespace {

Json texts(const std::vector<Expression>& expressions) {
  Json out = Json::array();
  for (const Expression& e : expressions) out.push_back(e.text());
  return out;
}

/// An expression's text, or null.
Json text_or_null(const Expression& e) { return e.empty() ? Json(nullptr) : Json(e.text()); }

Json spec_json(const source::ParameterSpec& p) {
  Json out{{"name", p.name},
           {"kind", to_string(p.kind)},
           {"allowed", allowed_values(p)},
           {"values", Json::array()}};
  for (const auto& choice : p.choices) out["values"].push_back(choice.name);
  if (p.range) out["range"] = {p.range->first, p.range->second};
  out["required"] = p.default_value.empty();
  out["default"] = p.default_value.empty() ? Json(nullptr) : Json(default_text(p));
  out["tune"] = p.tune;
  out["doc"] = p.doc;
  return out;
}

Json spec_json(const source::ArgumentSpec& a, const Manifest& manifest) {
  constexpr const char* access[] = {"read", "write", "readwrite"};
  return {{"name", a.name},
          {"type", a.type.to_string(manifest.parameters)},
          {"access", access[static_cast<int>(a.access)]},
          {"shape", texts(a.shape)},
          {"stride", texts(a.stride)},
          {"align", text_or_null(a.align)},
          {"optional", a.optional},
          {"exists", text_or_null(a.exists)},
          {"doc", a.doc}};
}

Json spec_json(const source::LaunchSpec& launch) {
  return {{"grid", texts(launch.grid)},
          {"block", texts(launch.block)},
          {"cluster", texts(launch.cluster)},
          {"smem", text_or_null(launch.smem)},
          {"pdl", launch.pdl},
          {"cooperative", launch.cooperative}};
}

Json spec_json(const source::WorkListSpec::Values& values) {
  Json out = Json::object();
  for (const auto& [key, expression] : values) out[key] = expression.text();
  return out;
}

/// The work list that the kernel reads, or null.
Json work_list_json(const Manifest& manifest) {
  if (!manifest.work_list) return nullptr;
  const source::WorkListSpec& list = *manifest.work_list;
  const auto argument = [&](int i) {
    return i < 0 ? Json(nullptr) : Json(manifest.arguments[static_cast<std::size_t>(i)].name);
  };
  Json out{{"kind", list.kind},
           {"on", list.on_device ? "device" : "host"},
           {"argument", argument(list.argument)},
           {"workspace", argument(list.workspace)},
           {"workers", argument(list.workers)},
           {"kernel", spec_json(list.kernel)},
           {"run", list.has_run ? spec_json(list.run) : Json(nullptr)},
           {"run_values", Json::array()}};
  for (const source::RuntimeValueSpec& value : manifest.run_values)
    out["run_values"].push_back({{"name", value.name}, {"value", value.value.text()}, {"doc", value.doc}});
  return out;
}

/// The family among whose members a launch picks, or null.
Json family_json(const Manifest& manifest) {
  if (!manifest.family) return nullptr;
  const source::FamilySpec& family = *manifest.family;
  return {{"by", manifest.arguments[static_cast<std::size_t>(family.by)].name},
          {"parameter", manifest.parameters[static_cast<std::size_t>(family.parameter)].name},
          {"edges", family.edges.all()}};
}

Json spec_json(const source::TensorMapSpec& map, const Manifest& manifest) {
  const auto argument = [&](int i) {
    return i < 0 ? Json(nullptr) : Json(manifest.arguments[static_cast<std::size_t>(i)].name);
  };
  return {{"name", map.name},
          {"of", argument(map.of)},
          {"dtype", source::element_text(map)},
          {"dims", texts(map.dims)},
          {map.strides_in_bytes ? "byte_strides" : "strides", texts(map.strides)},
          {"box", texts(map.box)},
          {"element_strides", texts(map.element_strides)},
          {"swizzle", map.swizzle.text()},
          {"l2", map.l2.text()},
          {"interleave", map.interleave.text()},
          {"fill", map.fill_nan ? "nan" : "zero"},
          {"in", argument(map.in)},
          {"offset", map.in < 0 ? Json(nullptr) : Json(map.offset.text())},
          {"doc", map.doc}};
}

Json passed_json(const Manifest& manifest) {
  Json out = Json::array();
  for (const auto& passed : manifest.passed) out.push_back(passed_name(manifest, passed));
  return out;
}

/// Adds how one entry point is called.
void add_call(Json& out, const Manifest& manifest) {
  out["arguments"] = Json::array();
  for (const auto& a : manifest.arguments) out["arguments"].push_back(spec_json(a, manifest));
  out["tensor_maps"] = Json::array();
  for (const auto& map : manifest.tensor_maps) out["tensor_maps"].push_back(spec_json(map, manifest));
  out["kernel_arguments"] = passed_json(manifest);
  out["runtime"] = Json::array();
  for (const auto& r : manifest.runtime)
    out["runtime"].push_back({{"name", r.name}, {"value", text_or_null(r.value)}, {"doc", r.doc}});
  out["requirements"] = Json::array();
  for (const auto& r : manifest.requirements) {
    out["requirements"].push_back({{"expr", r.expression.text()},
                                   {"message", r.message},
                                   {"checked", r.at_launch ? "launch" : "compile"}});
  }
  out["launch"] = spec_json(manifest.kernel.launch);
}

}  // namespace

Json json_summary(const source::Template& origin) {
  const Manifest& manifest = origin.manifest;
  Json parameters = Json::array();
  for (const auto& p : manifest.parameters) parameters.push_back(spec_json(p));
  return {{"name", manifest.name},
          {"summary", manifest.summary},
          {"internal", manifest.internal},
          {"tune_changes_bits", manifest.tune_changes_bits},
          {"arch", supported_archs(manifest)},
          {"features", to_string(manifest.features)},
          {"manifest", manifest.file},
          {"prewarm", source::shipped_plan(manifest).size()},
          {"parameters", parameters}};
}

Json json_of(const source::Template& origin) {
  const Manifest& manifest = origin.manifest;
  Json out = json_summary(origin);
  out["formula"] = manifest.formula;
  out["fallback"] = manifest.fallback.empty() ? Json(nullptr) : Json(manifest.fallback);
  out["source"] = origin.kernel.path;
  out["instantiate"] = manifest.kernel.instantiate;
  out["reference"] = manifest.reference ? Json(manifest.reference->instantiate) : Json(nullptr);
  out["derives"] = Json::object();
  for (const auto& [name, expression] : manifest.derives) out["derives"][name] = expression.text();
  add_call(out, manifest);
  out["plan"] = work_list_json(manifest);
  out["family"] = family_json(manifest);
  out["entries"] = Json::array();
  for (const auto& entry : manifest.entries) {
    Json other{{"name", entry->entry}, {"instantiate", entry->kernel.instantiate}};
    add_call(other, *entry);
    out["entries"].push_back(std::move(other));
  }
  out["globals"] = Json::array();
  for (const auto& g : manifest.globals)
    out["globals"].push_back({{"name", g.name}, {"symbol", g.symbol}, {"doc", g.doc}});
  out["operators"] = Json::array();
  for (const auto& b : manifest.binds) out["operators"].push_back(Json::parse(source::json_of(manifest, b)));
  out["exports"] = Json::object();
  for (const auto& e : manifest.exports) out["exports"][e.name] = e.cpp;
  out["overrides"] = Json::array();
  for (const auto& [arch, variant] : manifest.variants) {
    out["overrides"].push_back({{"arch", arch.name()},
                                {"source", variant->kernel.source},
                                {"instantiate", variant->kernel.instantiate},
                                {"kernel_arguments", passed_json(*variant)},
                                {"launch", spec_json(variant->kernel.launch)}});
  }
  out["tolerance"] = Json::object();
  for (const auto& [dtype, tolerance] : manifest.tolerance)
    out["tolerance"][std::string(kiln::to_string(dtype))] = tolerance;
  return out;
}

}  // namespace kiln::cli
