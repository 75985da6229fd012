#include "manifest/read/launch.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/braces.hpp"
#include "kiln/error.hpp"
#include "manifest/read/compile_options.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMaxDimensions = 3;

void read_geometry(LaunchSpec& out, const TableReader& reader, const Symbols& symbols) {
  reader.need("grid");
  reader.need("block");
  out.grid = reader.expressions("grid", symbols, kMaxDimensions);
  out.block = reader.expressions("block", symbols, kMaxDimensions);
}

void read_cost(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("cost");
  if (!found) return;
  const TableReader reader(*found, "[cost]", root.file(), {"read", "write", "flops", "unit"});
  draft.out.cost_read = reader.expression("read", draft.run);
  draft.out.cost_write = reader.expression("write", draft.run);
  draft.out.cost_flops = reader.expression("flops", draft.run);
  if (!reader.has("unit")) return;
  const std::string dtype = reader.need_line("unit");
  if (!draft.resolve.is_dtype(dtype))
    reader.fail("unit", base::quote(dtype) + " is no dtype and no dtype parameter");
  draft.out.cost_dtype = reader.expression("unit", draft.resolve);
}

void check_message(const Draft& draft, const TableReader& reader, const Requirement& requirement) {
  const Braces braces = split_braces(requirement.message);
  if (!braces.problem.empty())
    reader.fail("message", base::quote(requirement.message) + ' ' + braces.problem);
  const Symbols& known = requirement.at_launch ? draft.require : draft.resolve;
  for (const Braces::Piece& piece : braces.pieces) {
    if (!piece.is_name || known.slot(piece.text)) continue;
    if (const auto why = known.why_unavailable(piece.text))
      reader.fail("message", '{' + piece.text + "} has no value here: " + *why);
    const std::vector<std::string> names = known.slot_names();
    reader.fail("message", '{' + piece.text + "} is unknown" + base::did_you_mean(piece.text, names) +
                               "; known: " + base::join(names, " "));
  }
}

}  // namespace

void read_launch(Draft& draft, const TableReader& root) {
  const TableReader reader(root.need("launch"), "[launch]", root.file(),
                           {"grid", "block", "smem", "cluster", "pdl", "cooperative"});
  LaunchSpec& launch = draft.out.kernel.launch;
  read_geometry(launch, reader, draft.geometry);
  launch.cluster = reader.expressions("cluster", draft.geometry, kMaxDimensions);
  launch.smem = reader.expression("smem", draft.geometry);
  launch.pdl = reader.boolean_or("pdl", false);
  launch.cooperative = reader.boolean_or("cooperative", false);
  const TableReader template_table(root.need("template"), "[template]", root.file());
  draft.out.kernel.instantiate = name_expression(draft, template_table, "instantiate");
  read_cost(draft, root);
  if (const TomlValue* found = root.find("reference")) {
    const TableReader reference(*found, "[reference]", root.file(),
                                {"source", "instantiate", "grid", "block"});
    EntryPoint& out = draft.out.reference.emplace();
    out.source = inner_path(reference, "source");
    out.instantiate = name_expression(draft, reference, "instantiate");
    read_geometry(out.launch, reference, draft.reference);
  }
}

void read_requirements(Draft& draft, const TableReader& root) {
  const SlotLayout& slots = draft.out.slots;
  for (const TomlValue* table : root.tables("require")) {
    const TableReader reader(*table, "[[require]]", root.file(), {"expr", "message"});
    Requirement out;
    reader.need("expr");
    out.expression = reader.expression("expr", draft.require);
    out.message = reader.need_line("message");
    const auto& reads = out.expression.reads();
    out.at_launch = std::any_of(reads.begin(), reads.end(), [&](int slot) {
      return slot >= slots.argument_slot(0) && !slots.is_of_arch(slot);
    });
    check_message(draft, reader, out);
    draft.out.requirements.push_back(std::move(out));
  }
}

}  // namespace kiln::source
