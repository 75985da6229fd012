#include "tools/kiln/import/manifest.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "manifest/toml/string.hpp"

namespace kiln::cli {
namespace {

using Kind = ImportParameter::Kind;

/// Text of a source file as one line of ASCII: a source may hold any bytes, and a manifest is UTF-8.
std::string plain(std::string text) {
  std::replace_if(text.begin(), text.end(), source::is_control, ' ');
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return text;
}

std::string toml_text(const std::string& text) { return source::toml_string(plain(text)); }

std::string list(const std::vector<std::string>& items) {
  std::vector<std::string> out;
  for (const std::string& item : items) out.push_back(toml_text(item));
  return '[' + base::join(out, ", ") + ']';
}

class Page {
 public:
  void line(const std::string& text = {}) { out_.toml += text + '\n'; }
  /// A line with a TODO comment; an empty `todo` gives a plain line.
  void line(const std::string& text, const std::string& where, const std::string& todo) {
    if (todo.empty()) return line(text);
    out_.todo.push_back(where + ' ' + todo);
    line(text + "  # TODO: " + plain(todo.substr(0, 400)));
  }
  void comment(const std::string& text) { line("# " + plain(text.substr(0, 400))); }
  ImportText take() { return std::move(out_); }

 private:
  ImportText out_;
};

void write_template(Page& page, const ImportDraft& draft, const std::string& source) {
  page.line("[template]");
  page.line("name = " + toml_text(draft.name));
  page.line("source = " + source::toml_string(source));
  page.line("instantiate = " + toml_text(draft.instantiate));
  page.line("summary = \"\"", "[template]", "summary: what it does, in one line");
  page.line("# tolerance = { f32 = 1e-5, f16 = 1e-3, bf16 = 8e-3 }");
  for (const std::string& declared : draft.left_out)
    page.comment("left to the source's own default: " + declared);
}

void write_compile(Page& page, const ImportDraft& draft) {
  const Measures& m = draft.measures;
  page.line();
  page.line("[compile]");
  page.line(std::string("std = \"") + (m.cpp20 ? "c++20" : "c++17") + '"');
  if (!draft.include_dirs.empty()) page.line("include_dirs = " + list(draft.include_dirs));
  for (const std::string& text : texts_of(m))
    if (!text.starts_with("std = ")) page.line(text);
  if (draft.define.empty()) return;
  std::vector<std::string> macros;
  for (const auto& [name, text] : draft.define) macros.push_back(name + " = " + toml_text(text));
  page.line("define = { " + base::join(macros, ", ") + " }");
}

std::string choices_text(const ImportParameter& parameter) {
  std::vector<std::string> out;
  if (parameter.kind == Kind::dtype || parameter.kind == Kind::integer) {
    for (const auto& [name, cpp] : parameter.choices) out.push_back(name);
    return parameter.kind == Kind::dtype ? list(out) : '[' + base::join(out, ", ") + ']';
  }
  for (const auto& [name, cpp] : parameter.choices) {
    std::string text;  // a brace of C++ is doubled to be literal
    for (const char c : cpp) text += (c == '{' || c == '}') ? std::string(2, c) : std::string(1, c);
    out.push_back(name + " = " + toml_text(text));
  }
  return "{ " + base::join(out, ", ") + " }";
}

void write_parameter(Page& page, const ImportParameter& parameter) {
  const std::string where = "[param." + parameter.name + ']';
  page.line();
  page.line(where + "  # " + plain(parameter.declared.substr(0, 400)));
  if (parameter.guessed)
    page.comment("a guess: " + parameter.name + ' ' +
                 (parameter.ask.empty() ? "is not given" : parameter.ask));
  else if (!parameter.evidence.empty())
    page.comment("as " + parameter.evidence + " instantiates it");
  page.line(std::string("kind = \"") + name_of(parameter.kind) + '"');
  if (parameter.kind == Kind::integer && parameter.choices.empty())
    page.line("range = [0, 65536]", where, parameter.todo);
  else if (parameter.kind != Kind::boolean)
    page.line("values = " + choices_text(parameter), where, parameter.todo);
  if (parameter.kind == Kind::dtype) page.line("spelling = \"cuda\"");
  if (!parameter.fallback.empty()) page.line("default = " + parameter.fallback);
}

void write_argument(Page& page, const ImportArgument& argument) {
  const std::string where = "[[arg]] " + argument.name + ':';
  page.line();
  page.line("[[arg]]  # " + plain(argument.declared.substr(0, 400)));
  page.line("name = " + toml_text(argument.name));
  if (argument.type.starts_with("ptr<")) {
    page.line("type = " + toml_text(argument.type));
    page.line(argument.writes ? "access = \"write\"" : "access = \"read\"", where,
              argument.writes ? "access: \"readwrite\" if the kernel reads it, too" : "");
    page.line("shape = [\"1048576\"]", where, argument.todo);
    return;
  }
  const bool number = argument.type.size() == 3;  // i32, f64
  page.line("type = " + toml_text(argument.type), where, number ? std::string() : argument.todo);
  if (!number) return;
  const std::string placeholder = argument.type[0] == 'f' ? "1.0" : "1024";
  if (argument.value.empty())
    page.line("value = " + placeholder, where, "value: " + argument.todo);
  else
    page.line("value = " + argument.value);
}

void write_launch(Page& page, const ImportDraft& draft) {
  page.line();
  page.line("[launch]");
  page.line("grid = [\"1\"]", "[launch]", "grid: blocks, as expressions over parameters and arguments");
  if (draft.block.empty())
    page.line("block = [\"256\"]", "[launch]", "block: threads of a block");
  else
    page.line("block = " + list(draft.block), "[launch]",
              "block: the bound of the declaration; the launch may want fewer, or several dimensions");
  if (draft.kernel.dynamic_shared)
    page.line("smem = \"0\"", "[launch]", "smem: bytes of dynamic shared memory");
  if (!draft.cluster.empty()) page.line("cluster = " + list(draft.cluster));
  if (draft.kernel.grid_sync)
    page.line("cooperative = true", "[launch]", "grid: no more blocks than fit the device at once");
  if (draft.kernel.dependent_launch) page.line("pdl = true");
}

void write_stubs(Page& page, const ImportDraft& draft) {
  page.line();
  page.line(
      "# [reference]  # a naive kernel with the same arguments, written pointers as double*: for kiln run "
      "--check");
  page.line("# source = " + toml_text(draft.name + ".reference.cu"));
  page.line("# instantiate = " + toml_text("reference"));
  page.line("# grid = [\"1\"]");
  page.line("# block = [\"256\"]");
  page.line();
  page.line("# [[prewarm]]  # what kiln prewarm compiles");
  for (const ImportParameter& parameter : draft.parameters)
    if (!parameter.value.empty()) page.line("# " + parameter.name + " = " + toml_text(parameter.value));
}

}  // namespace

std::vector<std::string> texts_of(const Measures& m) {
  std::vector<std::string> out;
  if (m.cpp20) out.push_back("std = \"c++20\"");
  if (m.shim) out.push_back("host_headers = \"shim\"");
  if (m.cut) out.push_back(m.unused ? "host_code = \"cut-unused\"" : "host_code = \"cut\"");
  if (!m.empty.empty()) out.push_back("empty = " + list(m.empty));
  if (!m.keep.empty()) out.push_back("keep = " + list(m.keep));
  if (!m.dropped.empty()) out.push_back("cut = " + list(m.dropped));
  if (m.default_device && !m.cut) out.push_back("default_device = true");
  if (m.int128) out.push_back("options = [\"--device-int128\"]");
  if (!m.preinclude.empty()) out.push_back("preinclude = " + list(m.preinclude));
  std::vector<std::string> replaced;
  for (const auto& [name, stub] : m.replace) replaced.push_back(toml_text(name) + " = " + toml_text(stub));
  if (!replaced.empty()) out.push_back("replace = { " + base::join(replaced, ", ") + " }");
  return out;
}

ImportText manifest_text(const ImportDraft& draft, const std::string& source, const std::string& origin) {
  Page page;
  page.comment("Imported from " + origin + ", line " + std::to_string(draft.kernel.line) + ':');
  page.comment(draft.kernel.text());
  page.line("format = 1");
  page.line();
  write_template(page, draft, source);
  write_compile(page, draft);
  for (const ImportParameter& parameter : draft.parameters) write_parameter(page, parameter);
  for (const ImportArgument& argument : draft.arguments) write_argument(page, argument);
  write_launch(page, draft);
  write_stubs(page, draft);
  return page.take();
}

}  // namespace kiln::cli
