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

const char* state_of(const Json& row) {
  return row["compiles"].get<bool>() ? "compiles" : row["rounds"] == 0 ? "cannot" : "does not";
}

class Checker {
 public:
  Checker(Context& context, const ImportCheck& check) : context_(context), check_(check) {}

  /// Tries each kernel that the file itself defines.
  void file(const std::string& file) {
    ImportAsked asked = check_.asked;
    asked.file = file;
    asked.print = true;
    try {
      const SourceTexts texts = read_texts(asked, site_of(asked, "kernel"), check_.define);
      const std::vector<KernelDeclaration> kernels = kernels_of(texts);
      for (const KernelDeclaration& kernel : kernels) {
        if (kernel.path != file || !kernel.defined) continue;
        one(asked, texts, kernel, is_overloaded(kernels, kernel));
      }
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler || error.code() == Errc::unsupported_arch) throw;
      Json row = row_of(file);
      row["missing"] = error.what();
      add(std::move(row));
    }
  }
  /// One object for each kernel, as the JSON has it.
  Json take() { return std::move(rows_); }

 private:
  void one(const ImportAsked& asked, const SourceTexts& texts, const KernelDeclaration& kernel,
           bool overloaded) {
    Json row = row_of(asked.file);
    row["line"] = kernel.line;
    row["kernel"] = kernel.qualified();
    const auto begin = base::Clock::now();
    try {
      ImportDraft draft = draft_of(kernel, texts, overloaded, {});
      draft.name = identifier_of(kernel.name);
      const ImportSite site = site_of(asked, draft.name);
      draft.include_dirs = site.include_dirs;
      draft.measures.replace = check_.replace;
      const Proof proof = prove(context_.service().core(), site.place, context_.target_arch(), draft,
                                [](int, const std::string&) {});
      row["compiles"] = proof.proved;
      row["rounds"] = proof.rounds;
      row["needs"] = base::join(texts_of(draft.measures), ", ");
      std::vector<std::string> missing = asks_of(draft);
      missing.push_back(proof.diagnostics.empty() ? proof.message : proof.diagnostics.front());
      if (proof.proved)
        row["cubin_bytes"] = proof.image->bytes.size();
      else
        row["missing"] = base::join(missing, "; ");
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler || error.code() == Errc::unsupported_arch) throw;
      row["missing"] = error.what();
    }
    row["seconds"] = std::chrono::duration<double>(base::Clock::now() - begin).count();
    add(std::move(row));
  }
  /// A row without a kernel, for a file that cannot be read.
  Json row_of(const std::string& file) const {
    return {{"file", fs::path(file).lexically_relative(check_.directory).string()},
            {"line", 1},
            {"kernel", ""},
            {"compiles", false},
            {"rounds", 0},
            {"seconds", 0.0},
            {"cubin_bytes", 0},
            {"needs", ""},
            {"missing", ""}};
  }
  void add(Json row) {
    if (!context_.json)
      std::fprintf(stderr, "%s %s: %s\n", row["file"].get<std::string>().c_str(),
                   row["kernel"].get<std::string>().c_str(), state_of(row));
    rows_.push_back(std::move(row));
  }

  Context& context_;
  const ImportCheck& check_;
  Json rows_ = Json::array();
};

}  // namespace

int check_sources(Context& context, const ImportCheck& check) {
  Checker checker(context, check);
  for (const std::string& file : sources_below(check.directory)) checker.file(file);
  context.service().core().path().flush();
  const Json rows = checker.take();
  if (rows.empty())
    throw Error(Errc::invalid_argument, "--check " + base::quote(check.directory, 4096) +
                                            ": no .cu or .cuh file below it defines a kernel");
  const auto compiled =
      std::count_if(rows.begin(), rows.end(), [](const Json& row) { return row["compiles"].get<bool>(); });
  if (context.json) {
    print_json({{"schema", context.schema()}, {"kernels", rows}, {"compiled", compiled}});
  } else {
    Table table({{"KERNEL"}, {"FILE"}, {"STATE"}, {"ROUNDS"}, {"SECONDS"}, {"IMAGE"}, {"MISSING"}});
    for (const Json& row : rows) {
      const std::string missing = row["missing"];
      const auto bytes = row["cubin_bytes"].get<std::size_t>();
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.1f", row["seconds"].get<double>());
      table.add({row["kernel"], row["file"].get<std::string>() + ':' + row["line"].dump(), state_of(row),
                 row["rounds"].dump(), seconds, bytes == 0 ? "" : human_bytes(bytes),
                 missing.substr(0, missing.find('\n')).substr(0, 200)});
    }
    table.print();
    print(std::to_string(compiled) + " of " + std::to_string(rows.size()) + " kernels compile\n");
  }
  return compiled == static_cast<std::ptrdiff_t>(rows.size()) ? kDone : kPartly;
}

}  // namespace kiln::cli
