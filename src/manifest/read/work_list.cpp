#include "manifest/read/work_list.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {

struct Key {
  std::string_view name;
  std::optional<std::int64_t> value;  ///< when the manifest does not say; nothing: it must
  const char* doc = "";
};

struct Kind {
  std::string_view name;
  std::span<const Key> kernel;  ///< what the kernel fixes: of parameters, derives, exports, arch and device
  std::span<const Key> run;     ///< [plan.run]: what is made of the call's values
  std::span<const Key> run_values;  ///< [plan.run]: values of `kiln run`, under these names
};

constexpr Key kAttentionKernel[] = {{"tile_rows", {}}, {"tile_kv", {}},       {"group", {}},
                                    {"causal", 0},     {"window", 0},         {"tile_cost", 1},
                                    {"min_units", 4},  {"tiles_together", 0}, {"heads_together", 0}};
constexpr Key kAttentionRun[] = {{"kv_heads", {}}, {"page_size", 0}, {"window_left", -1}};
// Without qo_tokens each request has one token: a decode step.
constexpr Key kAttentionValues[] = {
    {"requests", {}, "requests of the batch"},
    {"qo_tokens", {}, "tokens of q, of all requests together"},
    {"kv_tokens", {}, "tokens of k and v, of all requests together"},
    {"equal_lengths", 0, "1: all requests alike, 0: random lengths, of which some are 0"}};
constexpr Kind kKinds[] = {{"attention", kAttentionKernel, kAttentionRun, kAttentionValues}};

bool may_be_left_out(const Key& key) { return key.name == "qo_tokens"; }

std::vector<std::string> names_of(std::span<const Key> keys) {
  std::vector<std::string> out;
  for (const Key& key : keys) out.emplace_back(key.name);
  return out;
}

const Kind& kind_of(const TableReader& plan) {
  const std::string name = plan.need_line("kind");
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
  }
  plan.fail("kind", base::quote(name) + " is unknown; allowed: attention");
}

Expression value_of(const TableReader& reader, const Key& key, const Symbols& symbols) {
  if (!key.value) reader.need(key.name);
  return reader.has(key.name) ? reader.expression(key.name, symbols) : Expression::constant(*key.value);
}

/// Whether an expression is known for a kernel on a device, before any call; `also` may be read, too.
bool known_before_calls(const SlotLayout& slots, const Expression& expression, int also = -1) {
  return std::all_of(expression.reads().begin(), expression.reads().end(), [&](int slot) {
    return slot < slots.argument_slot(0) || slot >= slots.export_slot(0) || slot == also;
  });
}

class PlanReader {
 public:
  PlanReader(Draft& draft, const TableReader& reader, const Kind& kind)
      : draft_(draft), reader_(reader), kind_(kind) {}

  void read() {
    HostPlanSpec& out = draft_.out.plan.emplace();
    out.kind = kind_.name;
    out.argument = argument("argument");
    if (reader_.has("workspace")) out.workspace = argument("workspace");
    out.workers = argument("workers");
    check_plan_argument(draft_.out.arguments[index(out.argument)]);
    check_workers(draft_.out.arguments[index(out.workers)]);
    if (out.workspace >= 0) check_workspace(draft_.out.arguments[index(out.workspace)], out);
    for (const Key& key : kind_.kernel) {
      Expression value = value_of(reader_, key, draft_.launch);
      if (!known_before_calls(draft_.out.slots, value))
        reader_.fail(
            key.name,
            base::quote(value.text()) +
                " reads an argument or a run-time value: what the kernel fixes is known before any call");
      out.kernel.emplace_back(key.name, std::move(value));
    }
    if (const TomlValue* run = reader_.find("run"))
      read_run(out, TableReader(*run, "[plan.run]", reader_.file()));
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  int argument(std::string_view key) const {
    const std::string name = reader_.need_line(key);
    if (const int found = draft_.out.argument_index(name); found >= 0) return found;
    std::vector<std::string> known;
    for (const ArgumentSpec& a : draft_.out.arguments) known.push_back(a.name);
    reader_.fail(key, base::quote(name) + " is no argument" + base::did_you_mean(name, known) +
                          "; known: " + base::join(known, " "));
  }

  /// What kiln makes is made for every call, and in one way.
  void check_made(std::string_view key, const ArgumentSpec& a) const {
    if (a.type.kind != ArgumentType::Kind::pointer)
      reader_.fail(key, base::quote(a.name) + " must be a pointer");
    if (a.optional || !a.exists.empty())
      reader_.fail(key, base::quote(a.name) + " must not be optional: there always is one");
    if (!a.stride.empty()) reader_.fail(key, base::quote(a.name) + " must have no stride");
  }
  void check_plan_argument(const ArgumentSpec& a) const {
    check_made("argument", a);
    if (a.type.dtype != Dtype::i32) reader_.fail("argument", base::quote(a.name) + " must be a ptr<i32>");
    if (!a.shape.empty())
      reader_.fail("argument", base::quote(a.name) + " must have no shape: the plan has a size of its own");
  }
  void check_workers(const ArgumentSpec& a) const {
    if (a.type.kind != ArgumentType::Kind::i32)
      reader_.fail("workers", base::quote(a.name) + " must be an i32");
    if (a.value.empty() || !known_before_calls(draft_.out.slots, a.value))
      reader_.fail("workers", base::quote(a.name) +
                                  " needs a value made of parameters, derives and the device: as many blocks "
                                  "as the device holds at once");
  }
  void check_workspace(const ArgumentSpec& a, const HostPlanSpec& plan) const {
    check_made("workspace", a);
    if (a.shape.empty()) reader_.fail("workspace", base::quote(a.name) + " needs a shape: its size");
    const int workers = draft_.out.slots.argument_slot(plan.workers);
    for (const Expression& extent : a.shape) {
      if (!known_before_calls(draft_.out.slots, extent, workers))
        reader_.fail("workspace", "the shape of " + base::quote(a.name) +
                                      " must be made of parameters, derives, the device and " +
                                      base::quote(draft_.out.arguments[index(plan.workers)].name) +
                                      ": it never moves");
    }
  }

  void read_run(HostPlanSpec& out, const TableReader& run) {
    out.has_run = true;
    for (const Key& key : kind_.run) out.run.emplace_back(key.name, value_of(run, key, draft_.run));
    for (RuntimeValueSpec& value : draft_.out.run_values) {
      const auto key = std::find_if(kind_.run_values.begin(), kind_.run_values.end(),
                                    [&](const Key& k) { return k.name == value.name; });
      value.value = value_of(run, *key, draft_.run);
    }
  }

  Draft& draft_;
  const TableReader& reader_;
  const Kind& kind_;
};

/// [plan.run], when there is one that can be read so early.
const TomlValue* run_table(const TableReader& root) {
  const TomlValue* plan = root.find("plan");
  return plan && plan->kind == TomlValue::Kind::table ? plan->find("run") : nullptr;
}

/// The run values that are declared, in the kind's order.
std::vector<const Key*> declared(const TableReader& root) {
  std::vector<const Key*> out;
  const TomlValue* run = run_table(root);
  if (!run) return out;
  const TableReader reader(*run, "[plan.run]", root.file());
  for (const Key& key : kind_of(TableReader(root.need("plan"), "[plan]", root.file())).run_values) {
    if (!may_be_left_out(key) || reader.has(key.name)) out.push_back(&key);
  }
  return out;
}

}  // namespace

const Expression& HostPlanSpec::of(std::string_view key) const {
  for (const Values* values : {&kernel, &run}) {
    for (const auto& [name, expression] : *values) {
      if (name == key) return expression;
    }
  }
  static const Expression none;
  return none;
}

int count_run_values(const TableReader& root) { return static_cast<int>(declared(root).size()); }

void declare_plan(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("plan");
  if (!found) return;
  const TableReader reader(*found, "[plan]", root.file());
  const Kind& kind = kind_of(reader);
  std::vector<std::string> known = {"kind", "argument", "workspace", "workers", "run"};
  for (std::string& name : names_of(kind.kernel)) known.push_back(std::move(name));
  reader.check_keys(known);
  const TomlValue* run = run_table(root);
  if (!run) return;
  const TableReader of_run(*run, "[plan.run]", root.file());
  known = names_of(kind.run_values);
  for (std::string& name : names_of(kind.run)) known.push_back(std::move(name));
  of_run.check_keys(known);
  for (const Key* key : declared(root)) {
    take_name(draft, of_run, key->name, std::string(key->name), "a value of [plan.run]");
    draft.out.run_values.push_back({std::string(key->name), key->doc, {}});
  }
}

void read_plan(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("plan");
  if (!found) return;
  const TableReader reader(*found, "[plan]", root.file());
  PlanReader(draft, reader, kind_of(reader)).read();
}

}  // namespace kiln::source
