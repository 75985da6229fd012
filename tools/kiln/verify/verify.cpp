// kiln verify: reads every page and record of the cache, in a separate process.
#include "tools/kiln/verify/verify.hpp"

#include <sys/stat.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "base/deadline.hpp"
#include "base/text.hpp"
#include "cache/place/directory.hpp"
#include "tools/kiln/cli/child_process.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/verify/store_reader.hpp"

namespace kiln::cli {
namespace {

struct Verdict {
  std::string directory;
  bool layer = false;
  std::uint64_t entries = 0, bytes = 0;
  Json damaged = Json::array();
  std::string error;      ///< the store cannot be read at all
  std::string set_aside;  ///< file beside it that an earlier publish found damaged

  std::string file() const { return directory + "/v1/data.mdb"; }
  bool ok() const { return damaged.empty() && error.empty(); }
};

/// How a reader ended that did not write its last line.
std::string ending(int status) {
  if (status <= 128)
    return "the process that read it ended with status " + std::to_string(status) + " before it was done";
  const int signal = status - 128;
  return "the process that read it was ended by signal " + std::to_string(signal) + " (" +
         ::strsignal(signal) + ")";
}

void read_in_child(Verdict& out, bool quiet) {
  ChildProcess child({"/proc/self/exe", kStoreReaderCommand, out.directory});
  std::unique_ptr<Progress> progress;
  bool complete = false;
  std::string line;
  while (child.read_line(line)) {
    const Json said = Json::parse(line, nullptr, false);
    if (!said.is_object()) continue;  // an incomplete line
    if (said.contains("total")) {
      const auto total = said["total"].get<std::uint64_t>();
      if (!quiet && !standard_error().interactive)
        print("checking " + counted(total, "entry", "entries") + " in " + out.directory + '\n');
      std::fflush(stdout);
      progress = std::make_unique<Progress>(total, !quiet);
      progress->started(out.directory);
    } else if (said.contains("done")) {
      if (progress) progress->reached(said["done"].get<std::size_t>());
    } else if (said.contains("damaged")) {
      out.damaged.push_back(said["damaged"]);
    } else if (said.contains("verified")) {
      out.entries = said["verified"]["entries"], out.bytes = said["verified"]["bytes"];
      complete = true;
    } else if (said.contains("error")) {
      out.error = said["error"];
      complete = true;
    }
  }
  const int status = child.wait();
  if (!complete) out.damaged.push_back({{"key", ""}, {"what", ending(status)}});
}

Verdict verify(const std::string& directory, bool layer, bool quiet) {
  Verdict out;
  out.directory = directory, out.layer = layer;
  try {
    if (layer) cache::check_layer(directory);
    struct stat st {};
    if (::stat(out.file().c_str(), &st) == 0) out.bytes = static_cast<std::uint64_t>(st.st_size);
    read_in_child(out, quiet);
    if (::stat((out.file() + ".damaged").c_str(), &st) == 0) out.set_aside = out.file() + ".damaged";
  } catch (const Error& error) {
    out.error = error.what();
  }
  return out;
}

Json json_of(const Verdict& verdict) {
  return {{"directory", verdict.directory},
          {"file", verdict.file()},
          {"entries", verdict.entries},
          {"bytes", verdict.bytes},
          {"damaged", verdict.damaged},
          {"set_aside", verdict.set_aside.empty() ? Json(nullptr) : Json(verdict.set_aside)},
          {"ok", verdict.ok()}};
}

std::string text_of(const Json& damage) {
  const std::string key = damage["key"], what = damage["what"];
  if (key.empty()) return "the file: " + what;
  std::string out = short_name(*Key::from_hex(key));
  if (damage.contains("template")) {
    out += "  " + damage["template"].get<std::string>();
    for (const auto& [name, value] : damage["params"].items())
      out += ' ' + name + '=' + value.get<std::string>();
    out += " for " + damage["arch"].get<std::string>();
  }
  return out + ": " + what;
}

void print_verdict(const Verdict& verdict) {
  const Terminal terminal = standard_output();
  if (!verdict.error.empty()) {
    print(paint("unreadable", Style::red, terminal) + "  " + verdict.directory + ": " + verdict.error + '\n');
    return;
  }
  for (const Json& damage : verdict.damaged)
    print(paint("damaged", Style::red, terminal) + "  " + text_of(damage) + '\n');
  print_paragraph(counted(verdict.entries, "entry", "entries") + " intact, " +
                  (verdict.damaged.empty() ? "none damaged" : counted(verdict.damaged.size(), "fault")) +
                  ", " + human_bytes(verdict.bytes) + ", in " + verdict.directory);
  if (!verdict.damaged.empty())
    print_paragraph(
        verdict.layer
            ? "A damaged entry is a miss. Write the layer again with 'kiln prewarm --layer'."
            : "A damaged entry is a miss, and is compiled again when it is asked for; the next publish that "
              "meets it heals it. 'kiln gc' drops it now.");
  if (!verdict.set_aside.empty())
    print_paragraph(verdict.set_aside +
                    " is a damaged file that was replaced earlier; 'kiln gc' removes it.");
}

int report_verdicts(const Context& context, const std::vector<Verdict>& all, double seconds) {
  bool damaged = false, unreadable = false;
  for (const Verdict& verdict : all) {
    damaged = damaged || !verdict.damaged.empty();
    unreadable = unreadable || !verdict.error.empty();
  }
  std::string errors;
  for (const Verdict& verdict : all)
    if (!verdict.error.empty()) errors += (errors.empty() ? "" : "; ") + verdict.error;
  if (context.json) {
    Json out{{"schema", context.schema()}};
    out.update(json_of(all.front()));
    out["ok"] = !damaged && !unreadable;
    out["seconds"] = seconds;
    out["layers"] = Json::array();
    for (const Verdict& verdict : all) {
      if (!verdict.layer) continue;
      out["layers"].push_back(json_of(verdict));
      if (!verdict.error.empty()) out["layers"].back()["error"] = verdict.error;
    }
    if (damaged)
      out["error"] = {{"code", "damaged"}, {"message", "damage was found"}};
    else if (unreadable)
      out["error"] = {{"code", name_of(Errc::io)}, {"message", errors}};
    print_json(out);
  } else {
    for (const Verdict& verdict : all) print_verdict(verdict);
    print_paragraph("Read in " + human_ms(seconds * 1000) + '.', Style::dim);
  }
  std::fflush(stdout);
  if (damaged) std::fprintf(stderr, "kiln: error: damage was found\n");
  if (unreadable) std::fprintf(stderr, "kiln: error: %s\n", errors.c_str());
  return damaged ? kDamaged : unreadable ? kFailed : kDone;
}

int verify_all(const Context& context, bool with_layers) {
  const runtime::Config config = context.config();
  const StorePlace place = find_store(config);
  std::vector<std::string> layers;
  if (with_layers) layers = base::split(config.get("cache_layers"), ':');
  std::vector<Verdict> all;
  const auto start = base::Clock::now();
  if (place.there)
    all.push_back(verify(place.directory, false, context.json));
  else
    all.emplace_back().directory = place.directory;
  if (!place.there && layers.empty() && !context.json) {
    print_paragraph("Nothing is cached in " + place.directory + " yet: there is nothing to verify.");
    return kDone;
  }
  for (const std::string& layer : layers) all.push_back(verify(layer, true, context.json));
  return report_verdicts(context, all, std::chrono::duration<double>(base::Clock::now() - start).count());
}

}  // namespace

void add_verify(Command app, Context& context) {
  const auto with_layers = std::make_shared<bool>(false);
  const Command sub =
      context.add_command(app, "verify", "Check every page and record of the cache",
                          [&context, with_layers] { return verify_all(context, *with_layers); });
  sub.flag("--all", *with_layers, "Also check the layers of KILN_CACHE_LAYERS");
  sub.footer(
      "Safe beside running engines. A process of its own reads the store; if it crashes, that is damage, "
      "too.\n"
      "Entries that another process removes meanwhile are not counted.\n"
      "A damaged entry is never served: it is a miss, compiled again and healed by a later publish.\n"
      "Exit status: 0 clean or empty, 1 cannot be read, 4 damage found.");
}

}  // namespace kiln::cli
