#include "tools/kiln/import/rounds.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "compile/advice/diagnostic.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/overlay.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/import/arguments.hpp"
#include "tools/kiln/import/manifest.hpp"

namespace kiln::cli {
namespace {

constexpr int kMostRounds = 16;

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

/// The text between two marks; nothing when they are not there.
std::optional<std::string> between(std::string_view text, std::string_view before, std::string_view after) {
  const auto at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const auto end = text.find(after, at + before.size());
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(at + before.size(), end - at - before.size()));
}

/// "_ZN1a4halfEf" -> "half"; empty when the text is no name of C++.
std::string function_name(const std::string& symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (status != 0 || !text) return base::is_identifier(symbol) ? symbol : std::string();
  std::string name = text;
  std::free(text);
  name.resize(std::min(name.find_first_of("(<"), name.size()));
  name.erase(0, name.find_last_of(": ") + 1);
  return base::is_identifier(name) ? name : std::string();
}

struct Failure {
  std::string file, line, message;
};

struct Round {
  Proof proof;
  std::vector<Failure> failures;
  std::vector<std::string> missing;  ///< headers that no directory has
  source::Overlay overlay;
};

class Rounds {
 public:
  Rounds(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft,
         const RoundStarts& starts)
      : core_(core), place_(place), arch_(arch), draft_(draft), starts_(starts) {}

  Proof run() {
    Round best = compile("the source as it is");
    Measures of_best = draft_.measures;
    std::size_t idle = 0;  // rounds that got no further
    while (!best.proof.proved && tried_ < kMostRounds && idle < 3) {
      const Measures before = draft_.measures;
      std::string what = tried_ == 1 ? first_measures(best) : next_measure(idle == 0 ? best : last_);
      if (what.empty() && tried_ == 1) what = next_measure(best);
      if (what.empty()) break;
      if (draft_.measures == before) break;
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
    best.proof.rounds = tried_;
    return best.proof;
  }

 private:
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
      const source::Instantiation instantiation = unit();
      runtime::ObtainOptions options;
      options.arguments = runtime::Arguments::any;
      const auto files = std::make_shared<runtime::KeyedFiles>(
          core_.state().files.read(instantiation, source::Trust::content));
      out.missing = files->closure.missing;
      if (draft_.measures.cut) out.overlay = source::overlay_of(instantiation, files->closure);
      options.files = files;
      out.proof.image = core_.path().obtain(instantiation, options).image;
      out.proof.proved = true;
    } catch (const CompileError& error) {
      out.proof.code = error.code();
      out.proof.message = error.what();
      for (const compile::Diagnostic& d : compile::errors_of(error.log())) {
        out.failures.push_back({std::string(d.file), std::string(d.line), std::string(d.message)});
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

  static bool stopped_early(const Round& round) {
    return std::any_of(round.failures.begin(), round.failures.end(), [](const Failure& f) {
      return f.message.find("not open source file") != std::string::npos;
    });
  }
  /// Compares two failed rounds. A round that ended at a missing header got less far than one that read all.
  static bool further(const Round& next, const Round& best) {
    if (next.proof.code != Errc::compile_failed) return false;
    if (stopped_early(next) != stopped_early(best)) return stopped_early(best);
    if (stopped_early(next)) return next.proof.diagnostics != best.proof.diagnostics;
    return next.failures.size() < best.failures.size();
  }

  /// Adds the measures that the source's text asks for: headers, and host code that is to be cut.
  std::string first_measures(const Round& first) {
    Measures& m = draft_.measures;
    if (first.proof.code != Errc::compile_failed) return {};
    if (says(first, "128-bit integer")) m.int128 = true;
    if (says(first, "concept") || says(first, "requires")) m.cpp20 = true;
    if (m.int128 || m.cpp20) return changes();
    Measures trial = m;
    m.shim = m.cut = m.default_device = true;
    const source::Instantiation instantiation = unit();
    const auto files = core_.state().files.read(instantiation, source::Trust::content);
    const source::Overlay overlay = source::overlay_of(instantiation, files.closure);
    const bool host_code = !overlay.cut.empty();
    take_missing(files.closure.missing);
    if (!host_code && m.empty.empty()) {
      // Kernels alone: shims may be enough, or the marks may be all that is missing.
      m = trial;
      if (says(first, "not open source file")) m.shim = true;
      m.default_device = overlay.unmarked && !says(first, "not open source file");
    }
    return changes();
  }
  void take_missing(const std::vector<std::string>& missing) {
    for (const std::string& spelling : missing) {
      const std::string name = spelling.substr(1, spelling.size() - 2);
      if (draft_.includes.contains(name) && !has(draft_.measures.empty, name))
        draft_.measures.empty.push_back(name);
    }
  }
  static bool says(const Round& round, std::string_view what) {
    return std::any_of(round.failures.begin(), round.failures.end(),
                       [&](const Failure& f) { return f.message.find(what) != std::string::npos; });
  }

  /// Answers the errors of a round with all measures that their texts ask for.
  std::string next_measure(const Round& round) {
    Measures& m = draft_.measures;
    const Measures before = m;
    if (round.proof.code != Errc::compile_failed) return {};
    for (const Failure& failure : round.failures) answer(failure, round);
    if (m == before && !m.cut) {
      m.shim = m.cut = true;
      m.default_device = true;
      take_missing(round.missing);
    } else if (m == before && !m.nvcc) {
      m.shim = m.nvcc = m.default_device = true;
    } else if (m == before) {
      drop_failing(round);
    }
    return changes(before);
  }
  void answer(const Failure& failure, const Round& round) {
    Measures& m = draft_.measures;
    const auto says = [&](std::string_view what) { return failure.message.find(what) != std::string::npos; };
    if (const auto header = between(failure.message, "not open source file \"", "\"")) {
      m.shim = true;
      if (m.cut && !has(m.empty, *header)) m.empty.push_back(*header);
      m.cut = true;
    }
    if (says("128-bit integer")) m.int128 = true;
    if (says("considered a host function") || says("calling a __host__ function")) m.default_device = true;
    if (says("explicitly marked as a __host__ function")) m.shim = m.nvcc = m.unmark_host = true;
    if (says("device-side kernel launch")) m.shim = m.nvcc = true;
    // A host function that the kernel calls after all: it was cut to its head.
    std::string called =
        between(failure.message, "function \"", "\" was referenced but not defined").value_or("");
    if (const auto symbol = between(failure.message, "Unresolved extern function '", "'"))
      called = function_name(*symbol);
    called.erase(0, called.rfind(':') + 1);
    called.resize(std::min(called.find_first_of("(<"), called.size()));
    if (m.cut && base::is_identifier(called) && !has(m.keep, called)) m.keep.push_back(called);
    std::optional<std::string> name = between(failure.message, "identifier \"", "\" is undefined");
    if (!name) name = between(failure.message, "has no member \"", "\"");
    if (!name) name = between(failure.message, "incomplete type \"", "\"");
    if (!name) name = between(failure.message, "", " is not a template");
    if (!name) return;
    const std::string last = name->substr(name->rfind(':') + 1);
    if (m.cut && round.overlay.cut.contains(last) && !has(m.keep, last)) {
      m.keep.push_back(last);
    } else if (last.starts_with("cuda") || last.starts_with("mem") || last.ends_with("_t") ||
               last == "__asm__" || last == "min" || last == "max") {
      m.shim = m.nvcc = true;
    }
  }
  /// Cuts the functions in which a round failed, as far as they are not the kernel.
  void drop_failing(const Round& round) {
    for (const Failure& failure : round.failures) {
      const auto function = between(failure.message, "in function \"", "\"");
      if (!function) continue;
      const std::string name = function->substr(0, function->find('('));
      if (base::is_identifier(name) && !has(draft_.measures.dropped, name) &&
          draft_.instantiate.find(name) == std::string::npos)
        draft_.measures.dropped.push_back(name);
    }
  }

  std::string changes() const { return changes({}); }
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

Proof prove(runtime::Core& core, const ImportPlace& place, base::Arch arch, const KernelDeclaration& kernel,
            ImportDraft& draft, const RoundStarts& starts) {
  Proof out = Rounds(core, place, arch, draft, starts).run();
  draft_arguments(draft, kernel, out.proved ? &out.image->facts : nullptr);
  return out;
}

}  // namespace kiln::cli
