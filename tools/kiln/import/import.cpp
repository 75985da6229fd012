// kiln import: writes a first manifest for an existing kernel, and compiles it as proof.
#include "tools/kiln/import/import.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/includes.hpp"
#include "tools/kiln/import/place.hpp"
#include "tools/kiln/import/report.hpp"

namespace kiln::cli {
namespace {

struct Arguments {
  ImportAsked asked;
  std::string kernel;
  std::vector<std::string> values, define;
  int line = 0;
};

constexpr const char* kHelp =
    "Reads the declaration of KERNEL (kernel, or ns::kernel) and writes NAME.toml beside FILE, or to the\n"
    "file of -o. What the declaration does not tell is a placeholder, followed by '# TODO'. Then one\n"
    "specialisation is compiled, with the values given as P=V, else the defaults, else guesses (f32, 128,\n"
    "false). The value of an enum or a type may be C++ text. What NVRTC needs beside the source (host "
    "header\n"
    "shims, default_device, --device-int128, ...) is tried, and the smallest set that works is written into\n"
    "the manifest. The sizes of structs are read from the image.\n"
    "The command reads text and is not a C++ front end. Of #if ... #else it sees only the first and the "
    "last\n"
    "branch. Of macros it knows those given with -D and those without parameters that say __global__. A\n"
    "kernel with a parameter pack cannot be imported.\n"
    "When FILE is not below -o's directory, a file NAME.cu that includes it is written beside the manifest.\n"
    "Exit status: 0 written and proved, 1 nothing written, 2 usage, 3 written, but it does not compile yet "
    "(an\n"
    "existing manifest then stays, and the new one is NAME.toml.new).\n"
    "Example: kiln import decode.cuh flash::decode HEAD_DIM=64 T=bf16 -I include -o kernels/decode.toml";

CudaSource read_source(const std::string& file, const Macros& macros) {
  constexpr std::size_t kMost = std::size_t{16} << 20;
  const auto content = base::read_file(file, kMost);
  if (!content) throw Error(Errc::io, "cannot read " + base::quote(file, 4096) + ": " + std::strerror(errno));
  return read_cuda(content->bytes, macros);
}

std::string listed(const std::vector<const KernelDeclaration*>& kernels) {
  std::string out;
  for (const KernelDeclaration* kernel : kernels)
    out += "\n  line " + std::to_string(kernel->line) + ": " + base::quote(kernel->text(), 300);
  return out;
}

[[noreturn]] void no_such_kernel(const CudaSource& source, const Arguments& arguments,
                                 const std::vector<std::string>& elsewhere) {
  std::vector<std::string> names, bare;
  for (const KernelDeclaration& kernel : source.kernels) {
    const std::string name = kernel.qualified();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    bare.push_back(kernel.name);
  }
  std::string nearest = base::did_you_mean(arguments.kernel, names);
  if (nearest.empty()) nearest = base::did_you_mean(arguments.kernel, bare);
  constexpr std::size_t kMost = 40;
  const std::size_t more = names.size() - std::min(names.size(), kMost);
  names.resize(names.size() - more);
  if (more > 0) names.push_back("and " + std::to_string(more) + " more");
  std::string message = base::quote(arguments.asked.file, 4096) + " declares no kernel " +
                        base::quote(arguments.kernel) + nearest +
                        "; there are: " + (names.empty() ? "none" : base::join(names, " "));
  if (!elsewhere.empty()) message += ". An included file has it: " + base::join(elsewhere, ", ");
  if (names.empty()) message += " (if a macro declares kernels, name it with -D NAME=__global__)";
  throw Error(Errc::source, message);
}

const KernelDeclaration& choose(const CudaSource& source, const Arguments& arguments,
                                const std::vector<std::string>& elsewhere) {
  const auto found = kernels_named(source, arguments.kernel);
  if (found.empty()) no_such_kernel(source, arguments, elsewhere);
  if (arguments.line == 0 && found.size() == 1) return *found.front();
  for (const KernelDeclaration* kernel : found)
    if (kernel->line == arguments.line) return *kernel;
  const std::string what =
      arguments.line == 0
          ? std::to_string(found.size()) + " kernels are called " + base::quote(arguments.kernel)
          : "no kernel " + base::quote(arguments.kernel) + " at line " + std::to_string(arguments.line);
  throw Error(Errc::source, what + "; choose one with --line:" + listed(found));
}

Assignments assignments(const std::vector<std::string>& pieces) {
  Assignments out;
  for (const std::string& piece : pieces) {
    const auto equals = piece.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(Errc::invalid_argument, base::quote(piece) + " is no parameter: expected P=V");
    const std::string name = piece.substr(0, equals);
    for (const auto& [known, value] : out)
      if (known == name)
        throw Error(Errc::invalid_argument, "parameter " + base::quote(name) + " is given twice");
    out.emplace_back(name, piece.substr(equals + 1));
    if (out.back().second.empty())
      throw Error(Errc::invalid_value, base::quote(piece) + ": its value is empty");
  }
  return out;
}

Assignments macros(const std::vector<std::string>& pieces) {
  Assignments out;
  for (const std::string& piece : pieces) {
    const auto equals = piece.find('=');
    out.emplace_back(piece.substr(0, equals), equals == std::string::npos ? "1" : piece.substr(equals + 1));
    if (!base::is_identifier(out.back().first))
      throw Error(Errc::invalid_argument, "-D " + base::quote(piece) + ": expected NAME or NAME=TEXT");
  }
  return out;
}

/// Macros of -D hold for the source as well. A text with {P} is left out, because only the manifest
/// can fill it.
Macros known_in_source(const Macros& define) {
  Macros out;
  for (const auto& [name, text] : define)
    if (text.find('{') == std::string::npos) out.emplace_back(name, text);
  return out;
}

/// Reads includes, too: a macro of an included header may give the kernel its name.
CudaSource read_with_includes(const Arguments& arguments, const Macros& define,
                              std::vector<std::string>& elsewhere) {
  const ImportAsked& asked = arguments.asked;
  const Macros given = known_in_source(define);
  CudaSource out = read_source(asked.file, given);
  elsewhere = add_includes(out, asked.file, asked.include_dirs, arguments.kernel, given);
  if (!kernels_named(out, arguments.kernel).empty() || out.kernel_macros.empty()) return out;
  Macros macros = out.kernel_macros;
  macros.insert(macros.end(), given.begin(), given.end());
  out = read_source(asked.file, macros);
  elsewhere = add_includes(out, asked.file, asked.include_dirs, arguments.kernel, macros);
  return out;
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

int import(Context& context, const Arguments& arguments) {
  const base::Arch arch = context.target_arch();
  const Assignments given = assignments(arguments.values);
  const Macros define = macros(arguments.define);
  std::vector<std::string> elsewhere;
  CudaSource source = read_with_includes(arguments, define, elsewhere);
  const KernelDeclaration& kernel = choose(source, arguments, elsewhere);
  for (const TemplateParameter& p : kernel.parameters) source.aliases.erase(p.name);
  const auto same_name = [&](const KernelDeclaration& other) {
    return other.qualified() == kernel.qualified();
  };
  const bool overloaded = std::count_if(source.kernels.begin(), source.kernels.end(), same_name) > 1;

  ImportDraft draft = draft_of(kernel, source, overloaded, given);
  draft.name = template_name(arguments.asked, kernel.name);
  draft.define = define;
  const ImportSite site = site_of(arguments.asked, draft.name);
  if (!arguments.asked.print) check_name(context, site, draft.name);
  draft.include_dirs = site.include_dirs;
  runtime::Core& core = context.service().core();
  const Proof proof = prove(core, site.place, arch, draft);
  core.path().flush();
  const ImportText text = manifest_text(draft, site.place.source, site.place.origin);
  std::string written;
  if (!arguments.asked.print)
    written = write_import(site, text.toml, proof.proved ? Compiles::yes : Compiles::not_yet);
  return report_import(context, {draft, proof, site, arch, text, written});
}

}  // namespace

void add_import(Command app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  const Command sub = context.add_command(app, "import", "Write a first manifest for an existing kernel",
                                          [&context, arguments] { return import(context, *arguments); });
  ImportAsked& asked = arguments->asked;
  sub.option("file", asked.file, "CUDA source that declares the kernel")
      .not_empty()
      .type_name("FILE.cuh")
      .required();
  sub.option("kernel", arguments->kernel, "Name of the kernel, with or without namespaces")
      .not_empty()
      .type_name("KERNEL")
      .required();
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
  sub.option("--line", arguments->line, "Which of several overloads: the line of the kernel's name")
      .type_name("N")
      .range(1, 1 << 30);
  const Option force = sub.flag("--force", asked.force, "Overwrite an existing manifest");
  sub.flag("--print", asked.print, "Write the manifest to stdout instead of a file").excludes(force);
  sub.footer(kHelp);
}

}  // namespace kiln::cli
