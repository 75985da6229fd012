#include "manifest/read/work_list.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include "base/process.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {

using Key = WorkListKind::Key;

constinit base::ProcessWide<Expression> g_no_expression;

std::vector<std::string> names_of(std::span<const Key> keys) {
  std::vector<std::string> out;
  for (const Key& key : keys) out.emplace_back(key.name);
  return out;
}

const WorkListKind& kind_of(WorkListKinds kinds, const TableReader& reader) {
  const std::string name = reader.need_line("kind");
  std::vector<std::string> known;
  for (const WorkListKind& kind : kinds) {
    if (kind.name == name) return kind;
    known.emplace_back(kind.name);
  }
  reader.fail("kind", base::quote(name) + " is unknown; allowed: " +
                          (known.empty() ? "none in this program" : base::join(known, " ")));
}

Expression value_of(const TableReader& reader, const Key& key, const Symbols& symbols) {
  if (!key.value) reader.need(key.name);
  return reader.has(key.name) ? reader.expression(key.name, symbols) : Expression::constant(*key.value);
}

/// True when the expression is known for a kernel on a device before any call. It may also read slot `also`.
bool known_before_calls(const SlotLayout& slots, const Expression& expression, int also = -1) {
  return std::all_of(expression.reads().begin(), expression.reads().end(), [&](int slot) {
    return slot < slots.argument_slot(0) || slot >= slots.export_slot(0) || slot == also;
  });
}

class WorkListReader {
 public:
  WorkListReader(Draft& draft, const TableReader& reader)
      : draft_(draft), reader_(reader), kind_(*draft.work_list.kind) {}

  void read() {
    WorkListSpec& out = draft_.out.work_list.emplace();
    out.kind = kind_.name;
    out.on_device = read_on();
    out.argument = argument("argument");
    if (reader_.has("workspace")) out.workspace = argument("workspace");
    out.workers = argument("workers");
    check_list_argument(draft_.out.arguments[index(out.argument)]);
    check_workers(draft_.out.arguments[index(out.workers)]);
    if (out.workspace >= 0) check_workspace(draft_.out.arguments[index(out.workspace)], out);
    for (const Key& key : kind_.kernel) {
      Expression value = value_of(reader_, key, draft_.launch);
      if (!known_before_calls(draft_.out.slots, value))
        reader_.fail(
            key.name,
            base::quote(value.text()) +
                " reads an argument or a run-time value, but this value must be known before any call");
      out.kernel.emplace_back(key.name, std::move(value));
    }
    if (const TomlValue* run = draft_.work_list.run())
      read_run(out, TableReader(*run, draft_.work_list.run_title(), reader_.file()));
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  bool read_on() const {
    if (!reader_.has("on")) return false;
    const std::string on = reader_.need_line("on");
    if (on != "host" && on != "device")
      reader_.fail("on", base::quote(on) + " is unknown; allowed: host device");
    return on == "device";
  }

  int argument(std::string_view key) const {
    const std::string name = reader_.need_line(key);
    if (const int found = argument_index(draft_.out, name); found >= 0) return found;
    std::vector<std::string> known;
    for (const ArgumentSpec& a : draft_.out.arguments) known.push_back(a.name);
    reader_.fail(key, base::quote(name) + " is no argument" + base::did_you_mean(name, known) +
                          "; known: " + base::join(known, " "));
  }

  /// Checks the argument for a list that kiln makes: kiln makes a list for every call,
  /// and in only one layout.
  void check_made(std::string_view key, const ArgumentSpec& a) const {
    if (a.type.kind != ArgumentType::Kind::pointer)
      reader_.fail(key, base::quote(a.name) + " must be a pointer");
    if (a.optional || !a.exists.empty())
      reader_.fail(key, base::quote(a.name) + " must not be optional: every launch has one");
    if (!a.stride.empty()) reader_.fail(key, base::quote(a.name) + " must have no stride");
  }
  void check_list_argument(const ArgumentSpec& a) const {
    check_made("argument", a);
    if (a.type.dtype != Dtype::i32) reader_.fail("argument", base::quote(a.name) + " must be a ptr<i32>");
    if (!a.shape.empty())
      reader_.fail("argument",
                   base::quote(a.name) + " must have no shape: the work list has a size of its own");
  }
  void check_workers(const ArgumentSpec& a) const {
    if (a.type.kind != ArgumentType::Kind::i32)
      reader_.fail("workers", base::quote(a.name) + " must be an i32");
    if (a.value.empty() || !known_before_calls(draft_.out.slots, a.value))
      reader_.fail("workers", base::quote(a.name) +
                                  " needs a value made of parameters, derives and the device: the number of "
                                  "blocks that the device holds at once");
  }
  void check_workspace(const ArgumentSpec& a, const WorkListSpec& list) const {
    check_made("workspace", a);
    if (a.shape.empty())
      reader_.fail("workspace", base::quote(a.name) + " needs a shape, which states its size");
    const int workers = draft_.out.slots.argument_slot(list.workers);
    for (const Expression& extent : a.shape) {
      if (!known_before_calls(draft_.out.slots, extent, workers))
        reader_.fail("workspace", "the shape of " + base::quote(a.name) +
                                      " must be made of parameters, derives, the device and " +
                                      base::quote(draft_.out.arguments[index(list.workers)].name) +
                                      ": its size is the same for every launch");
    }
  }

  void read_run(WorkListSpec& out, const TableReader& run) {
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
  const WorkListKind& kind_;
};

/// The declared run values, in the kind's order.
std::vector<const Key*> declared(const WorkListTable& list) {
  std::vector<const Key*> out;
  if (!list.run()) return out;
  for (const Key& key : list.kind->run_values) {
    if (!key.may_be_left_out || list.run()->find(key.name)) out.push_back(&key);
  }
  return out;
}

}  // namespace

const Expression& WorkListSpec::of(std::string_view key) const {
  for (const Values* values : {&kernel, &run}) {
    for (const auto& [name, expression] : *values) {
      if (name == key) return expression;
    }
  }
  return g_no_expression.get();
}

void find_work_list(Draft& draft, const TableReader& root, WorkListKinds kinds) {
  WorkListTable& list = draft.work_list;
  if (root.has("work_list") && root.has("plan"))
    root.fail("plan", "is the old name of [work_list], and the manifest has both: remove one of them");
  if (root.has("plan")) list.name = "plan";
  const TomlValue* found = root.find(list.name);
  if (!found) return;
  list.kind = &kind_of(kinds, TableReader(*found, list.title(), root.file()));
  list.table = found;
}

int count_run_values(const Draft& draft) { return static_cast<int>(declared(draft.work_list).size()); }

void declare_work_list(Draft& draft, const TableReader& root) {
  const WorkListTable& list = draft.work_list;
  if (!list.table) return;
  const TableReader reader(*list.table, list.title(), root.file());
  std::vector<std::string> known = {"kind", "on", "argument", "workspace", "workers", "run"};
  for (std::string& name : names_of(list.kind->kernel)) known.push_back(std::move(name));
  reader.check_keys(known);
  if (!list.run()) return;
  const TableReader of_run(*list.run(), list.run_title(), root.file());
  known = names_of(list.kind->run_values);
  for (std::string& name : names_of(list.kind->run)) known.push_back(std::move(name));
  of_run.check_keys(known);
  for (const Key* key : declared(list)) {
    const std::string name(key->name), what = "a value of " + list.run_title();
    take_name(draft, of_run, key->name, name, what.c_str());
    draft.out.run_values.push_back({name, std::string(key->doc), {}});
  }
}

void read_work_list(Draft& draft, const TableReader& root) {
  const WorkListTable& list = draft.work_list;
  if (!list.table) return;
  const TableReader reader(*list.table, list.title(), root.file());
  WorkListReader(draft, reader).read();
}

}  // namespace kiln::source
