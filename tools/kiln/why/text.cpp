#include "tools/kiln/why/text.hpp"
#include "compile/key/fields.hpp"
#include "tools/kiln/store/key/sentences.hpp"

#include <cmath>
#include <cstdint>
#include <ctime>

#include "instantiate/trace_text.hpp"
#include "tools/kiln/cli/outcome.hpp"

namespace kiln::cli {
namespace {

using compile::FieldId;
using Is = compile::FieldKind::Is;

constexpr std::size_t kIndent = 13;

std::string ago(std::int64_t seconds) {
  const std::int64_t age = std::time(nullptr) - seconds;
  return age < 0 ? "in the future (a clock was wrong)" : human_age(age) + " ago";
}

/// "compiled 3h ago". An entry without compile times came from a bundle, and its age counts from the import.
std::string made(double compile_ms, std::int64_t created_s) {
  return (compile_ms > 0 ? "compiled " : "imported ") + ago(created_s);
}

std::string here(const WhyAnswer& a) { return a.shortest + " for " + a.resolved.arch.name(); }

Sides sides_of(const WhyAnswer& a, const Near& near) {
  return {"in the cached entry", "here", near.facts.compiler_version, a.compiler_version, a.path.missing};
}

/// One difference as a change since `when`.
std::string since(const WhyAnswer& a, const KeyDifference& d, const std::string& when) {
  const bool file = compile::is(d.field, Is::file);
  const bool source = compile::is(d.field, Is::source);
  const std::string name = source ? a.source_name : d.name;
  const bool moved = file && d.one && d.other && d.one->find(' ') != std::string::npos;
  if (moved && d.one->substr(d.one->find(' ')) == d.other->substr(d.other->find(' ')))
    return "the place of " + name + " among the include directories changed since " + when;
  if (moved) return d.detail + " finds another file than when " + when;
  if (source || (file && d.one && d.other)) return name + " changed since " + when;
  if (file && d.other) return name + " is included now, and was not when " + when;
  if (file && is_missing(d, sides_of(a, a.nearest.best.front())))
    return name + " is not found any more, as it was when " + when + " (" + d.detail + ')';
  if (file) return name + " is no longer included, as it was when " + when;
  if (compile::is(d.field, Is::library)) return "NVRTC changed since " + when;
  if (compile::is(d.field, Is::option)) {
    if (d.one && d.other) return "option " + *d.one + " became " + *d.other + " since " + when;
    return (d.other ? "option " + *d.other + " is new since " : "option " + *d.one + " is gone since ") +
           when;
  }
  if (compile::is(d.field, Is::format)) return "kiln itself changed since " + when;
  if (compile::is(d.field, FieldId::name)) return "the name expression changed since " + when;
  return sentence(d, {"in the cached entry", "here"}) + "; " + when;
}

std::string and_more(std::size_t count) { return count == 0 ? "" : "; " + counted(count, "more difference"); }

/// A miss whose nearest entry has the same parameters and arch: says what changed since that entry was made.
std::string stale(const WhyAnswer& a) {
  const Near& near = a.nearest.best.front();
  const std::string when =
      a.nearest_written.front() + " was " + made(near.facts.compile_ms, near.facts.created_s);
  if (near.differences.empty())  // without a compiler on this host, there is no toolchain to compare
    return when + " by another toolchain, whose record may not be served here (KILN_TOOLCHAIN" +
           (near.facts.project_header_through_toolkit ? ", or headers that only the toolkit includes)" : ")");
  return since(a, near.differences.front(), when) + and_more(near.differences.size() - 1);
}

/// A miss without an entry for these parameters and arch: names the nearest entry's.
std::string never_asked(const WhyAnswer& a) {
  const Near& near = a.nearest.best.front();
  std::string values, arch;
  for (const KeyDifference& d : near.differences) {
    if (compile::is(d.field, FieldId::parameter))
      values += (values.empty() ? "" : " ") + (d.one ? d.name + '=' + *d.one : "no " + d.name);
    else if (compile::is(d.field, FieldId::arch) && d.one)
      arch = *d.one;
  }
  if (values.empty())
    return a.shortest + " is cached for " + arch + ", and not for " + a.resolved.arch.name();
  return here(a) + " is not cached; the nearest entry has " + values +
         (arch.empty() ? "" : " and is for " + arch);
}

std::string fault_text(const WhyAnswer& a, const runtime::Explanation::Fault& fault) {
  const std::string entry = "the entry of " + here(a) + " in " + fault.directory;
  switch (fault.miss) {
    case cache::Miss::damaged:
      return entry + " is damaged";
    case cache::Miss::other_key_text:
      return entry + " has the same digest, but another key text";
    case cache::Miss::gate_timeout:
      return fault.directory + " could not be read: another process holds its lock";
    default:
      return fault.directory + " could not be read";
  }
}

bool is_stopped(const WhyAnswer& a) { return a.flight_state == ProcessLook::State::stopped; }

std::string compiling_text(const WhyAnswer& a) {
  return a.flight->who() + (is_stopped(a) ? " (stopped)" : "") + " has been compiling " + here(a) + " for " +
         std::to_string(std::lround(a.flight->seconds_since_start())) + " s" +
         (is_stopped(a) ? "; callers stop waiting for it after the compile deadline" : "");
}

std::string miss_text(const WhyAnswer& a) {
  if (!a.path.faults.empty()) return fault_text(a, a.path.faults.front());
  if (!a.nearest.best.empty()) {
    return a.nearest.best.front().distance.asked == 0 ? stale(a) : never_asked(a);
  }
  if (a.directory.empty()) return "no directory for a cache was found";
  if (a.nearest.entries == 0) return "nothing is cached in " + a.directory + " yet";
  const std::string& name = a.resolved.specialization.template_name;
  if (!a.toolchain.empty())
    return "nothing of " + name + " by toolchain '" + a.toolchain + "' is cached in " + a.directory + " (" +
           counted(a.nearest.entries, "entry", "entries") + " of other templates or toolchains)";
  return "nothing of " + name + " is cached in " + a.directory + " (" +
         counted(a.nearest.entries, "entry", "entries") + " of other templates)";
}

/// A reason that may keep the compiled kernel out of the cache, and that only the compile can
/// confirm; empty: none.
std::string perhaps_unpublishable(const WhyAnswer& a) {
  if (!a.path.computed_include || !a.path.unpublishable.empty()) return {};
  return "it has a computed #include, and is cached only when the key covers the file that the #include "
         "reads ([compile] extra_includes names such files)";
}

std::string plan_row(const WhyAnswer& a) { return source::trace_row(a.resolved); }

std::string step_text(const WhyAnswer& a) {
  switch (a.step) {
    case Step::disk:
      return "served from disk";
    case Step::layer:
      return "served from a layer";
    case Step::foreign_toolchain:
      return "served from disk, although another toolchain compiled it";
    case Step::other_arch:
      return "served by an image for " + a.path.found->image->facts.arch +
             ", which such a GPU runs; a process that may compile makes the exact one behind";
    case Step::waiting:
      return "would wait for that process";
    case Step::compile:
      return "would compile it" + (a.compiler_version.empty() ? "" : " with NVRTC " + a.compiler_version) +
             (a.fallback.empty() ? "" : ", or get_or_fallback serves " + a.fallback + " meanwhile");
    case Step::sealed:
      return "would be refused: mode sealed does not compile";
    case Step::no_compiler:
      return "would be refused: no NVRTC was found (see 'kiln doctor')";
  }
  return {};
}

std::string step_name(Step step) {
  constexpr const char* names[] = {"disk",    "layer",  "foreign_toolchain", "other_arch", "waiting",
                                   "compile", "sealed", "no_compiler"};
  return names[static_cast<int>(step)];
}

void print_hit(const WhyAnswer& a) {
  if (!a.entry) return;
  const compile::Facts& f = a.entry->facts;
  print_definition("made", made(f.compile_ms, f.created_s) + ": " + phases_of(f), kIndent);
  print_definition("image", human_bytes(a.entry->cubin_bytes), kIndent);
  if (a.entry->last_used_s)
    print_definition("last used",
                     ago(static_cast<std::int64_t>(a.entry->last_used_s)) + ", " +
                         counted(a.entry->uses, "use") + " or more",
                     kIndent);
}

void print_near(const WhyAnswer& a, std::size_t i) {
  const Near& near = a.nearest.best[i];
  print_definition(i == 0 ? "nearest" : "",
                   near.name + "  " + a.nearest_written[i] + " for " + near.facts.arch + ", " +
                       made(near.facts.compile_ms, near.facts.created_s),
                   kIndent);
  bool first = true;
  for (const std::string& line : sentences(near.differences, sides_of(a, near))) {
    print_definition(first ? "differs" : "", line, kIndent);
    first = false;
  }
}

}  // namespace

std::string headline(const WhyAnswer& a) {
  if (is_hit(a)) return "hit: " + here(a) + " is " + step_text(a) + " (" + a.directory + ')';
  if (a.step == Step::waiting) return "waiting: " + compiling_text(a);
  return "miss: " + (a.path.unpublishable.empty() ? miss_text(a) : "never cached: " + a.path.unpublishable);
}

void print_answer(const WhyAnswer& a) {
  print_paragraph(headline(a), is_hit(a) ? Style::green : Style::yellow);
  print_definition("key", a.entry ? a.entry->key.hex() : a.path.made.key.hex(), kIndent);
  if (!a.tuned.empty()) print_definition("tuned", text_of(a.tuned) + ", as 'kiln tune' chose", kIndent);
  if (is_hit(a)) return print_hit(a);
  print_definition("a get", step_text(a), kIndent);
  if (a.flight && a.step != Step::waiting) print_definition("meanwhile", compiling_text(a), kIndent);
  if (!a.path.unpublishable.empty())
    print_definition("never kept", "a compile of it is not cached: " + a.path.unpublishable, kIndent);
  if (const std::string why = perhaps_unpublishable(a); !why.empty())
    print_definition("perhaps", "a compile of it is not cached: " + why, kIndent);
  for (std::size_t i = 0; i < a.nearest.best.size(); ++i) print_near(a, i);
  if (a.nearest.of_template > a.nearest.best.size() && !a.nearest.best.empty())
    print_definition("others",
                     counted(a.nearest.of_template - a.nearest.best.size(), "entry", "entries") + " of " +
                         a.resolved.specialization.template_name + " (--all N compares with more)",
                     kIndent);
  for (const std::string& other : a.other_schemas)
    print_definition("unread", other + " is the store of another version of kiln", kIndent);
  if (a.step == Step::sealed) print("\nA plan for 'kiln prewarm' that makes it ready:\n\n" + plan_row(a));
}

std::string damage_of(const WhyAnswer& a) {
  for (const auto& fault : a.path.faults) {
    if (fault.miss == cache::Miss::damaged)
      return fault_text(a, fault) + "; 'kiln verify' reports details, and the next publish heals it";
  }
  if (a.nearest.unreadable == 0) return {};
  return counted(a.nearest.unreadable, "entry is", "entries are") +
         " damaged and could not be compared; 'kiln verify' lists the damage";
}

Json json_of(const WhyAnswer& a) {
  Json out;
  out["template"] = a.resolved.specialization.template_name;
  out["params"] = json_of(a.resolved.specialization.parameters);
  out["arch"] = a.resolved.arch.name();
  if (!a.tuned.empty()) out["tuned"] = json_of(a.tuned);
  out["key"] = a.path.made.key.hex();
  out["outcome"] = step_name(a.step);
  out["says"] = headline(a);
  out["directory"] = a.directory.empty() ? Json(nullptr) : Json(a.directory);
  out["entry"] = a.entry ? json_of(*a.entry) : Json(nullptr);
  out["fallback"] = a.fallback.empty() ? Json(nullptr) : Json(a.fallback);
  out["unpublishable"] = a.path.unpublishable.empty() ? Json(nullptr) : Json(a.path.unpublishable);
  const std::string perhaps = is_hit(a) ? "" : perhaps_unpublishable(a);
  out["perhaps_unpublishable"] = perhaps.empty() ? Json(nullptr) : Json(perhaps);
  out["plan"] = a.step == Step::sealed ? Json(plan_row(a)) : Json(nullptr);
  out["flight"] = nullptr;
  if (a.flight)
    out["flight"] = {{"pid", a.flight->pid},
                     {"host", a.flight->host},
                     {"stopped", is_stopped(a)},
                     {"since", a.flight->started_unix_ms / 1000},
                     {"seconds", a.flight->seconds_since_start()}};
  out["entries"] = a.nearest.entries;
  out["entries_of_template"] = a.nearest.of_template;
  out["other_schemas"] = a.other_schemas;
  out["nearest"] = Json::array();
  for (const Near& near : a.nearest.best) {
    Json differs = Json::array();
    for (const KeyDifference& d : near.differences)
      differs.push_back({{"field", d.field},
                         {"name", d.name},
                         {"cached", d.one ? Json(*d.one) : Json(nullptr)},
                         {"asked", d.other ? Json(*d.other) : Json(nullptr)},
                         {"says", sentence(d, sides_of(a, near))}});
    out["nearest"].push_back({{"key", near.key.hex()},
                              {"directory", near.directory},
                              {"params", json_of(near.facts.parameters)},
                              {"arch", near.facts.arch},
                              {"created", near.facts.created_s},
                              {"differs", differs}});
  }
  return out;
}

}  // namespace kiln::cli
