#include "compile/key/facts.hpp"

#include "base/wire.hpp"
#include "compile/key/facts_summary.hpp"

namespace kiln::compile {
namespace {

void put_entry(base::Writer& out, const EntryFacts& f) {
  out.bytes(f.entry).bytes(f.name_expression).bytes(f.lowered_name);
  out.list(f.arguments, [](base::Writer& w, const ArgumentFact& a) { w.number(a.ordinal).number(a.size); });
  out.number(f.registers).number(f.stack_bytes).number(f.spill_store_bytes).number(f.spill_load_bytes);
  out.number(f.shared_bytes).number(f.max_threads);
  for (const auto v : f.required_block) out.number(v);
  for (const auto v : f.cluster) out.number(v);
  out.list(f.performance_warnings, [](base::Writer& w, const std::string& line) { w.bytes(line); });
}

void get_entry(base::Reader& in, EntryFacts& f) {
  f.entry = in.string();
  f.name_expression = in.string();
  f.lowered_name = in.string();
  in.list([&](base::Reader& r) {
    const auto ordinal = r.number<std::uint16_t>();
    f.arguments.push_back({ordinal, r.number<std::uint32_t>()});
  });
  for (auto* v : {&f.registers, &f.stack_bytes, &f.spill_store_bytes, &f.spill_load_bytes, &f.shared_bytes,
                  &f.max_threads}) {
    *v = in.number<std::uint32_t>();
  }
  for (auto& v : f.required_block) v = in.number<std::uint32_t>();
  for (auto& v : f.cluster) v = in.number<std::uint32_t>();
  in.list([&](base::Reader& r) { f.performance_warnings.push_back(r.string()); });
}

void skip_entry(base::Reader& in) {
  for (int name = 0; name < 3; ++name) in.bytes();
  in.list([](base::Reader& r) { r.take(sizeof(std::uint16_t) + sizeof(std::uint32_t)); });
  in.take(12 * sizeof(std::uint32_t));  // resources, required block, cluster
  in.list([](base::Reader& r) { r.bytes(); });
}

}  // namespace

std::string encode(const Facts& f) {
  base::Writer out;
  out.number(kFactsVersion).bytes(f.unit);
  out.list(f.parameters, [](base::Writer& w, const Parameter& p) { w.bytes(p.name).bytes(p.value); });
  out.bytes(f.arch);
  put_entry(out, f);
  out.bytes(f.compiler_version)
      .number(f.frontend_ms)
      .number(f.nvvm_ms)
      .number(f.ptxas_ms)
      .number(f.compile_ms);
  out.number(f.created_s).number<std::uint8_t>(f.project_header_through_toolkit).bytes(f.log);
  out.list(f.entries, put_entry);
  out.list(f.globals, [](base::Writer& w, const GlobalFact& g) {
    w.bytes(g.name).bytes(g.lowered_name).number(g.bytes);
  });
  out.list(f.exports, [](base::Writer& w, const ExportFact& e) { w.bytes(e.name).number(e.value); });
  out.number(f.peak_memory);
  return std::move(out.str());
}

namespace {

void read_identity(base::Reader& in, FactsIdentity& out) {
  if (in.number<std::uint32_t>() != kFactsVersion) throw base::Malformed("facts of another version");
  out.unit = in.bytes();
  out.parameters.clear();
  in.list([&](base::Reader& r) {
    const std::string_view name = r.bytes();
    out.parameters.emplace_back(name, r.bytes());
  });
  out.arch = in.bytes();
}

}  // namespace

void decode_identity(std::string_view bytes, FactsIdentity& out) {
  base::Reader in(bytes);
  read_identity(in, out);
}

void decode_summary(std::string_view bytes, FactsSummary& out) {
  base::Reader in(bytes);
  read_identity(in, out);
  skip_entry(in);
  out.compiler_version = in.bytes();
  in.take(3 * sizeof(double));
  out.compile_ms = in.number<double>();
  out.created_s = in.number<std::int64_t>();
}

Facts decode_facts(std::string_view bytes) {
  base::Reader in(bytes);
  if (in.number<std::uint32_t>() != kFactsVersion) throw base::Malformed("facts of another version");
  Facts f;
  f.unit = in.string();
  f.parameters.reserve(8);
  in.list([&](base::Reader& r) {
    std::string name = r.string();
    f.parameters.push_back({std::move(name), r.string()});
  });
  f.arch = in.string();
  get_entry(in, f);
  f.compiler_version = in.string();
  for (double* v : {&f.frontend_ms, &f.nvvm_ms, &f.ptxas_ms, &f.compile_ms}) *v = in.number<double>();
  f.created_s = in.number<std::int64_t>();
  f.project_header_through_toolkit = in.number<std::uint8_t>() != 0;
  f.log = in.string();
  in.list([&](base::Reader& r) { get_entry(r, f.entries.emplace_back()); });
  in.list([&](base::Reader& r) {
    GlobalFact& global = f.globals.emplace_back();
    global.name = r.string();
    global.lowered_name = r.string();
    global.bytes = r.number<std::uint64_t>();
  });
  in.list([&](base::Reader& r) {
    ExportFact& constant = f.exports.emplace_back();
    constant.name = r.string();
    constant.value = r.number<std::int64_t>();
  });
  f.peak_memory = in.number<std::uint64_t>();
  return f;
}

}  // namespace kiln::compile
