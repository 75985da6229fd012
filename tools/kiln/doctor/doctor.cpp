// kiln doctor: checks that this machine has what kiln needs, and that it works.
#include "tools/kiln/doctor/doctor.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/doctor/cache.hpp"
#include "tools/kiln/doctor/caches.hpp"
#include "tools/kiln/doctor/driver.hpp"
#include "tools/kiln/doctor/fleet.hpp"
#include "tools/kiln/doctor/locks.hpp"
#include "tools/kiln/doctor/machine.hpp"
#include "tools/kiln/doctor/templates.hpp"
#include "tools/kiln/doctor/toolchain.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kiln/error.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;

std::string_view name_of(Status status) noexcept {
  constexpr std::string_view names[] = {"ok", "note", "warning", "error"};
  return names[static_cast<int>(status)];
}

Style style_of(Status status) noexcept {
  constexpr Style styles[] = {Style::green, Style::cyan, Style::yellow, Style::red};
  return styles[static_cast<int>(status)];
}

/// Prints "ok       nvrtc       text"; continuation lines of text and fix are indented to the text.
void print_finding(const Finding& finding, const Terminal& terminal) {
  constexpr std::size_t status_columns = 9, name_columns = 12, indent = status_columns + name_columns;
  const std::size_t width = terminal.width > indent + 24 ? terminal.width - indent : terminal.width ? 24 : 0;
  const std::string status(name_of(finding.status));
  std::string out =
      paint(status, style_of(finding.status), terminal) + std::string(status_columns - status.size(), ' ');
  out += finding.name + std::string(name_columns - std::min(name_columns - 1, finding.name.size()), ' ');
  std::vector<std::string> lines = wrapped(finding.text, width);
  if (!finding.fix.empty()) {
    for (std::string& line : wrapped("to do: " + finding.fix, width))
      lines.push_back(paint(line, Style::bold, terminal));
  }
  for (std::size_t i = 0; i < lines.size(); ++i) out += (i ? std::string(indent, ' ') : "") + lines[i] + '\n';
  print(out);
}

Json json_of(const Finding& f) {
  return {{"name", f.name},
          {"status", name_of(f.status)},
          {"text", f.text},
          {"fix", f.fix.empty() ? Json(nullptr) : Json(f.fix)}};
}

void print_settings(const runtime::Config& config, bool all) {
  bool first = true;
  for (const runtime::Setting& s : config.settings()) {
    if (s.origin == "default" && !all) continue;
    if (first) print("\n"), print_heading("Configuration");
    first = false;
    print_definition(
        s.name,
        (s.value.empty() ? "not set" : shown_value(s)) + (s.origin == "default" ? "" : ", from " + s.origin),
        21);
  }
}

/// A probe that throws becomes a finding itself and does not stop the other probes.
template <class Probe>
void guarded(const std::string& name, Findings& out, Probe&& probe) {
  try {
    probe();
  } catch (const std::exception& error) {
    out.push_back({name, Status::error, error.what()});
  }
}

std::optional<runtime::Config> probe_settings(const Context& context, Findings& out) {
  try {
    return context.config();
  } catch (const Error& error) {
    out.push_back({"settings", Status::error, error.what(), "correct or remove it"});
    return std::nullopt;
  }
}

int examine(Context& context, bool verbose) {
  Findings findings;
  const std::optional<runtime::Config> config = probe_settings(context, findings);
  if (config) {
    guarded("toolchain", findings, [&] { probe_toolchain(context, findings); });
    guarded("machine", findings, [&] { probe_machine(context, findings); });
    guarded("templates", findings, [&] { probe_templates(context, findings); });
    guarded("cache", findings, [&] { probe_cache(context, findings); });
    guarded("caches", findings, [&] { probe_spaces(*config, findings); });
    guarded("remote", findings, [&] { probe_remote(context, findings); });
  } else {  // probes that need no service
    guarded("driver", findings, [&] { probe_driver(std::nullopt, findings); });
  }
  guarded("caches", findings, [&] { probe_cache_settings(findings); });
  guarded("/dev/shm", findings, [&] { probe_flight(findings); });
  guarded("temporary", findings, [&] { probe_temporary(findings); });
  const auto count = [&](Status status) {
    return static_cast<std::uint64_t>(std::count_if(findings.begin(), findings.end(),
                                                    [&](const Finding& f) { return f.status == status; }));
  };
  const std::uint64_t errors = count(Status::error), warnings = count(Status::warning);
  if (context.json) {
    Json out{{"schema", context.schema()}, {"ok", errors == 0},         {"errors", errors},
             {"warnings", warnings},       {"findings", Json::array()}, {"settings", Json::array()}};
    for (const Finding& f : findings) out["findings"].push_back(json_of(f));
    for (const runtime::Setting& s : config ? config->settings() : std::vector<runtime::Setting>()) {
      out["settings"].push_back(
          {{"name", s.name}, {"value", shown_value(s)}, {"origin", s.origin}, {"doc", s.doc}});
    }
    print_json(out);
  } else {
    const Terminal terminal = standard_output();
    for (const Finding& f : findings) print_finding(f, terminal);
    if (config) print_settings(*config, verbose);
    if (errors + warnings == 0)
      print("\n" + paint("Everything works.", Style::green, terminal) + '\n');
    else
      print("\n" + counted(errors, "error") + ", " + counted(warnings, "warning") + '\n');
  }
  return errors ? kFailed : kDone;
}

}  // namespace

void add_doctor(Command app, Context& context) {
  const auto verbose = std::make_shared<bool>(false);
  const Command sub = context.add_command(app, "doctor", "Check this machine: libraries, GPU, cache, locks",
                                          [&context, verbose] { return examine(context, *verbose); });
  sub.flag("-v,--verbose", *verbose, "Also list the configuration values that are defaults");
  sub.footer("Exit status: 0 when there is no error, 1 otherwise. A machine without a GPU is no error.");
}

}  // namespace kiln::cli
