// kiln remote prune: what no node can use leaves the fleet's tier.
#include "tools/kiln/fleet/prune.hpp"

#include "base/log.hpp"
#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/toolchain_row.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/fleet/tier.hpp"
#include "tools/kiln/store/key_name.hpp"

namespace kiln::cli {
namespace {

struct PruneArguments {
  std::string toolchain;
  bool all = false, dry_run = false, strict = false;
};

constexpr std::uint64_t kValueReply = (std::uint64_t{16} << 20) + 64;

struct Pruned {
  std::uint64_t scanned = 0, kept = 0;
  std::uint64_t unusable = 0;  ///< entries that do not verify
  std::uint64_t rows = 0;      ///< rows without an entry, or that do not verify
  std::uint64_t others = 0;    ///< of another version of kiln's names
  std::uint64_t chosen = 0;    ///< by --toolchain or --all
  std::uint64_t removed = 0;
  FirstFault fault;
};

class Prune {
 public:
  Prune(fleet::Tier& tier, const PruneArguments& arguments) : tier_(tier), arguments_(arguments) {}

  Pruned run() {
    for (OneServer& server : servers_of(tier_)) {
      client_ = server.client.get();
      const auto answer = scan(*client_, "kiln:*", [&](std::vector<std::string> names) {
        for (std::size_t from = 0; from < names.size() && !PoliteInterrupt::requested(); from += kKeysAtOnce)
          look({names.begin() + static_cast<std::ptrdiff_t>(from),
                names.begin() + static_cast<std::ptrdiff_t>(std::min(from + kKeysAtOnce, names.size()))});
      });
      out_.fault.note(answer);
    }
    return out_;
  }

 private:
  void look(const std::vector<std::string>& names) {
    std::vector<std::string> gone;
    for (const std::string& name : names) {
      if (name == fleet::kMissingKey) continue;
      ++out_.scanned;
      const auto parsed = fleet::parse_name(name);
      if (arguments_.all) {
        ++out_.chosen, gone.push_back(name);
      } else if (!parsed) {
        if (name.starts_with(fleet::kKeyPrefix)) continue;  // not ours to judge
        ++out_.others, gone.push_back(name);
      } else if (parsed->kind == 't') {
        if (!prune_rows(name, parsed->key.specialisation)) ++out_.unusable, gone.push_back(name);
      } else if (parsed->kind == 'e') {
        if (is_chosen(parsed->key.toolchain))
          ++out_.chosen, gone.push_back(name);
        else if (!is_usable(parsed->key))
          ++out_.unusable, gone.push_back(name);
        else
          ++out_.kept;
      }
    }
    remove(gone);
  }

  bool is_chosen(const Digest& toolchain) const {
    return !arguments_.toolchain.empty() && toolchain.hex().starts_with(arguments_.toolchain);
  }

  bool is_usable(const Key& key) {
    const auto answer = ask(*client_, {{"GET", fleet::entry_key(key)}, {}, kValueReply});
    if (fleet::is_of_wrong_type(answer.fault, answer.detail)) return false;
    out_.fault.note(answer);
    if (!answer || answer.reply.kind == fleet::Reply::Kind::nil) return true;  // gone, or nobody knows
    const auto opened =
        fleet::open_envelope(answer.reply.text, {key, {}, fleet::Asked::Text::prefix}, tier_.trusted());
    return std::holds_alternative<fleet::PublishedRecord>(opened);
  }

  /// Those whose entry is there and not to go are kept. False: there are no rows under that name.
  bool prune_rows(const std::string& name, const Digest& specialisation) {
    const auto rows = ask(*client_, {{"HGETALL", name}, {}, kValueReply});
    if (fleet::is_of_wrong_type(rows.fault, rows.detail)) return false;
    out_.fault.note(rows);
    if (!rows) return true;
    std::vector<std::string> words{"HDEL", name};
    for (std::size_t i = 0; i + 1 < rows.reply.elements.size(); i += 2) {
      const std::string& field = rows.reply.elements[i].text;
      const auto toolchain = Digest::from_hex(field);
      bool useful = toolchain && !is_chosen(*toolchain);
      if (useful) {
        const Key key{specialisation, *toolchain};
        useful = std::holds_alternative<fleet::ToolchainRow>(
            fleet::open_row(rows.reply.elements[i + 1].text, key, tier_.trusted()));
        const auto there = ask(*client_, {{"EXISTS", fleet::entry_key(key)}, {}, 64});
        useful &= !there || there.reply.integer == 1;
      }
      if (!useful) words.push_back(field);
    }
    if (words.size() == 2) {
      ++out_.kept;
      return true;
    }
    out_.rows += words.size() - 2;
    if (arguments_.dry_run) return true;
    const auto answer = ask(*client_, {std::move(words), {}, 1024});
    out_.fault.note(answer);
    if (answer) out_.removed += static_cast<std::uint64_t>(answer.reply.integer);
    return true;
  }

  void remove(const std::vector<std::string>& names) {
    if (arguments_.dry_run) return;
    for (const std::string& name : names) {  // one by one: a cluster's slots differ
      const auto answer = ask(*client_, {{"UNLINK", name}, {}, 1024});
      out_.fault.note(answer);
      if (answer) out_.removed += static_cast<std::uint64_t>(answer.reply.integer);
    }
  }

  fleet::Tier& tier_;
  const PruneArguments& arguments_;
  fleet::Client* client_ = nullptr;
  Pruned out_;
};

int prune(Context& context, const PruneArguments& arguments) {
  check_toolchain(arguments.toolchain);
  const PoliteInterrupt interrupt;
  const auto tier = configured_tier(context);
  const Pruned done = Prune(*tier, arguments).run();
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
                    " that no node believes, " + counted(done.rows, "row") + " without an entry, " +
                    std::to_string(done.others) + " of other versions" +
                    (done.chosen ? ", " + std::to_string(done.chosen) + " as chosen" : ""));
  }
  std::fflush(stdout);
  if (done.fault) base::warn("the fleet's tier at " + tier->url().safe() + ": " + done.fault.text);
  if (done.fault.down) return remote_down(arguments.strict, kPartly);
  if (PoliteInterrupt::requested()) return kInterrupted;
  return !done.fault ? kDone : kPartly;
}

}  // namespace

void add_remote_prune(Command remote, Context& context) {
  const auto arguments = std::make_shared<PruneArguments>();
  const Command sub = context.add_command(remote, "prune", "Remove what no node can use",
                                          [&context, arguments] { return prune(context, *arguments); });
  sub.option("--toolchain", arguments->toolchain, "Also the entries of toolchains whose digest begins so")
      .not_empty()
      .type_name("HEX");
  sub.flag("--all", arguments->all, "Everything of kiln's");
  sub.flag("-n,--dry-run", arguments->dry_run, "Only say what would go");
  add_strict_option(sub, arguments->strict);
  sub.footer(
      "Removed are entries that do not verify with KILN_REMOTE_KEY (after a key was rotated: all that the\n"
      "old one signed), rows of toolchains whose entry is gone, and values of other versions of kiln.\n"
      "What is merely old the server evicts by itself (allkeys-lfu). It needs SCAN and UNLINK.\n"
      "Exit status: 0 done, 1 failed, 2 usage or no tier, 3 partly done, 5 a server is down (with\n"
      "--strict), 130 interrupted.");
}

}  // namespace kiln::cli
