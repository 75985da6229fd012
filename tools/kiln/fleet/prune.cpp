// kiln remote prune: removes from the fleet's tier what no node can use.
#include "tools/kiln/fleet/prune.hpp"

#include <algorithm>

#include "cache/fleet/toolchain_row.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/key/name.hpp"

namespace kiln::cli {
namespace {

struct PruneArguments : PruneChoice {
  bool strict = false;
};

class Prune {
 public:
  Prune(fleet::Tier& tier, const PruneChoice& choice) : tier_(tier), choice_(choice) {}

  Pruned run() {
    const auto look_at_page = [this](std::span<const fleet::StoredValue> page) {
      for (; !page.empty() && !PoliteInterrupt::requested();
           page = page.subspan(std::min(kKeysAtOnce, page.size())))
        look(page.first(std::min(kKeysAtOnce, page.size())));
    };
    for (const auto& server : tier_.backend().upkeep().servers()) {
      server_ = server.get();
      out_.fault.note(server->walk(fleet::ServerUpkeep::Walk::everything, look_at_page));
    }
    return out_;
  }

 private:
  using Kind = fleet::StoredValue::Kind;

  void look(std::span<const fleet::StoredValue> values) {
    std::vector<const fleet::StoredValue*> gone;
    for (const fleet::StoredValue& value : values) {
      if (value.kind == Kind::missed_rows) continue;
      ++out_.scanned;
      std::uint64_t* const reason = reason_to_go(value);
      if (!reason) continue;
      ++*reason;
      gone.push_back(&value);
    }
    if (choice_.dry_run) return;
    for (const fleet::StoredValue* value : gone) note(server_->erase(*value));
  }

  /// The counter of the reason for which the value is removed; null when the value stays.
  std::uint64_t* reason_to_go(const fleet::StoredValue& value) {
    if (choice_.all) return &out_.chosen;
    switch (value.kind) {
      case Kind::other_version:
        return &out_.others;
      case Kind::rows:
        return prune_rows(value.key.specialisation) ? nullptr : &out_.unusable;
      case Kind::entry:
        if (is_chosen(value.key.toolchain)) return &out_.chosen;
        if (!is_usable(value.key)) return &out_.unusable;
        ++out_.kept;
        return nullptr;
      case Kind::lease:  // expires on the server
      case Kind::missed_rows:
      case Kind::unknown:  // not written by kiln
        return nullptr;
    }
    return nullptr;
  }

  bool is_chosen(const Digest& toolchain) const {
    return !choice_.toolchain.empty() && toolchain.hex().starts_with(choice_.toolchain);
  }

  bool is_usable(const Key& key) {
    const fleet::Value value = server_->entry(key);
    out_.fault.note(value);
    if (value.kind == fleet::Value::Kind::other) return false;
    if (!value || value.kind == fleet::Value::Kind::absent) return true;  // gone, or not known
    const auto opened =
        fleet::open_envelope(value.bytes, {key, {}, fleet::Asked::Text::prefix}, tier_.trusted());
    return std::holds_alternative<fleet::PublishedRecord>(opened);
  }

  /// Keeps rows whose entry exists and is not to be removed. Returns false when the name holds no rows.
  bool prune_rows(const Digest& specialisation) {
    const auto rows = server_->rows(specialisation);
    if (!rows) return false;
    out_.fault.note(*rows);
    if (!*rows) return true;
    std::vector<std::string> useless;
    for (const auto& [toolchain, row] : rows->rows)
      if (!is_useful(specialisation, toolchain, row)) useless.push_back(toolchain);
    if (useless.empty()) {
      ++out_.kept;
      return true;
    }
    out_.rows += useless.size();
    if (!choice_.dry_run) note(server_->erase_rows(specialisation, useless));
    return true;
  }

  bool is_useful(const Digest& specialisation, const std::string& hex, const std::string& row) {
    const auto toolchain = Digest::from_hex(hex);
    if (!toolchain || is_chosen(*toolchain)) return false;
    const Key key{specialisation, *toolchain};
    const auto opened = fleet::open_row(row, key, tier_.trusted());
    return std::holds_alternative<fleet::ToolchainRow>(opened) && server_->has_entry(key).value_or(true);
  }

  void note(const fleet::Erased& erased) {
    out_.fault.note(erased);
    out_.removed += erased.count;
  }

  fleet::Tier& tier_;
  const PruneChoice& choice_;
  fleet::ServerUpkeep* server_ = nullptr;
  Pruned out_;
};

int prune(Context& context, const PruneArguments& arguments) {
  check_toolchain(arguments.toolchain);
  const PoliteInterrupt interrupt;
  const auto tier = configured_tier(context);
  const Pruned done = prune_tier(*tier, arguments);
  if (context.json) {
    print_json({{"schema", context.schema()},
                {"scanned", done.scanned},
                {"kept", done.kept},
                {"unusable", done.unusable},
                {"rows", done.rows},
                {"others", done.others},
                {"chosen", done.chosen},
                {"removed", done.removed},
                {"dry_run", arguments.dry_run},
                {"fault", done.fault.json()},
                {"interrupted", PoliteInterrupt::requested()}});
  } else {
    const std::uint64_t found = done.unusable + done.rows + done.others + done.chosen;
    print_paragraph(std::to_string(arguments.dry_run ? found : done.removed) +
                    (arguments.dry_run ? " would be removed" : " removed") + " of " +
                    counted(done.scanned, "value") + ": " + std::to_string(done.unusable) +
                    " that do not verify, " + counted(done.rows, "row") + " without an entry, " +
                    std::to_string(done.others) + " of other versions" +
                    (done.chosen ? ", " + std::to_string(done.chosen) + " by --all or --toolchain" : ""));
  }
  std::fflush(stdout);
  warn_of(done.fault, *tier);
  if (done.fault.down) return remote_down(arguments.strict, kPartly);
  if (PoliteInterrupt::requested()) return kInterrupted;
  return !done.fault ? kDone : kPartly;
}

}  // namespace

Pruned prune_tier(fleet::Tier& tier, const PruneChoice& choice) { return Prune(tier, choice).run(); }

void add_remote_prune(Command remote, Context& context) {
  const auto arguments = std::make_shared<PruneArguments>();
  const Command sub = context.add_command(remote, "prune", "Remove entries and rows that no node can use",
                                          [&context, arguments] { return prune(context, *arguments); });
  sub.option("--toolchain", arguments->toolchain,
             "Also remove the entries of toolchains whose digest begins with HEX")
      .not_empty()
      .type_name("HEX");
  sub.flag("--all", arguments->all, "Remove everything that kiln stored there");
  sub.flag("-n,--dry-run", arguments->dry_run, "Remove nothing; only count what would be removed");
  add_strict_option(sub, arguments->strict);
  sub.footer(
      "Removes entries that do not verify with KILN_REMOTE_KEY, rows of toolchains whose entry is gone, and\n"
      "values of other versions of kiln. After a key rotation, entries that the old key signed no longer\n"
      "verify. The server itself evicts entries that are merely old (allkeys-lfu). The server's ACL must\n"
      "allow SCAN and UNLINK.\n"
      "Exit status: 0 done, 1 failed, 2 usage or no tier, 3 partly done, 5 a server is down (with\n"
      "--strict), 130 interrupted.");
}

}  // namespace kiln::cli
