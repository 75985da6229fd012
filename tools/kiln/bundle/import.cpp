// kiln bundle import: puts entries of a bundle into the cache or a layer, and checks each entry.
#include "tools/kiln/bundle/import.hpp"

#include <cstdint>
#include <ctime>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "cache/place/directory.hpp"
#include "cache/store/store.hpp"
#include "runtime/state/places.hpp"
#include "tools/kiln/bundle/input.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/store/bundled_entry.hpp"
#include "tools/kiln/store/key/name.hpp"

namespace kiln::cli {
namespace {

struct ImportArguments {
  BundleFlags bundle;
  std::string layer;
};

/// Limits of one transaction: large enough for few syncs, small enough for little memory.
constexpr std::size_t kBatchEntries = 256;
constexpr std::size_t kBatchBytes = std::size_t{16} << 20;
constexpr auto kPeekWait = std::chrono::seconds(10);  // for the gate

struct Imported {
  std::string directory;
  std::uint64_t entries = 0, stored = 0, present = 0, other_image = 0, other_version = 0, evicted = 0;
  bool complete = false, interrupted = false;
  std::optional<BundleFault> fault;
  SignatureState signature;
  bundle::Summary summary;
  double seconds = 0;
};

/// The store that receives the entries. `share` makes a layer readable for everybody; it is called even after
/// a failure.
class Target {
 public:
  Target(const Context& context, const std::string& layer)
      : layer_(!layer.empty()),
        store_(layer_ ? runtime::create_layer(layer) : runtime::open_configured_store(context.config())) {}
  void share() const {
    if (layer_) cache::share_layer(store_->directory());
  }
  cache::Store& store() const noexcept { return *store_; }

 private:
  const bool layer_;
  const std::shared_ptr<cache::Store> store_;
};

class Batch {
 public:
  Batch(cache::Store& store, Imported& out) : store_(store), out_(out) {}
  void add(cache::Record record) {
    bytes_ += record.size();
    records_.push_back(std::move(record));
    if (records_.size() >= kBatchEntries || bytes_ >= kBatchBytes) write();
  }
  /// Throws Error(io) that names the first record that could not be stored.
  void write() {
    const auto records = std::exchange(records_, {});
    bytes_ = 0;
    std::string failed;
    const auto results = store_.put_many(records);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const cache::PutResult& result = results[i];
      out_.evicted += result.evicted;
      if (!result.notice.empty()) base::warn(result.notice);
      if (result.put == cache::Put::stored)
        ++out_.stored;
      else if (result.put == cache::Put::present)
        ++out_.present, out_.other_image += has_other_image(records[i]);
      else if (failed.empty())
        failed = "entry " + short_name(records[i].key) + " could not be stored in '" + store_.directory() +
                 "' (" + std::string(cache::to_string(result.put)) + "): " + result.detail;
    }
    if (!failed.empty()) throw Error(Errc::io, failed);
  }

 private:
  /// True when the store has the key with another image. A key tells what was compiled but not the result,
  /// and the writer of one of the two may have lied. For a tuned choice, the chosen values are compared.
  bool has_other_image(const cache::Record& record) const {
    const auto there = store_.peek(record.key, base::Deadline::after(kPeekWait));
    if (there && compile::is_choice(there->facts))
      return compile::decode_choice(there->facts).chosen != compile::decode_choice(record.facts).chosen;
    return there && there->image != record.image;
  }
  cache::Store& store_;
  Imported& out_;
  std::vector<cache::Record> records_;
  std::size_t bytes_ = 0;
};

void read_into(Batch& batch, OpenBundle& bundle, Imported& out, Progress* progress) {
  while (!PoliteInterrupt::requested()) {
    auto entry = bundle.next();
    if (!entry) {
      out.complete = true;
      return;
    }
    ++out.entries;
    CheckedEntry checked = check_entry(*entry);
    if (progress) progress->reached(bundle.percent());
    if (checked.other_version) {
      ++out.other_version;
      continue;
    }
    if (checked.blob && bundle.signature().checked != SignatureState::Checked::verified)
      throw bundle::Refused("the bundle has " + checked.label() +
                            ". Blobs may be code that runs on this machine, so they are imported only with a "
                            "verified signature; give --require-signature KEY");
    batch.add(as_stored(std::move(*entry), std::move(checked), std::time(nullptr)));
  }
}

Imported import_all(const Context& context, const ImportArguments& arguments) {
  Imported out;
  const auto start = base::Clock::now();
  const PoliteInterrupt interrupt;
  std::unique_ptr<OpenBundle> bundle;
  try {
    bundle = std::make_unique<OpenBundle>(arguments.bundle);  // refuses a bad bundle before creating anything
    out.signature = bundle->signature();
    const Target target(context, arguments.layer);
    out.directory = target.store().directory();
    Batch batch(target.store(), out);
    try {
      std::optional<Progress> progress;
      if (bundle->size_known()) progress.emplace(100, !context.json);
      read_into(batch, *bundle, out, progress ? &*progress : nullptr);
    } catch (const Interrupted&) {
    } catch (const Error&) {
      out.fault = fault_of_current(name_of_bundle(arguments.bundle.file));
    }
    try {
      batch.write();  // stores the good entries that came before a bad one
    } catch (const Error&) {
      if (!out.fault) out.fault = fault_of_current(name_of_bundle(arguments.bundle.file));
    }
    target.share();
  } catch (const Interrupted&) {
  } catch (const Error&) {
    out.fault = fault_of_current(name_of_bundle(arguments.bundle.file));
  }
  if (out.fault) out.complete = false;
  out.interrupted = !out.complete && !out.fault && PoliteInterrupt::requested();
  if (bundle) out.summary = bundle->summary();
  out.seconds = std::chrono::duration<double>(base::Clock::now() - start).count();
  return out;
}

Json json_of(const Context& context, const ImportArguments& arguments, const Imported& done) {
  Json out{{"schema", context.schema()},
           {"file", arguments.bundle.file},
           {"directory", done.directory.empty() ? Json(nullptr) : Json(done.directory)},
           {"layer", !arguments.layer.empty()},
           {"entries", done.entries},
           {"stored", done.stored},
           {"present", done.present},
           {"other_image", done.other_image},
           {"other_version", done.other_version},
           {"evicted", done.evicted},
           {"content_bytes", done.summary.content_bytes},
           {"content_digest", done.complete ? Json(done.summary.digest.hex()) : Json(nullptr)},
           {"signature", json_of(done.signature)},
           {"complete", done.complete},
           {"interrupted", done.interrupted},
           {"seconds", done.seconds}};
  if (done.fault)
    out["error"] = {{"code", done.fault->damage ? "damaged" : name_of(done.fault->code)},
                    {"message", done.fault->message}};
  return out;
}

void print_counts(const Imported& done, bool layer) {
  if (done.directory.empty()) return;
  print_paragraph(counted(done.stored, "entry", "entries") + " imported into " + done.directory + ", " +
                  std::to_string(done.present) + " there already, in " + human_ms(done.seconds * 1000));
  if (layer) print_paragraph("To serve from this layer, set KILN_CACHE_LAYERS=" + done.directory);
  if (done.complete) print_paragraph(text_of(done.signature), Style::dim);
}

int import(const Context& context, const ImportArguments& arguments) {
  const Imported done = import_all(context, arguments);
  if (context.json)
    print_json(json_of(context, arguments, done));
  else
    print_counts(done, !arguments.layer.empty());
  std::fflush(stdout);
  const auto say = [](const char* kind, const std::string& text) {
    std::fprintf(stderr, "kiln: %s: %s\n", kind, text.c_str());
  };
  if (done.fault) {
    const bool some = done.stored + done.present > 0;
    say("error", done.fault->message +
                     (some ? "; the entries that were imported before it are complete and stay" : ""));
    return done.fault->damage ? kDamaged : exit_of(done.fault->code);
  }
  if (done.interrupted) {
    say("warning", "interrupted; run the same command again to import the rest");
    return kInterrupted;
  }
  if (done.other_version > 0)
    say("warning", counted(done.other_version, "entry was", "entries were") +
                       " made by another version of kiln and skipped");
  if (done.other_image > 0)
    say("warning", counted(done.other_image, "entry is", "entries are") +
                       " there already with another image, which was kept; 'kiln bundle diff " +
                       arguments.bundle.file +
                       " --store' lists them; 'kiln clear' and another import take the bundle's images");
  if (done.evicted > 0)
    say("warning", counted(done.evicted, "entry was", "entries were") +
                       " evicted to make room; raise KILN_CACHE_MAX_SIZE and import again");
  return done.other_image + done.other_version + done.evicted > 0 ? kPartly : kDone;
}

}  // namespace

void add_bundle_import(Command bundle, Context& context) {
  const auto arguments = std::make_shared<ImportArguments>();
  const Command sub =
      context.add_command(bundle, "import", "Put a bundle's entries into the cache or a layer",
                          [&context, arguments] { return import(context, *arguments); });
  add_bundle_flags(sub, arguments->bundle);
  sub.option("--layer", arguments->layer, "Import into this layer instead of the cache")
      .not_empty()
      .type_name("DIR");
  sub.footer(
      "Every entry is checked before it is stored: the key must match the key text, facts and image must\n"
      "agree with it, and sizes must be within bounds. A second import of the same bundle stores nothing.\n"
      "Entries that were imported before damage was found, or before Ctrl-C, are complete and stay.\n"
      "With --require-signature, nothing is imported before the signature of the whole file is verified;\n"
      "without it, anybody who can write the file decides what runs on the GPU. Blobs of other JIT "
      "compilers\nmay be code for this machine, and are never imported without it.\n"
      "Exit status: 0 all there, 1 failed, 2 usage, 3 some are of another version, were evicted,\n"
      "or are there already with another image, 4 damaged, a bad signature, or blobs without\n"
      "--require-signature, 130 interrupted.");
}

}  // namespace kiln::cli
