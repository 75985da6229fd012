// kiln remote pull: gets entries of the fleet's tier into the cache or a layer, and verifies each entry.
#include "tools/kiln/fleet/pull.hpp"

#include <cstdint>
#include <set>

#include "base/log.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "cache/place/directory.hpp"
#include "runtime/state/places.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/plan/plan.hpp"
#include "tools/kiln/plan/select.hpp"
#include "tools/kiln/store/bundled_entry.hpp"
#include "tools/kiln/store/key/name.hpp"
#include "tools/kiln/store/tier/transfer.hpp"
#include "tools/kiln/store/view.hpp"

namespace kiln::cli {
namespace {

constexpr auto kReadWait = std::chrono::seconds(10);  // for the store's gate

struct PullArguments {
  SelectionFlags selection;
  std::string layer;
  bool strict = false;
};

struct Pulled {
  std::string directory;
  std::uint64_t wanted = 0, stored = 0, present = 0, rejected = 0, other_version = 0;
  std::vector<std::string> missing;  ///< labels of a plan's rows that the tier does not have
  std::map<std::string, std::uint64_t> rejections;
  FirstFault fault;
};

class Pull {
 public:
  Pull(Context& context, const PullArguments& arguments, std::shared_ptr<fleet::Tier> tier)
      : context_(context), arguments_(arguments), tier_(std::move(tier)) {
    store_ = arguments.layer.empty() ? runtime::open_configured_store(context.config())
                                     : runtime::create_layer(arguments.layer);
    out_.directory = store_->directory();
  }

  Pulled run() {
    if (arguments_.selection.plans.empty())
      everything();
    else
      of_plans();
    if (!arguments_.layer.empty()) cache::share_layer(store_->directory());
    return std::move(out_);
  }

 private:
  struct One {
    Key key;
    std::string text;   ///< empty: not known
    std::string label;  ///< for `missing`
  };

  void of_plans() {
    const PrewarmPlan plan = make_plan(context_, arguments_.selection.plans, context_.target_gpus(),
                                       {arguments_.selection.device, arguments_.layer.empty()});
    std::vector<One> batch;
    for (const PlannedTask& task : plan.tasks) {
      if (PoliteInterrupt::requested() || out_.fault.down) return;
      if (!wants(task.specialization().template_name)) continue;
      const auto made =
          context_.service().core().path().key_of(source::instantiate(task.origin, task.resolved));
      batch.push_back({made.key, made.text, task.label});
      if (batch.size() == kKeysAtOnce) fetch(std::exchange(batch, {}));
    }
    fetch(batch);
  }

  void everything() {
    std::set<Key> seen;
    const auto take = [&](std::span<const fleet::StoredValue> values) {
      std::vector<One> batch;
      for (const fleet::StoredValue& value : values) {
        if (PoliteInterrupt::requested()) return;
        if (seen.insert(value.key).second) batch.push_back({value.key, {}, {}});
        if (batch.size() == kKeysAtOnce) fetch(std::exchange(batch, {}));
      }
      fetch(batch);
    };
    for (const auto& server : tier_->backend().upkeep().servers())
      out_.fault.note(server->walk(fleet::ServerUpkeep::Walk::entries, take));
  }

  bool wants(const std::string& name) const {
    return arguments_.selection.templates.empty() ||
           std::find(arguments_.selection.templates.begin(), arguments_.selection.templates.end(), name) !=
               arguments_.selection.templates.end();
  }

  /// REQUIRES: the record was checked.
  bool wants(const cache::Record& record) const {
    const SelectionFlags& selected = arguments_.selection;
    if (cache::is_blob(record.facts)) return selected.all_jits;
    const bool kernels = selected.all || !selected.plans.empty() || !selected.templates.empty();
    return kernels && (selected.templates.empty() || wants(template_of(record)));
  }

  void fetch(const std::vector<One>& batch) {
    if (batch.empty()) return;
    std::vector<fleet::Asked> asked;
    for (const One& one : batch)
      asked.push_back(
          {one.key, one.text, one.text.empty() ? fleet::Asked::Text::prefix : fleet::Asked::Text::whole});
    out_.wanted += batch.size();
    auto fetched = tier_->fetch(asked, base::Deadline::never());
    std::vector<cache::Record> records;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      out_.fault.note(fetched[i].fault, fetched[i].detail);
      if (fetched[i].rejection) ++out_.rejected, ++out_.rejections[name_of(*fetched[i].rejection)];
      if (!fetched[i].entry) {
        if (!batch[i].label.empty()) out_.missing.push_back(batch[i].label);
        continue;
      }
      cache::Record& record = *fetched[i].entry;
      if (std::string why; !is_usable(record, why)) {
        ++out_.other_version, base::debug("entry " + short_name(record.key) + ": " + why);
        continue;
      }
      if (!wants(record)) {
        --out_.wanted;
        continue;
      }
      if (is_superfluous(record)) {
        ++out_.present;
        continue;
      }
      records.push_back(std::move(record));
    }
    for (const cache::PutResult& put : store_->put_many(records)) {
      if (put.put == cache::Put::stored)
        ++out_.stored;
      else if (put.put == cache::Put::present)
        ++out_.present;
      else
        throw Error(Errc::io, "an entry could not be stored in '" + store_->directory() + "' (" +
                                  std::string(cache::to_string(put.put)) + "): " + put.detail);
    }
  }

  /// True for a part of a blob that the store has in parts of another size, or in one record.
  /// REQUIRES: the record was checked.
  bool is_superfluous(const cache::Record& record) const try {
    if (!cache::is_blob(record.facts)) return false;
    const cache::BlobFacts part = cache::decode_blob(record.facts);
    if (part.part == 0) return false;
    const auto head = store_->peek_text(cache::blob_key(part).key, base::Deadline::after(kReadWait));
    if (!head || !cache::is_blob(head->facts)) return false;
    const cache::BlobFacts there = cache::decode_blob(head->facts);
    return there.content != part.content || there.part_bytes != part.part_bytes;
  } catch (const base::Malformed&) {
    return false;
  }

  /// REQUIRES: the record was checked.
  static std::string template_of(const cache::Record& record) {
    if (compile::is_choice(record.facts)) return compile::decode_choice(record.facts).template_name;
    const std::string unit = compile::decode_facts(record.facts).unit;
    return unit.substr(0, unit.find('@'));
  }

  Context& context_;
  const PullArguments& arguments_;
  const std::shared_ptr<fleet::Tier> tier_;
  std::shared_ptr<cache::Store> store_;
  Pulled out_;
};

int pull(Context& context, const PullArguments& arguments) {
  const auto& [plans, templates, device, all, all_jits] = arguments.selection;
  if (plans.empty() && templates.empty() && !all && !all_jits)
    throw Error(Errc::invalid_argument,
                "no entries are selected; give plans or traces, -t NAME, --all, or --all-jits");
  if (all_jits && !plans.empty())
    throw Error(Errc::invalid_argument,
                "--all-jits walks over all entries of the tier: it cannot be combined with a plan");
  if (all && (!plans.empty() || !templates.empty()))
    throw Error(Errc::invalid_argument, "--all takes all entries: it cannot be combined with a plan or -t");
  const PoliteInterrupt interrupt;
  const auto tier = configured_tier(context);
  for (const auto& server : tier->backend().upkeep().servers()) server->reach();
  const Pulled done = Pull(context, arguments, tier).run();
  if (context.json) {
    print_json({{"schema", context.schema()},
                {"directory", done.directory},
                {"layer", !arguments.layer.empty()},
                {"wanted", done.wanted},
                {"stored", done.stored},
                {"present", done.present},
                {"rejected", done.rejected},
                {"rejections", done.rejections},
                {"other_version", done.other_version},
                {"missing", done.missing},
                {"fault", done.fault.json()},
                {"interrupted", PoliteInterrupt::requested()}});
  } else {
    for (const std::string& missing : done.missing) print("missing  " + missing + '\n');
    print_paragraph(counted(done.stored, "entry", "entries") + " from the fleet's tier into " +
                    done.directory + ", " + std::to_string(done.present) + " there already" +
                    (done.rejected ? ", " + std::to_string(done.rejected) + " rejected" : ""));
  }
  std::fflush(stdout);
  for (const auto& [reason, count] : done.rejections)
    base::warn(counted(count, "entry", "entries") + " of the fleet's tier rejected: " + reason);
  warn_of(done.fault, *tier);
  if (done.fault.down) return remote_down(arguments.strict, kPartly);
  if (PoliteInterrupt::requested()) return kInterrupted;
  return done.missing.empty() && done.rejected + done.other_version == 0 && !done.fault ? kDone : kPartly;
}

}  // namespace

void add_remote_pull(Command remote, Context& context) {
  const auto arguments = std::make_shared<PullArguments>();
  const Command sub = context.add_command(remote, "pull", "Put entries of the tier into the cache or a layer",
                                          [&context, arguments] { return pull(context, *arguments); });
  add_selection_options(sub, arguments->selection);
  sub.option("--layer", arguments->layer, "Store into this layer instead of the cache")
      .not_empty()
      .type_name("DIR");
  add_strict_option(sub, arguments->strict);
  sub.footer(
      "Only entries that a key of KILN_REMOTE_KEY signed are accepted. Each is then checked as 'kiln bundle\n"
      "import' checks an entry. Without a plan, pull searches the server with SCAN, which its ACL may "
      "forbid.\n"
      "Exit status: 0 all there, 1 failed, 2 usage or no tier, 3 some are missing or were rejected,\n"
      "5 a server is down (with --strict), 130 interrupted.");
}

}  // namespace kiln::cli
