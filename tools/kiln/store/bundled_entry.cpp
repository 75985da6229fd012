#include "tools/kiln/store/bundled_entry.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/arch.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"
#include "cache/trust/minisign.hpp"
#include "compile/key/fields.hpp"
#include "compile/key/key.hpp"
#include "instantiate/instantiate.hpp"
#include "toolchain/cubin.hpp"
#include "toolchain/ptx.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/key/name.hpp"

namespace kiln::cli {
namespace {

using compile::FieldId;

using compile::Facts;
using compile::KeyField;

void leave_out_times(Facts& facts) {
  facts.created_s = 0;
  facts.peak_memory = 0;  // differs from run to run, too
  facts.frontend_ms = facts.nvvm_ms = facts.ptxas_ms = facts.compile_ms = 0;
  // ptxas writes its own time in such a line, in case the log ever contains one.
  std::string kept;
  for (std::size_t at = 0; at < facts.log.size();) {
    const std::size_t end = std::min(facts.log.find('\n', at), facts.log.size() - 1) + 1;
    const std::string line = facts.log.substr(at, end - at);
    if (line.find("Compile time = ") == std::string::npos) kept += line;
    at = end;
  }
  facts.log = std::move(kept);
}

[[noreturn]] void refuse(const cache::Record& entry, const std::string& why) {
  throw bundle::Refused("entry " + short_name(entry.key) + ": " + why);
}

std::string text_of(const std::vector<KeyField>& fields) {
  std::string out;
  for (const KeyField& field : fields) {
    out += field.label;
    for (const std::string& value : field.values) {
      out += ' ';
      out += std::to_string(value.size());
      out += ':';
      out += value;
    }
    out += '\n';
  }
  return out;
}

/// The value of the only field of this kind. Null when there are none or several, or the field
/// has several values.
const std::string* only(const std::vector<KeyField>& fields, FieldId id) {
  const KeyField* found = nullptr;
  for (const KeyField& field : fields) {
    if (!compile::is(field.label, id)) continue;
    if (found) return nullptr;
    found = &field;
  }
  return found && found->values.size() == 1 ? &found->values.front() : nullptr;
}

/// True when the key text and the facts follow the grammars of this version.
bool is_of_this_version(const std::vector<KeyField>& fields) {
  const std::string *key = only(fields, FieldId::version), *toolchain = only(fields, FieldId::toolchain),
                    *facts = only(fields, FieldId::facts);
  return key && *key == compile::kKeySchema && toolchain && *toolchain == "1" && facts &&
         *facts == std::to_string(compile::kFactsVersion);
}

bool has_control(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// Refuses names that no manifest can have, because names are printed and become labels.
void check_names(const cache::Record& entry, const Facts& facts) {
  std::string_view name = facts.unit;
  if (constexpr std::string_view reference = "@reference"; name.ends_with(reference))
    name.remove_suffix(reference.size());
  const auto bad = [](const Parameter& p) { return !base::is_identifier(p.name) || has_control(p.value); };
  if (!base::is_identifier(name) || (!facts.entry.empty() && !base::is_identifier(facts.entry)) ||
      has_control(facts.name_expression) ||
      std::any_of(
          facts.entries.begin(), facts.entries.end(),
          [](const auto& e) { return !base::is_identifier(e.entry) || has_control(e.name_expression); }) ||
      std::any_of(facts.globals.begin(), facts.globals.end(),
                  [](const auto& g) { return !base::is_identifier(g.name); }) ||
      std::any_of(facts.exports.begin(), facts.exports.end(),
                  [](const auto& e) { return !base::is_identifier(e.name); }) ||
      has_control(facts.compiler_version) ||
      std::any_of(facts.parameters.begin(), facts.parameters.end(), bad))
    refuse(entry, "its facts have a name that no template can have");
}

void check_facts(const cache::Record& entry, const std::vector<KeyField>& fields, const Facts& facts) {
  const auto same = [&](FieldId id, const std::string& said) {
    const std::string* value = only(fields, id);
    if (!value || *value != said)
      refuse(entry, "its facts and its key text disagree on the " + std::string(compile::label_of(id)));
  };
  same(FieldId::unit, facts.unit);
  same(FieldId::arch, facts.arch);
  same(FieldId::name, facts.name_expression);
  std::vector<Parameter> parameters;
  std::vector<std::pair<std::string, std::string>> entries;
  std::vector<std::string> globals, exports;
  bool project_header = false;
  for (const KeyField& field : fields) {
    if (compile::is(field.label, FieldId::parameter) && field.values.size() == 2)
      parameters.push_back({field.values[0], field.values[1]});
    if (compile::is(field.label, FieldId::entry) && field.values.size() == 2)
      entries.emplace_back(field.values[0], field.values[1]);
    if (compile::is(field.label, FieldId::global) && field.values.size() == 2)
      globals.push_back(field.values[0]);
    if (compile::is(field.label, FieldId::exported) && field.values.size() == 2)
      exports.push_back(field.values[0]);
    project_header = project_header || compile::is(field.label, FieldId::project_header);
  }
  const auto equal = [](const Parameter& a, const Parameter& b) {
    return a.name == b.name && a.value == b.value;
  };
  if (!std::equal(parameters.begin(), parameters.end(), facts.parameters.begin(), facts.parameters.end(),
                  equal))
    refuse(entry, "its facts and its key text disagree on the parameters");
  const auto same_name = [](const std::string& name, const auto& fact) { return name == fact.name; };
  if (!std::equal(entries.begin(), entries.end(), facts.entries.begin(), facts.entries.end(),
                  [](const auto& said, const compile::EntryFacts& fact) {
                    return said.first == fact.entry && said.second == fact.name_expression;
                  }) ||
      !std::equal(globals.begin(), globals.end(), facts.globals.begin(), facts.globals.end(), same_name) ||
      !std::equal(exports.begin(), exports.end(), facts.exports.begin(), facts.exports.end(), same_name))
    refuse(entry, "its facts and its key text disagree on the entry points, globals or exports");
  if (project_header != facts.project_header_through_toolkit)
    refuse(entry, "its facts and its key text disagree on its headers");
}

void check_kernel(const cache::Record& entry, const toolchain::CubinFacts& cubin,
                  const compile::EntryFacts& facts) {
  const toolchain::CubinKernel* kernel = cubin.kernel(facts.lowered_name);
  if (!kernel) refuse(entry, "its image has no kernel '" + trust::printable(facts.lowered_name, 120) + "'");
  const auto equal = [](const toolchain::CubinArgument& a, const compile::ArgumentFact& b) {
    return a.ordinal == b.ordinal && a.size == b.size;
  };
  if (!std::equal(kernel->arguments.begin(), kernel->arguments.end(), facts.arguments.begin(),
                  facts.arguments.end(), equal))
    refuse(entry, "its facts and its image disagree on the arguments");
  // Stack and spills are not compared: they are partly computed from the compiler's log, and no launch
  // depends on them.
  if (kernel->registers != facts.registers || kernel->shared_bytes != facts.shared_bytes ||
      kernel->max_threads != facts.max_threads || kernel->required_block != facts.required_block ||
      kernel->cluster != facts.cluster)
    refuse(entry, "its facts and its image disagree on the resources");
}

/// Launches are computed from globals and exports, so they must match the image.
void check_symbols(const cache::Record& entry, const toolchain::CubinFacts& cubin, const Facts& facts) {
  for (const compile::GlobalFact& global : facts.globals) {
    const toolchain::CubinVariable* variable = cubin.variable(global.lowered_name);
    if (!variable || variable->bytes != global.bytes)
      refuse(entry, "its facts and its image disagree on the globals");
  }
  for (std::size_t i = 0; i < facts.exports.size(); ++i) {
    const toolchain::CubinVariable* variable = cubin.variable(source::export_symbol(i));
    if (!variable || variable->value != facts.exports[i].value)
      refuse(entry, "its facts and its image disagree on the exports");
  }
}

/// PTX has no registers to compare, but a launch with other arguments would be a fault. Globals and constants
/// are not read from PTX, so an entry that has them is refused.
void check_ptx(const cache::Record& entry, const Facts& facts) {
  base::Arch arch;
  try {
    arch = base::Arch::parse(facts.arch);
  } catch (const Error& error) {
    refuse(entry, trust::printable(error.what()));
  }
  if (!facts.globals.empty() || !facts.exports.empty())
    refuse(entry, "its image is PTX, of which globals and exports cannot be checked");
  if (arch.features != base::Features::ptx || toolchain::ptx_target(entry.image) != arch.number)
    refuse(entry, "its image is PTX for sm_" + std::to_string(toolchain::ptx_target(entry.image)) +
                      ", but its key is for " + trust::printable(facts.arch));
  const auto check = [&](const compile::EntryFacts& recorded) {
    const auto kernel = toolchain::ptx_kernel(entry.image, recorded.lowered_name);
    const auto& arguments = recorded.arguments;
    if (!kernel ||
        !std::equal(kernel->arguments.begin(), kernel->arguments.end(), arguments.begin(), arguments.end(),
                    [](std::uint32_t size, const auto& argument) { return size == argument.size; }))
      refuse(entry, "its facts and its image disagree on the arguments");
    const auto& block = kernel->required_block;
    const bool bounded =
        recorded.max_threads == kernel->max_threads || recorded.max_threads == block[0] * block[1] * block[2];
    if (!bounded || block != recorded.required_block || kernel->cluster != recorded.cluster)
      refuse(entry, "its facts and its image disagree on the bounds of a block");
  };
  check(facts);
  for (const compile::EntryFacts& other : facts.entries) check(other);
}

void check_image(const cache::Record& entry, const Facts& facts) {
  if (toolchain::is_ptx(entry.image)) return check_ptx(entry, facts);
  toolchain::CubinFacts cubin;
  int arch = 0;
  try {
    cubin = toolchain::read_cubin(std::as_bytes(std::span(entry.image)));
    arch = base::Arch::parse(facts.arch).number;
  } catch (const Error& error) {
    refuse(entry, "its image is no cubin: " + trust::printable(error.what()));
  }
  if (cubin.sm != arch)
    refuse(entry, "its image is for sm_" + std::to_string(cubin.sm) + ", but its key is for " +
                      trust::printable(facts.arch));
  check_kernel(entry, cubin, facts);
  for (const compile::EntryFacts& other : facts.entries) check_kernel(entry, cubin, other);
  check_symbols(entry, cubin, facts);
}

/// Checks a tuned choice. Names and values must equal the ones in the key text, which lookups use. They are
/// printed and become parameters of a compile. The manifest checks the chosen values later, on use.
compile::TunedChoice checked_choice(const cache::Record& entry) {
  const std::vector<KeyField> fields = compile::parse_key_text(entry.key_text);
  if (text_of(fields) != entry.key_text) refuse(entry, "its key text is damaged");
  if (!(compile::choice_key_of_text(entry.key_text) == entry.key))
    refuse(entry, "its key does not match its key text");
  if (!entry.image.empty()) refuse(entry, "it is a tuned choice, which cannot have an image, and has one");
  compile::TunedChoice out;
  try {
    out = compile::decode_choice(entry.facts);
  } catch (const base::Malformed& error) {
    refuse(entry, std::string("its choice is damaged: ") + error.what());
  }
  if (compile::encode(out) != entry.facts) refuse(entry, "its choice is damaged");
  const auto same = [&](FieldId id, const std::string& said) {
    const std::string* value = only(fields, id);
    return value && *value == said;
  };
  if (!same(FieldId::unit, out.template_name) || !same(FieldId::arch, out.arch) ||
      !same(FieldId::device, out.device))
    refuse(entry, "its choice and its key text disagree on the template, arch or device");
  std::vector<Parameter> fixed;
  std::vector<std::string> free;
  for (const KeyField& field : fields)
    if (compile::is(field.label, FieldId::tune) && !field.values.empty())
      free.push_back(field.values.front());
  for (const KeyField& field : fields)
    if (compile::is(field.label, FieldId::parameter) && field.values.size() == 2 &&
        std::find(free.begin(), free.end(), field.values[0]) == free.end())
      fixed.push_back({field.values[0], field.values[1]});
  const auto named = [](const Parameter& p, const std::string& name) { return p.name == name; };
  if (fixed != out.fixed ||
      !std::equal(out.chosen.begin(), out.chosen.end(), free.begin(), free.end(), named))
    refuse(entry, "its choice and its key text disagree on the parameters");
  const auto bad = [](const Parameter& p) { return !base::is_identifier(p.name) || has_control(p.value); };
  if (!base::is_identifier(out.template_name) || has_control(out.device) || has_control(out.kiln_version) ||
      std::any_of(fixed.begin(), fixed.end(), bad) ||
      std::any_of(out.chosen.begin(), out.chosen.end(), bad) ||
      std::any_of(out.timings.begin(), out.timings.end(), [](const compile::TunedChoice::Timing& t) {
        return has_control(t.arguments) || !std::isfinite(t.us) || !std::isfinite(t.default_us);
      }))
    refuse(entry, "its choice has a name or a time that no tuned choice can have");
  return out;
}

cache::BlobFacts checked_blob(const cache::Record& entry) {
  cache::BlobFacts out;
  try {
    out = cache::decode_blob(entry.facts);
    cache::check_blob_name(out);
  } catch (const base::Malformed& error) {
    refuse(entry, std::string("its blob is damaged: ") + error.what());
  } catch (const Error& error) {
    refuse(entry, error.what());
  }
  const cache::BlobKey made = cache::key_of(out);
  if (made.text != entry.key_text) refuse(entry, "its facts and its key text name different blobs");
  if (!(made.key == entry.key)) refuse(entry, "its key does not match its key text");
  if (!cache::piece_of(out, {{}, entry.image}))
    refuse(entry, "its bytes are not those that its facts describe");
  return out;
}

}  // namespace

std::optional<cache::Record> as_bundled(cache::Record record) try {
  if (cache::is_blob(record.facts)) {
    cache::decode_blob(record.facts);  // it has no times
  } else if (compile::is_choice(record.facts)) {
    compile::TunedChoice choice = compile::decode_choice(record.facts);
    choice.created_s = 0;
    record.facts = compile::encode(choice);
  } else {
    Facts facts = compile::decode_facts(record.facts);
    leave_out_times(facts);
    record.facts = compile::encode(facts);
  }
  return record;
} catch (const base::Malformed&) {
  return std::nullopt;
}

std::string CheckedEntry::label() const {
  if (blob) return trust::printable(blob->label());
  return trust::printable(choice ? "tuned choice of " + choice->label()
                                 : facts.specialization().to_string() + ' ' + facts.arch);
}

CheckedEntry check_entry(const cache::Record& entry) {
  CheckedEntry out;
  if (compile::is_choice_text(entry.key_text)) {
    out.other_version = !compile::is_choice_of_this_version(entry.key_text);
    if (!out.other_version) out.choice = checked_choice(entry);
    return out;
  }
  if (cache::is_blob_text(entry.key_text)) {
    out.other_version = !cache::is_blob_of_this_version(entry.key_text);
    if (!out.other_version) out.blob = checked_blob(entry);
    return out;
  }
  const std::vector<KeyField> fields = compile::parse_key_text(entry.key_text);
  if (!is_of_this_version(fields)) {
    if (fields.empty() || !compile::is(fields.front().label, FieldId::version))
      refuse(entry,
             "its key text does not begin with '" + std::string(compile::label_of(FieldId::version)) + '\'');
    out.other_version = true;
    return out;
  }
  if (text_of(fields) != entry.key_text) refuse(entry, "its key text is damaged");
  if (!(compile::key_of_text(entry.key_text) == entry.key))
    refuse(entry, "its key does not match its key text");
  try {
    out.facts = compile::decode_facts(entry.facts);
  } catch (const base::Malformed& error) {
    refuse(entry, std::string("its facts are damaged: ") + error.what());
  }
  if (compile::encode(out.facts) != entry.facts) refuse(entry, "its facts are damaged");
  check_facts(entry, fields, out.facts);
  check_names(entry, out.facts);
  check_image(entry, out.facts);
  return out;
}

cache::Record as_stored(cache::Record entry, CheckedEntry checked, std::int64_t now_s) {
  if (checked.blob) return entry;
  if (checked.choice) {
    checked.choice->created_s = now_s;
    entry.facts = compile::encode(*checked.choice);
  } else {
    leave_out_times(checked.facts);  // a bundle has no times, unless other software made it
    checked.facts.created_s = now_s;
    entry.facts = compile::encode(checked.facts);
  }
  return entry;
}

}  // namespace kiln::cli
