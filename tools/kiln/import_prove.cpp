#include "import_prove.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/text.hpp"
#include "import_sizes.hpp"
#include "source/catalog.hpp"
#include "source/instantiate.hpp"

namespace kiln::cli {
namespace {

constexpr bool Measures::*kMeasures[] = {
    &Measures::shim,  &Measures::default_device, &Measures::int128,     &Measures::device_runtime,
    &Measures::cpp20, &Measures::nvcc,           &Measures::unmark_host};
/// What a source with a launcher beside its kernels needs: none of them helps without the others.
constexpr bool Measures::*kHostHalf[] = {&Measures::shim, &Measures::default_device, &Measures::nvcc,
                                         &Measures::unmark_host};

/// Lines of the compiler's log that say what is wrong, without the folder that it believes in.
std::vector<std::string> errors_in(const std::string& log) {
  std::vector<std::string> out;
  for (std::string line : base::split(log, '\n')) {
    const bool excerpt = line.starts_with(' ');  // of the source, whose words are its own
    if (excerpt || line.find("error") == std::string::npos ||
        line.find("errors detected") != std::string::npos || line.find("error detected") != std::string::npos)
      continue;
    constexpr std::string_view place = "/nonexistent/";
    if (line.starts_with(place)) line.erase(0, place.size());
    out.push_back(std::move(line));
  }
  return out;
}

class Trial {
 public:
  Trial(runtime::Pipeline& pipeline, const ImportPlace& place, base::Arch arch)
      : pipeline_(pipeline), place_(place), arch_(arch) {}

  /// With `arguments` as declared, an image that takes others is no proof.
  Proof operator()(const ImportDraft& draft, runtime::Arguments arguments = runtime::Arguments::any) {
    base::write_file(place_.directory + '/' + draft.name + ".toml",
                     manifest_text(draft, place_.source, place_.origin).toml);
    Proof out;
    try {
      source::Catalog catalog({place_.directory});
      const auto origin = catalog.open(draft.name);
      std::vector<NamedValue> named;
      for (const ImportParameter& p : draft.parameters)
        if (!p.value.empty()) named.push_back({p.name, Value(p.value)});
      const auto resolved =
          source::resolve(origin->manifest, source::positional(origin->manifest, named), arch_);
      runtime::ObtainOptions options;
      options.arguments = arguments;
      out.image = pipeline_.obtain(source::instantiate(origin, resolved), options).image;
      out.proved = true;
    } catch (const CompileError& error) {
      out.code = error.code();
      out.message = error.what();
      out.diagnostics = errors_in(error.log());
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler || error.code() == Errc::unsupported_arch) throw;
      out.code = error.code();
      out.message = error.what();
    }
    return out;
  }

 private:
  runtime::Pipeline& pipeline_;
  const ImportPlace& place_;
  const base::Arch arch_;
};

/// A header that is not found ends a compile before the rest is read.
bool is_cut(const Proof& proof) {
  const auto fatal = [](const std::string& line) {
    return line.find("catastrophic") != std::string::npos ||
           line.find("Command-line error") != std::string::npos;
  };
  return std::any_of(proof.diagnostics.begin(), proof.diagnostics.end(), fatal);
}

/// How far it is from compiling.
std::size_t distance(const Proof& proof) { return proof.diagnostics.size() + (is_cut(proof) ? 1000000 : 0); }

bool is_refused(const Proof& proof) { return !proof.proved && proof.code == Errc::compile_failed; }

bool is_better(const Proof& next, const Proof& best) {
  return next.proved || (is_refused(next) && distance(next) < distance(best));
}

bool is_as_good(const Proof& next, const Proof& best) {
  return next.proved || (is_refused(best) && is_refused(next) && next.diagnostics == best.diagnostics);
}

/// More and more measures, until it compiles, without those that make it worse; then all that a launcher
/// needs.
Proof escalate(Trial& trial, ImportDraft& draft) {
  Proof best = trial(draft);
  Measures of_best = draft.measures;
  for (const auto measure : kMeasures) {
    if (!is_refused(best)) break;
    draft.measures.*measure = true;
    Proof next = trial(draft);
    // The shims bring headers and take none away: another header that is not found is one found before it.
    const bool found_one = measure == &Measures::shim && is_cut(next) && next.diagnostics != best.diagnostics;
    if (!next.proved && (!is_refused(next) || distance(next) > distance(best))) {
      draft.measures.*measure = false;
    } else if (found_one || is_better(next, best)) {
      best = std::move(next);
      of_best = draft.measures;
    }
  }
  draft.measures = of_best;
  if (!is_refused(best)) return best;
  for (const auto measure : kHostHalf) draft.measures.*measure = true;
  draft.measures.device_runtime = false;  // nvcc.h has it
  Proof all = trial(draft);
  if (all.proved || (is_refused(all) && distance(all) <= distance(best))) return all;
  draft.measures = of_best;
  return best;
}

/// Without each measure that is not needed; while it does not compile: without which the errors are the same.
Proof reduce(Trial& trial, ImportDraft& draft, Proof best) {
  for (std::size_t i = std::size(kMeasures); i-- > 0;) {  // nvcc.h before the shims that it includes
    const auto measure = kMeasures[i];
    if (!(draft.measures.*measure)) continue;
    draft.measures.*measure = false;
    if (Proof less = trial(draft); is_as_good(less, best))
      best = std::move(less);
    else
      draft.measures.*measure = true;
  }
  return best;
}

}  // namespace

Proof prove(runtime::Pipeline& pipeline, const ImportPlace& place, base::Arch arch, ImportDraft& draft) {
  Trial trial(pipeline, place, arch);
  Proof out = reduce(trial, draft, escalate(trial, draft));
  if (out.proved) take_sizes(draft, out.image->facts);
  Proof last = trial(
      draft,
      runtime::Arguments::as_declared);  // as it stays; a hit, unless the sizes are not what they seemed
  return out.proved || last.proved ? last : out;
}

std::vector<std::string> texts_of(const Measures& measures) {
  std::vector<std::string> out;
  if (measures.shim) out.push_back("host_headers = \"shim\"");
  if (measures.default_device) out.push_back("default_device = true");
  if (measures.int128) out.push_back("options = [\"--device-int128\"]");
  if (const auto headers = preincludes_of(measures); !headers.empty())
    out.push_back("preinclude = [\"" + base::join(headers, "\", \"") + "\"]");
  if (measures.cpp20) out.push_back("std = \"c++20\"");
  return out;
}

std::string advice_for(const Proof& proof) {
  const std::string said = base::join(proof.diagnostics, "\n") + proof.message;
  const auto says = [&](const char* text) { return said.find(text) != std::string::npos; };
  std::vector<std::string> out;
  if (says("open source file") || says("cannot be found") || says("No such file"))
    out.push_back(
        "name the directory of a missing header with -I DIR, or put a stub of it in [compile] replace");
  if (says("exception handling"))
    out.push_back("give the header that throws a stand-in in [compile] replace");
  if (says("static assertion") || says("no instance of") || says("too few template arguments"))
    out.push_back("give values that the kernel takes as P=V");
  if (says("identifier") && says("undefined"))
    out.push_back("a macro that the build defines is given with -D NAME=TEXT");
  out.push_back("fill in the manifest, and try it with 'kiln compile'");
  return base::join(out, "; ");
}

}  // namespace kiln::cli
