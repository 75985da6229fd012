#include "tools/kiln/import/prove.hpp"

#include <utility>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/import/sizes.hpp"

namespace kiln::cli {
namespace {

/// The measures that are tried, in this order. Each step adds to earlier measures that did no harm. A
/// launcher needs all that nvcc provides to become device code, or it gets worse.
constexpr Measures kSteps[] = {
    {.shim = true},
    {.default_device = true},
    {.int128 = true},
    {.shim = true, .default_device = true, .nvcc = true},
    {.shim = true, .default_device = true, .nvcc = true, .unmark_host = true},
    {.cpp20 = true},
    {.shim = true, .default_device = true, .int128 = true, .nvcc = true, .unmark_host = true, .cpp20 = true}};
/// The order in which measures are removed again. nvcc.h stays before unmark_host.h, and both need the shims.
constexpr bool Measures::*kMeasures[] = {&Measures::cpp20,  &Measures::unmark_host,    &Measures::nvcc,
                                         &Measures::int128, &Measures::default_device, &Measures::shim};

Measures both(Measures a, const Measures& b) {
  for (const auto measure : kMeasures) a.*measure = a.*measure || b.*measure;
  return a;
}

/// True for "error: ...", "error #20013-D: ...", "ptxas error   : ...", but not for source text
/// that contains "error".
bool says_error(const std::string& line) {
  const auto at = line.find("error");
  const auto behind = at == std::string::npos ? at : line.find_first_not_of(' ', at + 5);
  return behind != std::string::npos && (line[behind] == ':' || (line[behind] == '#' && behind > at + 5));
}

/// The error lines of the compiler's log, without the placeholder directory.
std::vector<std::string> errors_in(const std::string& log) {
  std::vector<std::string> out;
  for (std::string line : base::split(log, '\n')) {
    const bool excerpt = line.starts_with(' ');  // an excerpt of the source
    if (excerpt || !says_error(line)) continue;
    constexpr std::string_view place = "/nonexistent/";
    if (line.starts_with(place)) line.erase(0, place.size());
    out.push_back(std::move(line));
  }
  return out;
}

std::vector<std::string> hints_in(const std::string& message) {
  constexpr std::string_view mark = "hint: ";
  std::vector<std::string> out;
  for (const std::string& line : base::split(message, '\n'))
    if (line.starts_with(mark)) out.push_back(line.substr(mark.size()));
  return out;
}

class Trial {
 public:
  Trial(runtime::Core& core, const ImportPlace& place, base::Arch arch)
      : core_(core), place_(place), arch_(arch) {}

  /// With Arguments::as_declared, an image with other arguments proves nothing.
  Proof operator()(const ImportDraft& draft, runtime::Arguments arguments = runtime::Arguments::any) {
    Proof out;
    try {
      const auto origin = template_of(manifest_text(draft, place_.source, place_.origin).toml, draft.name);
      std::vector<NamedValue> named;
      for (const ImportParameter& p : draft.parameters)
        if (!p.value.empty()) named.push_back({p.name, Value(p.value)});
      const auto resolved =
          source::resolve(origin->manifest, source::positional(origin->manifest, named), arch_);
      runtime::ObtainOptions options;
      options.arguments = arguments;
      out.image = core_.path().obtain(source::instantiate(origin, resolved), options).image;
      out.proved = true;
    } catch (const CompileError& error) {
      out.code = error.code();
      out.message = error.what();
      out.diagnostics = errors_in(error.log());
      out.hints = hints_in(error.what());
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler || error.code() == Errc::unsupported_arch) throw;
      out.code = error.code();
      out.message = error.what();
    }
    return out;
  }

 private:
  /// The template as the catalog will read it once it is written, so that its key is the same.
  std::shared_ptr<const source::Template> template_of(const std::string& text,
                                                      const std::string& name) const {
    auto out = std::make_shared<source::Template>();
    out->manifest = source::parse_manifest(text, place_.directory + '/' + name + ".toml");
    out->digest = base::digest_of(text);
    out->root = out->directory = place_.directory;
    out->kernel = {place_.source,
                   place_.text.empty() ? place_.directory + '/' + place_.source : std::string(), place_.text};
    return out;
  }

  runtime::Core& core_;
  const ImportPlace& place_;
  const base::Arch arch_;
};

/// The line that ended the compile early, such as a header that is not found; empty when there is none.
std::string cut_at(const Proof& proof) {
  for (const std::string& line : proof.diagnostics)
    if (line.find("catastrophic") != std::string::npos ||
        line.find("Command-line error") != std::string::npos)
      return line;
  return {};
}

enum class Progress { lost, none, gained };

/// Compares two failed compiles; `next` used more measures than `best`.
Progress progress(const Proof& next, const Measures& of_next, const Proof& best, const Measures& of_best) {
  if (next.code != Errc::compile_failed) return Progress::lost;
  const std::string cut = cut_at(next), before = cut_at(best);
  if (cut.empty() != before.empty()) return cut.empty() ? Progress::gained : Progress::lost;
  if (!cut.empty() && cut != before) {
    // One more header was found. With new pre-includes, the missing header may be needed by a pre-included
    // file only.
    const bool by_itself = preincluded(of_next) != preincluded(of_best);
    return by_itself ? Progress::lost : Progress::gained;
  }
  const std::size_t now = next.diagnostics.size(), then = best.diagnostics.size();
  return now < then ? Progress::gained : now > then ? Progress::lost : Progress::none;
}

/// Removes each measure without which the compile gets as far.
void reduce(Trial& trial, ImportDraft& draft, Proof& proof) {
  for (const auto measure : kMeasures) {
    const bool wanted = measure == &Measures::nvcc && draft.measures.unmark_host;
    if (!(draft.measures.*measure) || wanted) continue;
    if (measure == &Measures::shim && !preincluded(draft.measures).empty()) continue;
    draft.measures.*measure = false;
    Proof less = trial(draft);
    const bool as_far =
        less.proved || (!proof.proved && less.code == proof.code && less.diagnostics == proof.diagnostics);
    if (as_far)
      proof = std::move(less);
    else
      draft.measures.*measure = true;
  }
}

/// Adds measures until the manifest compiles, and drops a measure that makes it worse. Then removes each
/// measure that is not needed. When nothing compiles, keeps the smallest set that gets farthest.
Proof escalate(Trial& trial, ImportDraft& draft) {
  Proof best = trial(draft);
  Measures of_best = draft.measures;
  for (const Measures& step : kSteps) {
    if (best.proved || best.code != Errc::compile_failed) break;
    const Measures before = draft.measures;
    draft.measures = both(before, step);
    if (draft.measures == before) continue;
    Proof next = trial(draft);
    const Progress made = next.proved ? Progress::gained : progress(next, draft.measures, best, of_best);
    if (made == Progress::lost) draft.measures = before;
    if (made != Progress::gained) continue;
    best = std::move(next);
    of_best = draft.measures;
  }
  draft.measures = of_best;
  reduce(trial, draft, best);
  return best;
}

}  // namespace

Proof prove(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft) {
  Trial trial(core, place, arch);
  ImportDraft bare = draft;
  bare.arguments.clear();  // the image, which is not made yet, tells the arguments' sizes
  Proof out = escalate(trial, bare);
  draft.measures = bare.measures;
  if (!out.proved) return out;
  take_sizes(draft, out.image->facts);
  // Tries the final manifest. It is a cache hit, unless the sizes differ from the declared ones.
  return trial(draft, runtime::Arguments::as_declared);
}

std::vector<std::string> texts_of(const Measures& measures) {
  std::vector<std::string> out;
  if (measures.shim) out.push_back("host_headers = \"shim\"");
  if (measures.default_device) out.push_back("default_device = true");
  if (measures.int128) out.push_back("options = [\"--device-int128\"]");
  if (!preincluded(measures).empty()) out.push_back(preinclude_text(measures));
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
  if (says("exception handling")) out.push_back("put a stub of the header that throws in [compile] replace");
  if (says("static assertion") || says("no instance of") || says("too few template arguments") ||
      says("apparent call") || says("has no member"))
    out.push_back("give values that the kernel accepts, as P=V");
  if (says("identifier") && says("undefined"))
    out.push_back("give a macro that the build defines with -D NAME=TEXT");
  out.push_back("fill in the manifest, and try it with 'kiln compile'");
  return base::join(out, "; ");
}

}  // namespace kiln::cli
