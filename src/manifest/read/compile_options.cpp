#include "manifest/read/compile_options.hpp"

#include <algorithm>
#include <charconv>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/read/order.hpp"

namespace kiln::source {
namespace {

bool is_switch(std::string_view value) { return value == "true" || value == "false"; }
bool is_number(std::string_view value, int most) {
  int number = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc{} && end == value.data() + value.size() && number >= 0 && number <= most;
}
bool is_registers(std::string_view value) { return is_number(value, 255) && value != "0"; }
bool is_number_list(std::string_view value) {
  const auto numbers = base::split(value, ',');
  return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(),
                                         [](const std::string& n) { return is_number(n, 1 << 30); });
}
bool is_ptxas(std::string_view value) {
  for (const std::string_view level : {"-O0", "-O1", "-O2", "-O3"}) {
    if (value == level) return true;
  }
  for (const std::string_view cache : {"-dlcm=ca", "-dlcm=cg", "-dlcm=cs", "-dlcm=cv"}) {
    if (value == cache) return true;
  }
  constexpr std::string_view usage = "--register-usage-level=";
  return value.starts_with(usage) && is_number(value.substr(usage.size()), 10);
}

struct Allowed {
  std::string_view name;            ///< without leading dashes; one or two dashes are accepted
  bool (*value)(std::string_view);  ///< null: the option takes no value
};
constexpr Allowed kAllowed[] = {
    {"use_fast_math", nullptr},
    {"fmad", is_switch},
    {"ftz", is_switch},
    {"prec-div", is_switch},
    {"prec-sqrt", is_switch},
    {"maxrregcount", is_registers},
    {"extra-device-vectorization", nullptr},
    {"device-int128", nullptr},
    {"diag-suppress", is_number_list},
    {"Xptxas", is_ptxas},
    {"ptxas-options", is_ptxas},
};
constexpr std::string_view kAllowedText =
    "--use_fast_math -fmad= -ftz= -prec-div= -prec-sqrt= -maxrregcount=N --extra-device-vectorization "
    "--device-int128 "
    "--diag-suppress=N,... -Xptxas=-O0..-O3 -Xptxas=--register-usage-level=N -Xptxas=-dlcm=ca|cg|cs|cv";

struct Refused {
  std::string_view prefix, reason;
};
/// Longer prefixes come first.
constexpr Refused kRefused[] = {
    {"-include-path", "directories are named in include_dirs"},
    {"-include", "a header that comes first is named in preinclude"},
    {"-pre-include", "a header that comes first is named in preinclude"},
    {"-default-device", "write default_device = true"},
    {"-device-as-default-execution-space", "write default_device = true"},
    {"-minimal", "write minimal = true"},
    {"-std", "write std = \"c++17\""},
    {"-arch", "kiln chooses the arch"},
    {"-gpu-architecture", "kiln chooses the arch"},
    {"-rdc", "relocatable code returns an image with unresolved symbols"},
    {"-relocatable-device-code", "relocatable code returns an image with unresolved symbols"},
    {"-dc", "relocatable code returns an image with unresolved symbols"},
    {"-dlto", "link-time code cannot be loaded as an image"},
    {"-device-debug", "debug information embeds directories in the image"},
    {"-lineinfo", "line information embeds directories in the image"},
    {"-generate-line-info", "line information embeds directories in the image"},
    {"-pch", "kiln alone manages precompiled headers: a stale one is not noticed by the compiler"},
    {"-use-pch", "kiln alone manages precompiled headers: a stale one is not noticed by the compiler"},
    {"-create-pch", "kiln alone manages precompiled headers: a stale one is not noticed by the compiler"},
    {"-no-source-include", "it breaks nested quoted includes"},
    {"-define-macro", "macros are named in define"},
    {"-D", "macros are named in define"},
    {"-I", "directories are named in include_dirs"},
    {"-G", "debug information embeds directories in the image"},
};

void check_option(const TableReader& reader, const std::string& option) {
  std::string_view body = option;
  if (body.starts_with("--")) body.remove_prefix(1);  // one dash is left
  for (const Allowed& allowed : kAllowed) {
    if (!body.starts_with('-') || !body.substr(1).starts_with(allowed.name)) continue;
    const std::string_view rest = body.substr(1 + allowed.name.size());
    if (!allowed.value && rest.empty()) return;
    if (allowed.value && rest.starts_with('=') && allowed.value(rest.substr(1))) return;
    if (rest.empty() || rest.starts_with('=')) {
      reader.fail("options", base::quote(option) +
                                 " has a value that is not allowed; allowed: " + std::string(kAllowedText));
    }
  }
  for (const Refused& refused : kRefused) {
    if (body.starts_with(refused.prefix))
      reader.fail("options", base::quote(option) + " is refused: " + std::string(refused.reason));
  }
  reader.fail("options",
              base::quote(option) + " is not on the whitelist; allowed: " + std::string(kAllowedText));
}

}  // namespace

void check_header(const TableReader& reader, std::string_view key, const std::string& name) {
  if (name.empty() || !is_one_line(name) || name.find_first_of("\"<>\\") != std::string::npos)
    reader.fail(key, base::quote(name) + " must be a header's name without quotes or brackets");
  if (name[0] == '/')
    reader.fail(key, base::quote(name) + " must be relative: an absolute include cannot be cached");
}

std::string inner_path(const TableReader& reader, std::string_view key) {
  const std::string text = reader.need_line(key);
  std::string path = base::normalized(text);
  if (text[0] == '/' || path == ".." || path.starts_with("../") || path == "." || path.back() == '/') {
    reader.fail(key, base::quote(text) + " must be a file inside the manifest's directory, relative to it");
  }
  return path;
}

/// `empty` is a short form of `replace`.
void read_empty_headers(CompileSpec& out, const TableReader& reader) {
  for (const std::string& name : reader.lines("empty")) {
    check_header(reader, "empty", name);
    if (!out.cut_host_code)
      reader.fail("empty", "has an effect only with host_code = \"cut\"; [compile] replace does it without");
    for (const auto& [replaced, stub] : out.replace) {
      if (replaced == name) reader.fail("empty", base::quote(name) + " is already in [compile] replace");
    }
    out.replace.emplace_back(name, kEmptyHeader);
  }
}

void read_host_code(CompileSpec& out, const TableReader& reader) {
  const std::string host_code = reader.text_or("host_code", "keep");
  out.cut_unused = host_code == "cut-unused";
  out.cut_host_code = host_code == "cut" || out.cut_unused;
  if (host_code != "keep" && !out.cut_host_code)
    reader.fail("host_code", base::quote(host_code) + " is unknown; allowed: keep cut cut-unused");
  for (const auto& [key, names] : {std::pair{"keep", &out.keep}, std::pair{"cut", &out.cut}}) {
    *names = reader.lines(key);
    if (!names->empty() && !out.cut_host_code)
      reader.fail(key, "has an effect only with host_code = \"cut\"");
    for (const std::string& name : *names) {
      if (!base::is_identifier(name))
        reader.fail(key, base::quote(name) + " must be the name of a declaration, without namespaces");
    }
  }
}

void read_compile(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("compile");
  if (!found) return;
  const TableReader reader(
      *found, "[compile]", root.file(),
      {"std", "options", "define", "preinclude", "include_dirs", "extra_includes", "default_device",
       "minimal", "host_headers", "replace", "ndebug", "host_code", "keep", "cut", "empty"});
  CompileSpec& out = draft.out.compile;
  out.std = reader.text_or("std", out.std);
  if (out.std != "c++14" && out.std != "c++17" && out.std != "c++20") {
    reader.fail("std", base::quote(out.std) + " is unknown; allowed: c++14 c++17 c++20");
  }
  out.options = reader.lines("options");
  for (const std::string& option : out.options) check_option(reader, option);
  out.preinclude = reader.lines("preinclude");
  for (const std::string& name : out.preinclude) check_header(reader, "preinclude", name);
  out.extra_includes = reader.lines("extra_includes");
  for (const std::string& name : out.extra_includes) check_header(reader, "extra_includes", name);
  out.include_dirs = reader.lines("include_dirs");
  for (const std::string& directory : out.include_dirs) {
    if (directory[0] == '/')
      reader.fail("include_dirs", base::quote(directory) + " must be relative to the manifest");
  }
  out.minimal = reader.boolean_or("minimal", false);
  out.ndebug = reader.boolean_or("ndebug", true);
  const std::string host = reader.text_or("host_headers", "none");
  if (host != "none" && host != "shim")
    reader.fail("host_headers", base::quote(host) + " is unknown; allowed: none shim");
  out.host_headers = host == "shim" ? HostHeaders::shim : HostHeaders::none;
  if (const TomlValue* replace = reader.find("replace")) {
    const TableReader headers(*replace, "[compile] replace", root.file());
    for (const auto& [name, file] : replace->members) {
      check_header(headers, name, name);
      const std::string stub = headers.need_line(name);
      check_header(headers, name, stub);
      if (stub == name) headers.fail(name, "must not be replaced by itself");
      // The compiler would go on and replace the stub, too.
      if (replace->find(stub))
        headers.fail(
            name, "is replaced by " + base::quote(stub) + ", which is replaced itself: name the last header");
      out.replace.emplace_back(name, stub);
    }
  }
  read_host_code(out, reader);
  // A cut leaves device code only.
  out.default_device = reader.boolean_or("default_device", out.cut_host_code);
  read_empty_headers(out, reader);
  const TomlValue* define = reader.find("define");
  if (!define) return;
  const TableReader macros(*define, "[compile] define", root.file());
  for (const auto& [name, value] : define->members) {
    if (!base::is_identifier(name)) macros.fail(name, base::quote(name) + " must be [A-Za-z_][A-Za-z0-9_]*");
    if (value.kind != TomlValue::Kind::string) macros.fail_wanted(name, value, "a string");
    if (!is_one_line(value.string))
      macros.fail(name, base::quote(value.string) + " must be one line without control characters");
    if (name == "NDEBUG")
      macros.fail(name, "is set by [compile] ndebug = true (the default) or false, not in define");
    out.define.emplace_back(name, value.string);
  }
}

}  // namespace kiln::source
