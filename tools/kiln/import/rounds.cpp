#include "tools/kiln/import/rounds.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "compile/advice/advice.hpp"
#include "compile/advice/diagnostic.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/overlay.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/import/arguments.hpp"
#include "tools/kiln/import/manifest.hpp"

namespace kiln::cli {
namespace {

constexpr int kMostRounds = 16;
constexpr const char* kNvcc = "nvcc.h";

/// The text between two marks; nothing when they are not there.
std::optional<std::string> between(std::string_view text, std::string_view before, std::string_view after) {
  const auto at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const auto end = text.find(after, at + before.size());
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(at + before.size(), end - at - before.size()));
}

/// "a::half<int>(float)" -> "half"; empty when the text is no name.
std::string last_name(std::string text) {
  text.resize(std::min(text.find_first_of("(<"), text.size()));
  text.erase(0, text.find_last_of(": ") + 1);
  return base::is_identifier(text) ? text : std::string();
}

/// True for errors that C++17 gives for concepts and other words of C++20.
bool wants_cpp20(std::string_view error) {
  const auto says = [&](std::string_view what) { return error.find(what) != std::string_view::npos; };
  return says("concept") || says("requires") || says("consteval") || says("constinit");
}

struct Round {
  Proof proof;
  std::vector<std::string> errors;  ///< their messages, without places
  std::shared_ptr<const source::Instantiation> unit;
  std::shared_ptr<const runtime::KeyedFiles> files;

  bool says(std::string_view what) const {
    return std::any_of(errors.begin(), errors.end(),
                       [&](const std::string& error) { return error.find(what) != std::string::npos; });
  }
  bool stopped_early() const { return says("not open source file"); }
  bool killed() const { return proof.code == Errc::compile_timeout || proof.code == Errc::compile_crashed; }
  /// A round that was killed had no error so far, and one that ended at a missing header did not read all.
  int reach() const {
    if (proof.code == Errc::compile_timeout) return 3;
    if (proof.code != Errc::compile_failed) return 0;
    return stopped_early() ? 1 : 2;
  }
};

class Rounds {
 public:
  Rounds(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft,
         const RoundStarts& starts)
      : core_(core), place_(place), arch_(arch), draft_(draft), starts_(starts) {}

  Proof run() {
    Round best = compile("the source as it is");
    search(best);
    if (!best.proof.proved && draft_.measures.cut) {
      const Measures safe = draft_.measures;
      draft_.measures.keep.clear();
      draft_.measures.unused = true;
      Round wide = compile(changes(safe));
      search(wide);
      if (wide.proof.proved || further(wide, best))
        best = std::move(wide);
      else
        draft_.measures = safe;
    }
    best.proof.rounds = tried_;
    return best.proof;
  }

 private:
  /// Adds measures until a round compiles. `best` becomes the round that got furthest, and the draft has its measures.
  void search(Round& best) {
    Measures of_best = draft_.measures;
    int idle = 0;  // rounds that got no further
    for (int round = 0; !best.proof.proved && round < kMostRounds && idle < 3; ++round) {
      const Measures before = draft_.measures;
      std::string what = tried_ == 1 ? first_measures(best) : std::string();
      if (what.empty()) what = next_measure(idle == 0 ? best : last_);
      if (what.empty() || draft_.measures == before) break;
      Round next = compile(what);
      if (next.proof.proved || further(next, best)) {
        idle = 0;
        of_best = draft_.measures;
        best = next;
      } else {
        ++idle;
      }
      last_ = std::move(next);
    }
    draft_.measures = of_best;
  }
  /// The template as the catalog will read it once it is written, so that its key is the same.
  std::shared_ptr<const source::Template> manifest() const {
    auto out = std::make_shared<source::Template>();
    ImportDraft bare = draft_;
    bare.arguments.clear();
    const std::string text = manifest_text(bare, place_.source, place_.origin).toml;
    out->manifest = source::parse_manifest(text, place_.directory + '/' + draft_.name + ".toml");
    out->digest = base::digest_of(text);
    out->root = out->directory = place_.directory;
    out->kernel = {place_.source,
                   place_.text.empty() ? place_.directory + '/' + place_.source : std::string(), place_.text};
    return out;
  }
  source::Instantiation unit() const {
    auto origin = manifest();
    std::vector<NamedValue> named;
    for (const ImportParameter& p : draft_.parameters)
      if (!p.value.empty()) named.push_back({p.name, Value(p.value)});
    const auto resolved =
        source::resolve(origin->manifest, source::positional(origin->manifest, named), arch_);
    return source::instantiate(std::move(origin), resolved);
  }
  Round compile(const std::string& what) {
    ++tried_;
    starts_(tried_, what);
    Round out;
    try {
      out.unit = std::make_shared<const source::Instantiation>(unit());
      out.files = std::make_shared<const runtime::KeyedFiles>(
          core_.state().files.read(*out.unit, source::Trust::content));
      runtime::ObtainOptions options;
      options.arguments = runtime::Arguments::any;
      options.files = out.files;
      out.proof.image = core_.path().obtain(*out.unit, options).image;
      out.proof.proved = true;
    } catch (const CompileError& error) {
      out.proof.code = error.code();
      out.proof.message = error.what();
      for (const compile::Diagnostic& d : compile::errors_of(error.log())) {
        out.errors.emplace_back(d.message);
        const std::string at = d.file.empty() ? "" : std::string(d.file) + '(' + std::string(d.line) + "): ";
        out.proof.diagnostics.push_back(at + "error: " + std::string(d.message));
      }
      for (const std::string& line : base::split(error.what(), '\n'))
        if (line.starts_with("hint: ")) out.proof.hints.push_back(line.substr(6));
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler || error.code() == Errc::unsupported_arch) throw;
      out.proof.code = error.code();
      out.proof.message = error.what();
    }
    return out;
  }

  static bool further(const Round& next, const Round& best) {
    if (next.reach() != best.reach()) return next.reach() > best.reach();
    if (next.stopped_early()) return next.errors != best.errors;
    return next.errors.size() < best.errors.size();
  }

  /// Adds the measures that the source's text asks for: headers, and host code that is to be cut.
  std::string first_measures(const Round& first) {
    Measures& m = draft_.measures;
    const Measures before = m;
    m.cpp20 = draft_.cpp20 || std::any_of(first.errors.begin(), first.errors.end(), wants_cpp20);
    if (first.reach() == 0 && !first.killed()) return changes(before);
    m.int128 = first.says("128-bit integer");
    if (m.int128) return changes(before);
    m.shim = m.cut = true;
    const source::Instantiation cut = unit();
    const source::Closure closure = core_.state().files.read(cut, source::Trust::content).closure;
    const source::Overlay overlay = source::overlay_of(cut, closure);
    take_missing(closure.missing);
    if (overlay.cut.empty() && m.empty.empty()) {
      // Kernels alone: shims may be enough, or the marks may be all that is missing.
      m.cut = false;
      m.shim = first.stopped_early();
      m.default_device = overlay.unmarked && !first.stopped_early() && !first.killed();
    }
    return changes(before);
  }
  void take_missing(const std::vector<std::string>& missing) {
    for (const std::string& spelling : missing) {
      const std::string name = spelling.substr(1, spelling.size() - 2);
      if (draft_.includes.contains(name)) add_once(draft_.measures.empty, name);
    }
  }

  /// Answers the errors of a round with all measures that their texts ask for.
  std::string next_measure(const Round& round) {
    Measures& m = draft_.measures;
    const Measures before = m;
    if (round.proof.code != Errc::compile_failed) return {};
    std::set<std::string> cut;
    if (m.cut) cut = source::overlay_of(*round.unit, round.files->closure).cut;
    for (std::size_t i = 0; i < round.errors.size(); ++i)
      if (!answer(round.errors[i], cut, before)) follow_hints(round, round.proof.diagnostics[i]);
    if (m == before && !m.cut) {
      m.shim = m.cut = true;
      take_missing(round.files->closure.missing);
    } else if (m == before && !has(m.preinclude, kNvcc)) {
      take_nvcc();
    } else if (m == before && m.unused) {
      drop_failing(round);
    }
    return changes(before);
  }
  /// host_code = "cut" implies default_device.
  void take_default_device() {
    if (!draft_.measures.cut) draft_.measures.default_device = true;
  }
  void take_nvcc() {
    draft_.measures.shim = true;
    take_default_device();
    add_once(draft_.measures.preinclude, kNvcc);
  }
  /// False for an error that no rule knows. `before` are the measures of the round.
  bool answer(const std::string& error, const std::set<std::string>& cut, const Measures& before) {
    Measures& m = draft_.measures;
    const auto says = [&](std::string_view what) { return error.find(what) != std::string::npos; };
    if (const auto header = between(error, "not open source file \"", "\"")) {
      m.shim = true;
      if (m.cut) add_once(m.empty, *header);
      return m.cut = true;
    }
    if (says("128-bit integer")) return m.int128 = true;
    if (wants_cpp20(error)) return m.cpp20 = true;
    if (says("considered a host function") || says("calling a __host__ function")) take_default_device();
    const bool marked = says("explicitly marked as a __host__ function");
    if (marked || says("device-side kernel launch")) take_nvcc();
    if (marked) add_once(m.preinclude, "unmark_host.h");
    // A host function that the kernel calls after all: it was cut to its head.
    std::string called =
        last_name(between(error, "function \"", "\" was referenced but not defined").value_or(""));
    if (const auto symbol = between(error, "Unresolved extern function '", "'")) {
      const std::string name = demangled(*symbol);
      called = last_name(name.empty() ? *symbol : name);
    }
    if (m.cut && !called.empty()) return add_once(m.keep, called);
    for (const auto& [prefix, suffix] :
         {std::pair{"identifier \"", "\" is undefined"}, std::pair{"has no member \"", "\""},
          std::pair{"incomplete type \"", "\""}, std::pair{"", " is not a template"}}) {
      const auto name = between(error, prefix, suffix);
      if (!name) continue;
      const std::string last = name->substr(name->rfind(':') + 1);
      if (m.cut && cut.contains(last) && !has(before.keep, last)) {
        add_once(m.keep, last);
        return true;
      }
      const bool from_nvcc = last.starts_with("cuda") || last.starts_with("mem") || last.ends_with("_t") ||
                             last == "__asm__" || last == "min" || last == "max";
      if (!from_nvcc || has(before.preinclude, kNvcc)) return false;
      take_nvcc();
      return true;
    }
    return false;
  }
  /// Takes a header that a hint about one error names: preinclude = ["tuple"].
  void follow_hints(const Round& round, const std::string& error) {
    const compile::AdviceSubject subject{round.unit->options, arch_.name(), round.unit->name_expression,
                                         round.unit->compile.host_headers, round.unit->compile.cut_host_code};
    for (const std::string& hint : compile::advice_for(error, subject)) {
      const auto header = between(hint, "preinclude = [\"", "\"]");
      if (!header || header->find('"') != std::string::npos) continue;
      draft_.measures.shim = true;
      add_once(draft_.measures.preinclude, *header);
    }
  }
  /// Cuts the functions in which a round failed, as far as they are not the kernel.
  void drop_failing(const Round& round) {
    for (const std::string& error : round.errors) {
      const auto function = between(error, "in function \"", "\"");
      if (!function) continue;
      const std::string name = function->substr(0, function->find('('));
      if (base::is_identifier(name) && draft_.instantiate.find(name) == std::string::npos)
        add_once(draft_.measures.dropped, name);
    }
  }

  /// The manifest lines that are new since `before`.
  std::string changes(const Measures& before) const {
    const std::vector<std::string> old = texts_of(before);
    std::vector<std::string> out;
    for (const std::string& text : texts_of(draft_.measures))
      if (!has(old, text)) out.push_back(text);
    return base::join(out, ", ");
  }

  runtime::Core& core_;
  const ImportPlace& place_;
  const base::Arch arch_;
  ImportDraft& draft_;
  const RoundStarts& starts_;
  int tried_ = 0;
  Round last_;
};

}  // namespace

Proof prove(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft,
            const RoundStarts& starts) {
  Proof out = Rounds(core, place, arch, draft, starts).run();
  draft_arguments(draft, out.proved ? &out.image->facts : nullptr);
  return out;
}

}  // namespace kiln::cli
