#include "tools/kiln/import/check.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/deadline.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/import/expression.hpp"
#include "tools/kiln/import/report.hpp"
#include "tools/kiln/import/texts.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

/// The CUDA sources below a directory, sorted.
std::vector<std::string> sources_below(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw Error(Errc::io, "--check " + base::quote(directory, 4096) + " is no directory");
  std::vector<std::string> out;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied, error)) {
    const std::string extension = entry.path().extension().string();
    if ((extension == ".cu" || extension == ".cuh") && entry.is_regular_file(error))
      out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string seconds_text(double seconds) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f", seconds);
  return out;
}

struct CheckedKernel {
  std::string file, kernel, state, needs, missing;
  int line = 0, rounds = 0;
  double seconds = 0;
  std::size_t bytes = 0;
};

class Checker {
 public:
  Checker(Context& context, const ImportCheck& check) : context_(context), check_(check) {}

  /// Tries each kernel that the file itself defines.
  void file(const std::string& file) {
    ImportAsked asked = check_.asked;
    asked.file = file;
    asked.print = true;
    const SourceTexts texts = read_texts(asked, site_of(asked, "kernel"), check_.define);
    const std::vector<KernelDeclaration> kernels = kernels_of(texts);
    for (const KernelDeclaration& kernel : kernels) {
      if (kernel.path != file || !kernel.defined) continue;
      one(asked, texts, kernel, is_overloaded(kernels, kernel));
    }
  }
  std::vector<CheckedKernel> take() { return std::move(rows_); }

 private:
  void one(const ImportAsked& asked, const SourceTexts& texts, const KernelDeclaration& kernel,
           bool overloaded) {
    CheckedKernel row;
    row.file = fs::path(asked.file).lexically_relative(check_.directory).string();
    row.kernel = kernel.qualified();
    row.line = kernel.line;
    const auto begin = base::Clock::now();
    try {
      ImportDraft draft = draft_of(kernel, texts, overloaded, {});
      draft.name = identifier_of(kernel.name);
      const ImportSite site = site_of(asked, draft.name);
      draft.include_dirs = site.include_dirs;
      draft.measures.replace = check_.replace;
      const Proof proof = prove(context_.service().core(), site.place, context_.target_arch(), kernel, draft,
                                [](int, const std::string&) {});
      row.state = proof.proved ? "compiles" : "does not";
      row.rounds = proof.rounds;
      row.needs = base::join(texts_of(draft.measures), ", ");
      if (proof.proved) row.bytes = proof.image->bytes.size();
      std::vector<std::string> missing = asks_of(draft);
      if (!proof.proved)
        missing.push_back(proof.diagnostics.empty() ? proof.message : proof.diagnostics.front());
      if (!proof.proved) row.missing = base::join(missing, "; ");
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler || error.code() == Errc::unsupported_arch) throw;
      row.state = "cannot";
      row.missing = error.what();
    }
    row.seconds = std::chrono::duration<double>(base::Clock::now() - begin).count();
    if (!context_.json)
      std::fprintf(stderr, "%s %s: %s\n", row.file.c_str(), row.kernel.c_str(), row.state.c_str());
    rows_.push_back(std::move(row));
  }

  Context& context_;
  const ImportCheck& check_;
  std::vector<CheckedKernel> rows_;
};

}  // namespace

int check_sources(Context& context, const ImportCheck& check) {
  Checker checker(context, check);
  for (const std::string& file : sources_below(check.directory)) checker.file(file);
  context.service().core().path().flush();
  const std::vector<CheckedKernel> rows = checker.take();
  const auto compiled = std::count_if(rows.begin(), rows.end(),
                                      [](const CheckedKernel& row) { return row.state == "compiles"; });
  if (context.json) {
    Json list = Json::array();
    for (const CheckedKernel& row : rows)
      list.push_back({{"file", row.file},
                      {"line", row.line},
                      {"kernel", row.kernel},
                      {"compiles", row.state == "compiles"},
                      {"rounds", row.rounds},
                      {"seconds", row.seconds},
                      {"cubin_bytes", row.bytes},
                      {"needs", row.needs},
                      {"missing", row.missing}});
    print_json({{"schema", context.schema()}, {"kernels", list}, {"compiled", compiled}});
  } else {
    Table table({{"KERNEL"}, {"FILE"}, {"STATE"}, {"ROUNDS"}, {"SECONDS"}, {"IMAGE"}, {"MISSING"}});
    for (const CheckedKernel& row : rows)
      table.add({row.kernel, row.file + ':' + std::to_string(row.line), row.state, std::to_string(row.rounds),
                 seconds_text(row.seconds), row.bytes == 0 ? "" : human_bytes(row.bytes),
                 row.missing.substr(0, row.missing.find('\n')).substr(0, 200)});
    table.print();
    print(std::to_string(compiled) + " of " + std::to_string(rows.size()) + " kernels compile\n");
  }
  return compiled == static_cast<std::ptrdiff_t>(rows.size()) ? kDone : kPartly;
}

}  // namespace kiln::cli
