// kiln templates: lists the templates, or shows one.
#include "tools/kiln/templates/templates.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/templates/json.hpp"

#include <filesystem>

#include "instantiate/instantiate.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/templates/markdown.hpp"
#include "tools/kiln/templates/page.hpp"

namespace kiln::cli {
namespace {

struct TemplatesArguments {
  std::string name;
  bool all = false, markdown = false;
};

int one(Context& context, const std::string& name) {
  const auto found = context.service().catalog().open(name);
  if (context.json) {
    Json out = json_of(*found);
    Json object{{"schema", context.schema()}};
    object.update(out);
    print_json(object);
  } else {
    print_page(*found);
  }
  return kDone;
}

int list(Context& context, bool all) {
  source::Catalog& catalog = context.service().catalog();
  using Fit = Table::Fit;
  Table table({{"NAME"}, {"PARAMETERS", Fit::flexible}, {"SUMMARY", Fit::flexible}});
  Json out{{"schema", context.schema()},
           {"directories", catalog.directories()},
           {"templates", Json::array()},
           {"broken", Json::array()}};
  std::size_t shown = 0, hidden = 0;
  for (const std::string& name : catalog.names()) {
    try {
      const auto found = catalog.open(name);
      const source::Manifest& manifest = found->manifest;
      if (manifest.internal && !all) {
        ++hidden;
        continue;
      }
      ++shown;
      table.add({name, short_parameters(manifest), manifest.summary});
      if (context.json) out["templates"].push_back(json_summary(*found));
    } catch (const Error& error) {
      // A broken manifest must not hide the other templates.
      std::fprintf(stderr, "kiln: error: %s\n", error.what());
      out["broken"].push_back({{"name", name}, {"code", name_of(error.code())}, {"message", error.what()}});
    }
  }
  const int status = out["broken"].empty() ? kDone : kFailed;
  if (context.json) return print_json(out), status;
  if (shown > 0) table.print();
  std::string footer =
      counted(shown, "template") + " in " + (catalog.directories().empty() ? "no directory" : "");
  for (const std::string& directory : catalog.directories())
    footer += (&directory == &catalog.directories().front() ? "" : ", ") + directory;
  if (hidden > 0) footer += " (" + std::to_string(hidden) + " internal: --all)";
  print_paragraph(footer, Style::dim);
  for (const std::string& directory : catalog.directories()) {
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error))
      std::fprintf(stderr, "kiln: warning: '%s' of KILN_TEMPLATE_PATH is no directory\n", directory.c_str());
  }
  if (shown + hidden == 0) print_paragraph("Nothing was found: " + context.config().about_templates() + '.');
  return status;
}

/// Writes the named template, or all templates as a page. Stops at a broken manifest, unlike the list: a page
/// without one template would look complete.
int write_markdown(Context& context, const TemplatesArguments& arguments) {
  source::Catalog& catalog = context.service().catalog();
  if (!arguments.name.empty()) return print(markdown_section(*catalog.open(arguments.name))), kDone;
  std::vector<std::shared_ptr<const source::Template>> shown;
  for (const std::string& name : catalog.names()) {
    const auto found = catalog.open(name);
    if (!found->manifest.internal || arguments.all) shown.push_back(found);
  }
  return print(markdown_page(shown)), kDone;
}

}  // namespace

void add_templates(Command app, Context& context) {
  const auto arguments = std::make_shared<TemplatesArguments>();
  const Command sub =
      context.add_command(app, "templates", "List the templates, or explain one", [&context, arguments] {
        if (arguments->markdown) return write_markdown(context, *arguments);
        return arguments->name.empty() ? list(context, arguments->all) : one(context, arguments->name);
      });
  sub.option("name", arguments->name, "Template to explain").type_name("NAME");
  sub.flag("--all", arguments->all, "Also list internal templates");
  sub.flag("--markdown", arguments->markdown,
           "Write a page of Markdown: parameters, arguments, constraints, cost")
      .excludes(sub.find("--json"));
  sub.footer("Parameters in [brackets] have a default.");
}

}  // namespace kiln::cli
