#include "compile/key/tuned_choice.hpp"

#include "compile/key/fields.hpp"

#include "base/hash.hpp"
#include "base/wire.hpp"

namespace kiln::compile {
namespace {

constexpr std::string_view kFirstLine = "kiln-key 8:choice/1\n", kAnyVersion = "kiln-key 8:choice/";
constexpr std::uint32_t kVersion = 1;

void put_value(std::string& out, std::string_view value) {
  out += ' ';
  out += std::to_string(value.size());
  out += ':';
  out += value;
}

Key choice_key(std::string_view text, std::size_t device_at) noexcept {
  return {base::digest_of(text.substr(0, device_at)), base::digest_of(text.substr(device_at))};
}

void put(base::Writer& out, const std::vector<Parameter>& parameters) {
  out.list(parameters, [](base::Writer& w, const Parameter& p) { w.bytes(p.name).bytes(p.value); });
}

std::vector<Parameter> get_parameters(base::Reader& in) {
  std::vector<Parameter> out;
  in.list([&](base::Reader& r) {
    std::string name = r.string();
    out.push_back({std::move(name), r.string()});
  });
  return out;
}

}  // namespace

std::string TunedChoice::label() const {
  return Specialization{template_name, fixed}.to_string() + ' ' + arch + " on " + device;
}

MadeChoiceKey make_choice_key(const MadeKey& made,
                              const std::vector<std::pair<std::string, std::vector<std::string>>>& candidates,
                              std::string_view device) {
  MadeChoiceKey out;
  out.text = kFirstLine;
  std::string_view rest = made.specialisation_text();
  rest.remove_prefix(rest.find('\n') + 1);  // removes its kiln-key line
  out.text += rest;
  for (const auto& [name, texts] : candidates) {
    out.text += label_of(FieldId::tune);
    put_value(out.text, name);
    for (const std::string& text : texts) put_value(out.text, text);
    out.text += '\n';
  }
  const std::size_t device_at = out.text.size();
  out.text += label_of(FieldId::device);
  put_value(out.text, device);
  out.text += '\n';
  out.key = choice_key(out.text, device_at);
  return out;
}

bool is_choice_text(std::string_view key_text) noexcept { return key_text.starts_with(kAnyVersion); }
bool is_choice_of_this_version(std::string_view key_text) noexcept {
  return key_text.starts_with(kFirstLine);
}

Key choice_key_of_text(std::string_view text) {
  const std::vector<KeyField> fields = parse_key_text(text);
  std::size_t last = 0;  // bytes of the last line
  if (!fields.empty()) {
    std::string line = fields.back().label;
    for (const std::string& each : fields.back().values) put_value(line, each);
    last = line.size() + 1;
  }
  return choice_key(text, text.size() - std::min(last, text.size()));
}

bool is_choice(std::string_view facts) noexcept {
  std::uint32_t mark = 0;
  if (facts.size() < sizeof mark) return false;
  std::memcpy(&mark, facts.data(), sizeof mark);
  return mark == kChoiceMark;
}

std::string encode(const TunedChoice& choice) {
  base::Writer out;
  out.number(kChoiceMark).number(kVersion);
  out.bytes(choice.template_name).bytes(choice.arch).bytes(choice.device);
  put(out, choice.fixed);
  put(out, choice.chosen);
  out.list(choice.timings, [](base::Writer& w, const TunedChoice::Timing& t) {
    w.bytes(t.arguments).number(t.us).number(t.default_us);
  });
  out.number(choice.candidates).bytes(choice.kiln_version).number(choice.created_s);
  return std::move(out.str());
}

TunedChoice decode_choice(std::string_view facts) {
  base::Reader in(facts);
  if (in.number<std::uint32_t>() != kChoiceMark || in.number<std::uint32_t>() != kVersion)
    throw base::Malformed("no choice, or one of another version");
  TunedChoice out;
  out.template_name = in.string();
  out.arch = in.string();
  out.device = in.string();
  out.fixed = get_parameters(in);
  out.chosen = get_parameters(in);
  in.list([&](base::Reader& r) {
    TunedChoice::Timing& timing = out.timings.emplace_back();
    timing.arguments = r.string();
    timing.us = r.number<double>();
    timing.default_us = r.number<double>();
  });
  out.candidates = in.number<std::uint32_t>();
  out.kiln_version = in.string();
  out.created_s = in.number<std::int64_t>();
  return out;
}

}  // namespace kiln::compile
