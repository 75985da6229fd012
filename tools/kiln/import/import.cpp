// kiln import: writes a first manifest for an existing kernel, and compiles it as proof.
#include "tools/kiln/import/import.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/import/check.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/place.hpp"
#include "tools/kiln/import/report.hpp"
#include "tools/kiln/import/rounds.hpp"
#include "tools/kiln/import/texts.hpp"

namespace kiln::cli {
namespace {

struct Arguments {
  ImportAsked asked;
  std::string kernel, check;
  std::vector<std::string> values, define, replace;
  int line = 0;
};

constexpr const char* kHelp =
    R"(Compiles KERNEL (kernel, or ns::kernel) of FILE as it is, and writes NAME.toml beside FILE, or to the file
of -o. Types and sizes of the arguments come from the compiled image. Values of template parameters are
those given as P=V, else those that the source instantiates, else defaults, else guesses, which are marked
as such. The value of an enum or a type may be C++ text, and a number may be a constant of the source.
It works in rounds. Each round adds what the compiler asked for in the round before: shims and stubs of
host headers, headers that count as empty, and host_code = "cut", with which the compiler sees the source
without launchers and other host code. The files stay as they are.
What only you can know is asked for by name. What the image does not tell is a placeholder, followed by
'# TODO'. A kernel with a parameter pack cannot be imported.
When FILE is not below -o's directory, a file NAME.cu that includes it is written beside the manifest.
Stubs of an existing manifest are kept.
Exit status: 0 written and compiled, 1 nothing written, 2 usage, 3 written, but it does not compile yet (an
existing manifest then stays, and the new one is NAME.toml.new); with --check, 3 when a kernel does not.
Example: kiln import norm.cu rms_norm_f32 -I include -o kernels/norm.toml)";

constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::string listed(const std::vector<const KernelDeclaration*>& kernels) {
  std::string out;
  for (const KernelDeclaration* kernel : kernels)
    out += "\n  line " + std::to_string(kernel->line) + ": " + base::quote(kernel->text(), 300);
  return out;
}

[[noreturn]] void no_such_kernel(const std::vector<KernelDeclaration>& kernels, const SourceTexts& texts,
                                 const Arguments& arguments) {
  std::vector<std::string> names, bare;
  std::set<std::string> known;
  for (const KernelDeclaration& kernel : kernels) {
    if (known.insert(kernel.qualified()).second) names.push_back(kernel.qualified());
    bare.push_back(kernel.name);
  }
  std::string nearest = base::did_you_mean(arguments.kernel, names);
  if (nearest.empty()) nearest = base::did_you_mean(arguments.kernel, bare);
  constexpr std::size_t kMost = 40;
  const std::size_t more = names.size() - std::min(names.size(), kMost);
  names.resize(names.size() - more);
  if (more > 0) names.push_back("and " + std::to_string(more) + " more");
  std::string message = base::quote(arguments.asked.file, 4096) + " and its headers declare no kernel " +
                        base::quote(arguments.kernel) + nearest +
                        "; there are: " + (names.empty() ? "none" : base::join(names, " "));
  if (!texts.unread().empty()) message += "; the headers were not read: " + texts.unread();
  if (names.empty()) message += " (if a macro declares kernels, name it with -D NAME=__global__)";
  throw Error(Errc::source, message);
}

const KernelDeclaration& choose(const std::vector<KernelDeclaration>& kernels, const SourceTexts& texts,
                                const Arguments& arguments) {
  auto found = kernels_named(kernels, arguments.kernel);
  if (found.empty()) no_such_kernel(kernels, texts, arguments);
  const auto here = [&](const KernelDeclaration* kernel) { return kernel->path == arguments.asked.file; };
  if (std::any_of(found.begin(), found.end(), here))
    std::erase_if(found, [&](const KernelDeclaration* kernel) { return !here(kernel); });
  if (arguments.line == 0 && found.size() == 1) return *found.front();
  for (const KernelDeclaration* kernel : found)
    if (kernel->line == arguments.line) return *kernel;
  const std::string what =
      arguments.line == 0
          ? std::to_string(found.size()) + " kernels are called " + base::quote(arguments.kernel)
          : "no kernel " + base::quote(arguments.kernel) + " at line " + std::to_string(arguments.line);
  throw Error(Errc::source, what + "; choose one with --line:" + listed(found));
}

/// Splits "NAME=TEXT". A piece without '=' gets `fallback` as its text, and is refused when there is none.
Assignments assignments(const std::vector<std::string>& pieces, const std::string& expected,
                        const std::string& fallback = {}) {
  Assignments out;
  for (const std::string& piece : pieces) {
    const auto equals = piece.find('=');
    const std::string text = equals == std::string::npos ? fallback : piece.substr(equals + 1);
    if (equals == 0 || (equals == std::string::npos && fallback.empty()))
      throw Error(Errc::invalid_argument, base::quote(piece) + " is no " + expected);
    out.emplace_back(piece.substr(0, equals), text);
  }
  return out;
}

Assignments values(const Arguments& arguments) {
  Assignments out = assignments(arguments.values, "parameter: expected P=V");
  for (auto at = out.begin(); at != out.end(); ++at) {
    if (at->second.empty())
      throw Error(Errc::invalid_value, base::quote(at->first + '=') + ": its value is empty");
    if (std::any_of(out.begin(), at, [&](const auto& other) { return other.first == at->first; }))
      throw Error(Errc::invalid_argument, "parameter " + base::quote(at->first) + " is given twice");
  }
  return out;
}

Assignments macros(const Arguments& arguments) {
  Assignments out = assignments(arguments.define, "macro: expected NAME or NAME=TEXT", "1");
  for (const auto& [name, text] : out)
    if (!base::is_identifier(name))
      throw Error(Errc::invalid_argument, "-D " + base::quote(name) + ": expected NAME or NAME=TEXT");
  return out;
}

Assignments replacements(const Arguments& arguments) {
  Assignments out = assignments(arguments.replace, "replacement: expected HEADER=STUB");
  for (const auto& [header, stub] : out)
    if (stub.empty() || stub.starts_with('/'))
      throw Error(Errc::invalid_argument,
                  "--replace " + base::quote(header + '=' + stub, 4096) +
                      ": STUB is the name of a file beside the manifest, or in a directory of -I or --stubs");
  return out;
}

/// Takes over the stubs of the manifest that is there, so that a second import needs no options for them.
/// Directories that are given now come before the directories of the manifest.
void keep_stubs(const ImportSite& site, ImportDraft& draft) {
  const auto content = base::read_file(site.manifest, kMostBytes);
  if (!content) return;
  try {
    const source::Manifest old = source::parse_manifest(content->bytes, site.manifest);
    for (const auto& [name, stub] : old.compile.replace) {
      const auto same = [&, &name = name](const auto& given) { return given.first == name; };
      auto& replace = draft.measures.replace;
      if (stub != source::kEmptyHeader && std::none_of(replace.begin(), replace.end(), same))
        replace.emplace_back(name, stub);
    }
    for (const std::string& directory : old.compile.include_dirs) {
      if (has(draft.include_dirs, directory)) continue;
      if (is_directory(site.place.directory, directory))
        draft.include_dirs.push_back(directory);
      else
        std::fprintf(stderr, "%s of the manifest that is there is no directory any more, and is left out\n",
                     base::quote(directory, 4096).c_str());
    }
  } catch (const Error&) {  // it is no manifest, or one of a newer version
  }
}

/// A template path must not have two templates of one name.
void check_name(const Context& context, const ImportSite& site, const std::string& name) {
  source::Catalog catalog = catalog_of(context.config().template_directories());
  for (const std::string& directory : catalog.directories()) {
    const std::string other = directory + '/' + name + ".toml";
    const auto there = base::FileStamp::of(other), mine = base::FileStamp::of(site.manifest);
    if (!there || (mine && mine->device == there->device && mine->inode == there->inode)) continue;
    throw Error(Errc::io, "a template " + base::quote(name) + " is there already: " +
                              base::quote(other, 4096) + "; choose another name with --name");
  }
}

/// A kernel that compiles as it is needs no word about rounds.
void tell_round(int round, const std::string& what) {
  if (round > 1) std::fprintf(stderr, "round %d: %s\n", round, what.c_str());
}

int import(Context& context, const Arguments& arguments) {
  if (!arguments.check.empty()) {
    if (!arguments.asked.file.empty())
      throw Error(Errc::invalid_argument,
                  "--check takes no FILE and no KERNEL: it tries each kernel of its directory");
    return check_sources(context,
                         {arguments.check, arguments.asked, macros(arguments), replacements(arguments)});
  }
  if (arguments.asked.file.empty()) throw Error(Errc::invalid_argument, "file is required");
  if (arguments.kernel.empty()) throw Error(Errc::invalid_argument, "kernel is required");
  const base::Arch arch = context.target_arch();
  const Assignments given = values(arguments), define = macros(arguments);
  const std::string name =
      template_name(arguments.asked, arguments.kernel.substr(arguments.kernel.rfind(':') + 1));
  const ImportSite site = site_of(arguments.asked, name);
  if (!arguments.asked.print) check_name(context, site, name);
  const SourceTexts texts = read_texts(arguments.asked, site, define);
  const std::vector<KernelDeclaration> kernels = kernels_of(texts);
  const KernelDeclaration& kernel = choose(kernels, texts, arguments);

  ImportDraft draft = draft_of(kernel, texts, is_overloaded(kernels, kernel), given);
  draft.name = name;
  draft.measures.replace = replacements(arguments);
  draft.include_dirs = site.include_dirs;
  keep_stubs(site, draft);
  runtime::Core& core = context.service().core();
  const RoundStarts silent = [](int, const std::string&) {};
  const Proof proof = prove(core, site.place, arch, draft, context.json ? silent : tell_round);
  core.path().flush();
  const ImportText text = manifest_text(draft, site.place.source, site.place.origin);
  std::string written;
  if (!arguments.asked.print)
    written = write_import(site, text.toml, proof.proved ? Compiles::yes : Compiles::not_yet);
  return report_import(context, {draft, proof, site, arch, text, arguments.asked.verbose, written});
}

}  // namespace

void add_import(Command app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  const Command sub = context.add_command(app, "import", "Write a first manifest for an existing kernel",
                                          [&context, arguments] { return import(context, *arguments); });
  ImportAsked& asked = arguments->asked;
  sub.option("file", asked.file, "CUDA source that declares the kernel, or includes a header that does")
      .not_empty()
      .type_name("FILE.cuh");
  sub.option("kernel", arguments->kernel, "Name of the kernel, with or without namespaces")
      .not_empty()
      .type_name("KERNEL");
  sub.option("params", arguments->values, "Values of template parameters for the compile").type_name("P=V");
  sub.option("-o,--output", asked.output, "File for the manifest; default: NAME.toml beside FILE")
      .not_empty()
      .type_name("FILE");
  sub.option("--name", asked.name, "Name of the template; default: the kernel's name")
      .not_empty()
      .type_name("TEMPLATE");
  sub.option("-I,--include", asked.include_dirs,
             "Directory of headers, added to include_dirs; may be repeated")
      .type_name("DIR")
      .allow_extra_args(false);
  sub.option("-D,--define", arguments->define, "Macro, added to define; may be repeated")
      .type_name("NAME[=TEXT]")
      .allow_extra_args(false);
  sub.option("--replace", arguments->replace,
             "Stub in the place of a header, added to replace; may be repeated")
      .type_name("HEADER=STUB")
      .allow_extra_args(false);
  sub.option("--stubs", asked.stub_dirs,
             "Directory of your stubs, searched before those of -I; may be repeated")
      .type_name("DIR")
      .allow_extra_args(false);
  sub.option("--line", arguments->line, "Which of several overloads: the line of the kernel's name")
      .type_name("N")
      .range(1, 1 << 30);
  sub.option("--check", arguments->check, "Try every kernel of the sources below DIR, and write nothing")
      .not_empty()
      .type_name("DIR");
  const Option force = sub.flag("--force", asked.force, "Overwrite an existing manifest");
  sub.flag("--print", asked.print, "Write the manifest to stdout instead of a file").excludes(force);
  sub.flag("-v,--verbose", asked.verbose, "Show all errors of the round that got furthest, not only three");
  sub.footer(kHelp);
}

}  // namespace kiln::cli
