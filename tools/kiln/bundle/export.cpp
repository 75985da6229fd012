// kiln bundle export: entries of the cache and its layers as one reproducible file.
#include "tools/kiln/bundle/export.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cache/bundle/writer.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/bundle/file.hpp"
#include "tools/kiln/bundle/key.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/plan/select.hpp"
#include "tools/kiln/store/bundle_stores.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {
namespace {

struct ExportArguments {
  std::string file;
  SelectionFlags selection;
  SigningFlags signing;
  bool keep_going = false;
};

/// How often an export starts over. Only the last attempt may leave out entries that were removed meanwhile.
constexpr int kAttempts = 5;

struct Exported {
  bool written = false;
  std::vector<std::string> missing, damaged;
  std::vector<Key> removed;  ///< removed from the stores after they were chosen
  std::string nearest;       ///< "; did you mean 'rms_norm'?" for a template without entries
  std::uint64_t other_version = 0, bytes = 0;
  bundle::Summary summary;
  std::optional<MadeSignature> signature;
};

void write_entries(bundle::Writer& writer, const Selection& selection, BundleStores& stores, Exported& out,
                   bool quiet) {
  Progress progress(selection.keys.size(), !quiet);
  for (std::size_t i = 0; i < selection.keys.size(); ++i) {
    if (PoliteInterrupt::requested()) throw Interrupted{};
    const Key& key = selection.keys[i];
    if (const auto entry = stores.read(key))
      writer.add(*entry);
    else if (entry.miss == cache::Miss::absent)
      out.removed.push_back(key);
    else if (entry.miss == cache::Miss::damaged)
      out.damaged.push_back(key.hex());
    else
      throw_unread(key, entry.miss);
    progress.reached(i + 1);
  }
}

/// Suggestions for the templates that do not exist.
std::string nearest_of(const std::vector<std::string>& templates, const runtime::Config& config) {
  const std::vector<std::string> there = catalog_of(config.template_directories()).names();
  std::string out;
  for (const std::string& name : templates)
    if (std::find(there.begin(), there.end(), name) == there.end()) out += base::did_you_mean(name, there);
  return out;
}

/// Makes one attempt. `removed` holds keys that earlier attempts found removed. When further entries were
/// removed, nothing is written. The `last` attempt leaves those out instead, unless a plan asks for them.
Exported export_once(Context& context, const ExportArguments& arguments, const trust::SecretKey* key,
                     BundleStores& stores, const std::set<Key>& removed, bool last) {
  const Selection selection = select_entries(context, arguments.selection, stores, removed);
  Exported out;
  out.missing = selection.missing;
  out.damaged = stores.damaged();
  out.other_version = stores.other_version();
  const bool nothing = selection.keys.empty() && !arguments.selection.all;
  if (nothing) out.nearest = nearest_of(arguments.selection.templates, context.config());
  if ((!out.missing.empty() || nothing) && !arguments.keep_going) return out;

  BundleOutput file(arguments.file);
  if (key && !file.is_file())
    throw Error(Errc::invalid_argument,
                "'" + arguments.file +
                    "' is not a regular file, and a signature is written beside its bundle; choose a regular "
                    "file, or leave out --sign");
  trust::Blake2b hash(64);
  bundle::Writer writer([&](std::string_view bytes) {
    file.write(bytes);
    hash.add(bytes);
  });
  write_entries(writer, selection, stores, out, context.json || arguments.file == "-");
  out.summary = writer.end();
  const bool may_leave_out = last && (arguments.selection.plans.empty() || arguments.keep_going);
  if (!out.removed.empty() && !may_leave_out && file.is_file()) return out;  // a pipe has the bytes
  file.commit();
  out.written = true;
  out.bytes = file.bytes();
  if (key) out.signature = sign_bundle(*key, arguments.file, hash.digest<64>(), out.summary);
  return out;
}

Exported export_all(Context& context, const ExportArguments& arguments) {
  const bool to_stdout = arguments.file == "-";
  if (to_stdout && context.json)
    throw Error(Errc::invalid_argument,
                "the bundle and --json cannot both go to stdout; name a file for the bundle");
  std::optional<trust::SecretKey> key;
  if (!arguments.signing.key.empty()) {
    if (to_stdout)
      throw Error(Errc::invalid_argument,
                  "a signature is written beside its bundle; name a file instead of - (stdout)");
    key.emplace(read_secret_key(arguments.signing));  // asks for the password at once
  }
  BundleStores stores(context.config());
  std::set<Key> removed;
  for (int attempt = 1;; ++attempt) {
    Exported out =
        export_once(context, arguments, key ? &*key : nullptr, stores, removed, attempt == kAttempts);
    if (out.written || out.removed.empty() || attempt == kAttempts) return out;
    removed.insert(out.removed.begin(), out.removed.end());
  }
}

Json hex_of(const std::vector<Key>& keys) {
  Json out = Json::array();
  for (const Key& key : keys) out.push_back(key.hex());
  return out;
}

Json json_of(const Context& context, const ExportArguments& arguments, const Exported& done) {
  return {{"schema", context.schema()},
          {"file", arguments.file},
          {"written", done.written},
          {"entries", done.summary.entries},
          {"bytes", done.bytes},
          {"content_bytes", done.summary.content_bytes},
          {"content_digest", done.written ? Json(done.summary.digest.hex()) : Json(nullptr)},
          {"missing", done.missing},
          {"damaged", done.damaged},
          {"removed", hex_of(done.removed)},
          {"other_version", done.other_version},
          {"signature", done.signature ? json_of(*done.signature) : Json(nullptr)}};
}

void say(const char* kind, const std::string& text) {
  std::fprintf(stderr, "kiln: %s: %s\n", kind, text.c_str());
}

int export_exit(const ExportArguments& arguments, const Exported& done) {
  for (const std::string& label : done.missing) say("error", "not in the cache: " + label);
  for (const std::string& hex : done.damaged)
    say("error", hex.empty() ? "the file of a store is damaged ('kiln verify --all' says where)"
                             : "entry " + short_name(*Key::from_hex(hex)) + " is damaged and was left out");
  if (!done.removed.empty())
    say("warning", counted(done.removed.size(), "entry was", "entries were") +
                       " removed from the cache meanwhile (evicted, or by 'kiln clear' or 'kiln gc'), and " +
                       (done.removed.size() == 1 ? "is" : "are") + " not in the bundle");
  if (done.other_version > 0)
    say("warning",
        counted(done.other_version, "entry is", "entries are") + " of another version of kiln and left out");
  if (!done.written)
    say("error", done.missing.empty()
                     ? done.removed.empty()
                           ? "no cached entry matches; nothing was written" + done.nearest
                           : "nothing was written; --keep-going leaves out the entries that were removed"
                     : counted(done.missing.size(), "specialisation is", "specialisations are") +
                           " missing; nothing was written. 'kiln prewarm' compiles them, --keep-going leaves "
                           "them out");
  struct stat st {};
  if (done.written && !done.signature && ::stat((arguments.file + ".minisig").c_str(), &st) == 0)
    say("warning", "'" + arguments.file +
                       ".minisig' is the signature of an earlier bundle; sign again with 'kiln bundle sign'");
  if (!done.damaged.empty()) return kDamaged;
  const bool covered = done.removed.empty() || arguments.selection.plans.empty();
  return done.written && done.missing.empty() && covered &&
                 (done.summary.entries > 0 || arguments.selection.all)
             ? kDone
             : kPartly;
}

int bundle_export(Context& context, const ExportArguments& arguments) {
  const PoliteInterrupt interrupt;
  Exported done;
  try {
    done = export_all(context, arguments);
  } catch (const Interrupted&) {
    say("warning", "interrupted; nothing was written");
    return kInterrupted;
  }
  if (context.json)
    print_json(json_of(context, arguments, done));
  else if (done.written && arguments.file != "-") {
    print_paragraph(counted(done.summary.entries, "entry", "entries") + ", " + human_bytes(done.bytes) +
                    " (" + human_bytes(done.summary.content_bytes) + " decompressed), in " + arguments.file);
    print_paragraph("Content blake2b:" + done.summary.digest.hex(), Style::dim);
    if (done.signature)
      print_paragraph("Signed with key " + done.signature->key_id + ": " + done.signature->file);
  }
  std::fflush(stdout);
  return export_exit(arguments, done);
}

}  // namespace

void add_bundle_export(Command bundle, Context& context) {
  const auto arguments = std::make_shared<ExportArguments>();
  const Command sub =
      context.add_command(bundle, "export", "Write entries of the cache and its layers to a file",
                          [&context, arguments] { return bundle_export(context, *arguments); });
  sub.option("file", arguments->file, "The bundle; - is stdout").type_name("FILE").required();
  add_selection_options(sub, arguments->selection);
  sub.flag("--keep-going", arguments->keep_going,
           "Write the entries that are cached when others of a plan are missing");
  sub.option("--sign", arguments->signing.key, "Write FILE.minisig with this secret key")
      .not_empty()
      .type_name("FILE.key");
  sub.option("--password-file", arguments->signing.password_file,
             "File whose first line is the key's password; default: asked for on the terminal")
      .not_empty()
      .type_name("FILE");
  sub.footer(
      "The same entries give the same bytes: entries are sorted, and the file has no time, path or machine\n"
      "name. Another version of libzstd may give other bytes; the digest of the content stays the same.\n"
      "Tuned choices (kiln tune) of the exported templates and archs are exported, too. With a plan,\n"
      "--device names the GPU whose tuned choices its rows take.\n"
      "--arch may be a list: it selects entries, or with a plan, is the arch of rows that name none.\n"
      "FILE is replaced only when the whole bundle is written. When entries are removed during the export\n"
      "(evicted, or by 'kiln clear' or 'kiln gc'), it starts again. The fifth attempt, and the only one "
      "into\n"
      "a pipe, leave the removed entries out and warn; with a plan and a file, only under --keep-going.\n"
      "Exit status: 0 done, 1 failed, 2 usage, 3 some of a plan is missing or nothing matches (nothing is\n"
      "written without --keep-going), 4 damaged entries were left out, 130 interrupted.");
}

}  // namespace kiln::cli
