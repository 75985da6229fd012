#include "manifest/bind/describe.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>

namespace kiln::source {
namespace {

/// Writes objects and arrays. Commas are put where they belong.
class JsonWriter {
 public:
  JsonWriter& open(char bracket) { return separate(), text_ += bracket, fresh_ = true, *this; }
  JsonWriter& close(char bracket) { return text_ += bracket, fresh_ = false, *this; }
  JsonWriter& key(std::string_view name) {
    value(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }
  JsonWriter& raw(std::string_view token) { return separate(), text_ += token, *this; }
  JsonWriter& value(std::string_view string) {
    separate();
    text_ += '"';
    for (const char c : string) {
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\')
        (text_ += '\\') += c;
      else if (byte < 0x20)
        ((text_ += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
      else
        text_ += c;
    }
    text_ += '"';
    return *this;
  }
  JsonWriter& boolean(bool on) { return raw(on ? "true" : "false"); }
  template <class Number>
  JsonWriter& number(Number n) {
    char digits[40];
    const auto end = std::to_chars(digits, digits + sizeof digits, n).ptr;
    return raw({digits, static_cast<std::size_t>(end - digits)});
  }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!fresh_) text_ += ',';
    fresh_ = false;
  }
  std::string text_;
  bool fresh_ = true;  ///< no comma is due
};

std::string_view to_string(BindOperand::Kind kind) {
  constexpr std::string_view names[] = {"tensor",  "integer", "boolean", "number",
                                        "numbers", "dtype",   "choice"};
  return names[static_cast<std::size_t>(kind)];
}

std::string dtype_text(const Manifest& manifest, const BindDtype& dtype) {
  if (dtype.fixed) return std::string(kiln::to_string(*dtype.fixed));
  if (dtype.parameter >= 0) return manifest.parameters[static_cast<std::size_t>(dtype.parameter)].name;
  return dtype.computed.empty() ? "any" : dtype.computed.text();
}

void write_texts(JsonWriter& out, const std::vector<Expression>& expressions) {
  for (const Expression& e : expressions) out.value(e.text());
}

void write_fallback(JsonWriter& out, const BindOperand& o) {
  using Kind = BindOperand::Kind;
  // An expression such as -1 is no constant, but reads nothing.
  const bool known = !o.fallback.empty() && o.fallback.reads().empty();
  const std::int64_t value = known ? o.fallback.evaluate(std::span<const std::int64_t>()) : 0;
  if (o.kind == Kind::number && o.number_fallback)
    out.number(*o.number_fallback);
  else if (o.fallback.empty())
    out.raw("null");
  else if (o.kind == Kind::boolean && known)
    out.boolean(value != 0);
  else if (o.kind == Kind::integer && known)
    out.number(value);
  else if (o.kind == Kind::choice)
    out.value(std::string_view(o.fallback.text()).substr(o.fallback.text().find('.') + 1));
  else
    out.value(o.fallback.text());
}

void write_operand(JsonWriter& out, const Manifest& manifest, const BindOperand& o) {
  out.open('{').key("name").value(o.name).key("kind").value(to_string(o.kind));
  out.key("optional").boolean(o.optional).key("written").boolean(o.written);
  if (o.kind == BindOperand::Kind::tensor) {
    out.key("dtype").value(dtype_text(manifest, o.dtype)).key("shapes").open('[');
    for (const BindShape& shape : o.shapes) {
      out.open('[');
      if (shape.leading) out.value("...");
      write_texts(out, shape.extents);
      out.close(']');
    }
    out.close(']').key("strides").open('[');
    write_texts(out, o.strides);
    out.close(']');
  } else {
    out.key("count").number(o.count).key("default");
    write_fallback(out, o);
    out.key("choices").open('[');
    if (o.kind == BindOperand::Kind::choice)
      for (const auto& choice : manifest.parameters[static_cast<std::size_t>(o.parameter)].choices)
        out.value(choice.name);
    out.close(']');
  }
  out.close('}');
}

}  // namespace

std::string json_of(const Manifest& manifest, const BindSpec& spec) {
  JsonWriter out;
  out.open('{').key("name").value(spec.name).key("template").value(manifest.name).key("doc").value(spec.doc);
  out.key("call").value(spec.call).key("out").value(spec.out);
  const std::size_t ends[] = {spec.inputs, spec.inputs + spec.results, spec.operands.size()};
  std::size_t i = 0;
  for (int group = 0; group < 3; ++group) {
    constexpr const char* names[] = {"inputs", "outputs", "scratch"};
    out.key(names[group]).open('[');
    for (; i < ends[group]; ++i) write_operand(out, manifest, spec.operands[i]);
    out.close(']');
  }
  out.key("let").open('[');
  for (const BindNamed& named : spec.named) {
    const std::string& name = spec.measure_names[static_cast<std::size_t>(named.slot - spec.first_slot)];
    out.open('{').key("name").value(name).key("value").value(named.value.text()).close('}');
  }
  out.close(']').key("parameters").open('[');
  for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
    const ParameterSpec& parameter = manifest.parameters[p];
    out.open('{').key("name").value(parameter.name).key("kind").value(to_string(parameter.kind)).key("value");
    const BindParameter* given = nullptr;
    for (const BindParameter& b : spec.parameters)
      if (b.parameter == static_cast<int>(p)) given = &b;
    given ? out.value(given->value.text()) : out.raw("null");
    out.key("given_by");
    given && given->unless_absent >= 0
        ? out.value(spec.operands[static_cast<std::size_t>(given->unless_absent)].name)
        : out.raw("null");
    out.key("family").boolean(given && given->picks_member);
    out.key("default");
    parameter.default_value.empty() ? out.raw("null") : out.value(default_text(parameter));
    out.close('}');
  }
  out.close(']').key("require").open('[');
  for (const BindRequirement& r : spec.requirements)
    out.open('{').key("expr").value(r.expression.text()).key("message").value(r.message).close('}');
  return out.close(']').close('}').take();
}

}  // namespace kiln::source
