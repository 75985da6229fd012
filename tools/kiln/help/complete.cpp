#include "tools/kiln/help/complete.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/command_tree.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/lint/lint.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {
namespace {

struct Candidate {
  std::string word, text;
};

/// The words before the cursor, parsed.
struct Line {
  const CommandPage* page;
  std::vector<std::string> positionals;
  std::map<std::string, std::string> values;  ///< of options, by their last name
  const CommandOption* pending = nullptr;     ///< the option whose value is being typed
};

const CommandOption* find_option(const CommandPage& page, const std::string& name) {
  for (const CommandOption& option : page.options)
    if (!option.positional && std::find(option.names.begin(), option.names.end(), name) != option.names.end())
      return &option;
  return nullptr;
}

/// Joins "T", "=" and "b" to "T=b": kiln accepts spaces around =, and bash itself splits words there.
std::vector<std::string> joined(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  bool open = false;
  for (const std::string& word : words) {
    if (!out.empty() && !out.back().starts_with('-') && (open || word == "="))
      out.back() += word;
    else
      out.push_back(word);
    open = word == "=";
  }
  return out;
}

Line understand(const CommandPage& root, const std::vector<std::string>& words) {
  Line line{&root, {}, {}};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (const CommandOption* waiting = std::exchange(line.pending, nullptr)) {
      line.values[waiting->names.back()] = word;
    } else if (word.starts_with('-') && word.size() > 1) {
      const std::size_t equals = word.find('=');
      const CommandOption* option = find_option(*line.page, word.substr(0, equals));
      if (!option || option->value.empty()) continue;
      if (equals == std::string::npos)
        line.pending = option;
      else
        line.values[option->names.back()] = word.substr(equals + 1);
    } else if (const CommandPage* sub = line.page->subcommand(word)) {
      line.page = sub;
    } else {
      line.positionals.push_back(word);
    }
  }
  return line;
}

/// Collects candidates for words of one kind.
class Completion {
 public:
  Completion(const CommandPage& root, const Line& line, Context& context)
      : root_(root), line_(line), context_(context) {}

  void subcommands(const CommandPage& page) {
    for (const CommandPage& sub : page.subcommands) add(sub.word(), sub.summary);
  }
  void flags() {
    for (const CommandOption& option : line_.page->options)
      if (!option.positional && !line_.values.contains(option.names.back()))
        add(option.names.back(), option.text);
  }
  /// Completes a value by its placeholder in --help.
  void values(const CommandOption& option, const std::string& typed) {
    const std::string& kind = option.value;
    if (kind == "NAME|FILE") return shell_offers = ":files", templates();
    if (kind.find('|') != std::string::npos) return choices(kind, '|');
    if (kind == "LEVEL") return choices("trace,debug,info,warning,error,off", ',');
    if (kind.starts_with("KIND")) return choices("cubin,ptx,sass", ',');
    if (kind.starts_with("ARCH")) return choices("sm_80,sm_86,sm_89,sm_90a,sm_100a,sm_103a,sm_120a", ',');
    if (kind == "ID") return findings();
    if (kind.starts_with("NAME")) return templates();
    if (kind.starts_with("P=V")) return parameters(typed);
    if (kind.starts_with("KEY")) return keys();
    if (kind == "HEX") return toolchains();
    if (kind == "COMMAND") return subcommands(root_);
    if (kind.starts_with("DIR")) shell_offers = ":dirs";
    if (kind.find("FILE") != std::string::npos || kind.starts_with("PLAN") || kind.find("BUNDLE") == 0 ||
        kind.find(".html") != std::string::npos)
      shell_offers = ":files";
  }
  const CommandOption* positional() const {
    const CommandOption* last = nullptr;
    std::size_t left = line_.positionals.size();
    for (const CommandOption& option : line_.page->options) {
      if (!option.positional) continue;
      last = &option;
      if (left-- == 0) return last;
    }
    return last && last->repeated ? last : nullptr;
  }

  std::vector<Candidate> found;
  const char* shell_offers = ":";

 private:
  void add(std::string word, const std::string& text) {
    found.push_back({std::move(word), text.substr(0, text.find('\n'))});
  }
  void choices(const std::string& list, char separator) {
    for (const std::string& one : base::split(list, separator)) add(one, "");
  }
  void templates() {
    source::Catalog catalog = catalog_of(context_.config().template_directories());
    for (const std::string& name : catalog.names()) add(name, "template");
  }
  void findings() {
    for (const std::string_view id : kLintIds) add(std::string(id), "");
  }
  /// Offers "T=" first, then the values of a parameter that has a list of values.
  void parameters(const std::string& typed) {
    const auto chosen = line_.values.find("--template");
    const std::string name = chosen != line_.values.end() ? chosen->second
                             : line_.positionals.empty()  ? std::string()
                                                          : line_.positionals.front();
    source::Catalog catalog = catalog_of(context_.config().template_directories());
    const auto origin = catalog.open(name);
    const std::size_t equals = typed.find('=');
    for (const source::ParameterSpec& parameter : origin->manifest.parameters) {
      if (equals == std::string::npos)
        add(parameter.name + '=', parameter.doc);
      else if (parameter.name == typed.substr(0, equals) && parameter.kind == source::ParameterKind::boolean)
        for (const char* value : {"true", "false"}) add(parameter.name + '=' + value, parameter.doc);
      else if (parameter.name == typed.substr(0, equals))
        for (const auto& choice : parameter.choices) add(parameter.name + '=' + choice.name, parameter.doc);
    }
  }
  std::vector<StoredEntry> entries() {
    const StoreView view = view_store(context_.config());
    return view.store ? read_entries(*view.store) : std::vector<StoredEntry>();
  }
  void keys() {
    const std::vector<StoredEntry> all = entries();
    const KeyNames names = names_of(all);
    for (const StoredEntry& entry : all)
      add(names.of(entry.key), entry.facts.specialization().to_string() + ' ' + entry.facts.arch);
  }
  /// Offers the toolchains that made the cached entries.
  void toolchains() {
    std::map<std::string, std::string> versions;
    for (const StoredEntry& entry : entries())
      versions[entry.key.toolchain.hex().substr(0, 12)] = entry.facts.compiler_version;
    for (const auto& [digits, version] : versions) add(digits, "NVRTC " + version);
  }

  const CommandPage& root_;
  const Line& line_;
  Context& context_;
};

int complete(const CommandPage& root, Context& context, const std::vector<std::string>& given_words) noexcept
    try {
  const std::vector<std::string> words = joined(given_words);
  const std::string typed = words.empty() ? std::string() : words.back();
  // The shell replaces only the text after the last space of a joined word.
  const std::size_t already = words.empty() ? 0 : typed.size() - given_words.back().size();
  const Line line = understand(root, words);
  const auto given = [&](const char* name, std::string& out) {
    if (const auto found = line.values.find(name); found != line.values.end()) out = found->second;
  };
  given("--cache-dir", context.cache_dir);
  given("--template-path", context.template_path);
  context.log_level = "off";
  Completion completion(root, line, context);
  std::string before;  // the beginning of a word such as --arch=sm_9
  if (line.pending) {
    completion.values(*line.pending, typed);
  } else if (const std::size_t equals = typed.find('='); typed.starts_with('-') && equals != typed.npos) {
    before = typed.substr(0, equals + 1);
    if (const CommandOption* option = find_option(*line.page, typed.substr(0, equals)))
      completion.values(*option, typed.substr(equals + 1));
  } else if (typed.starts_with('-')) {
    completion.flags();
  } else if (!line.page->subcommands.empty()) {
    completion.subcommands(*line.page);
  } else if (const CommandOption* positional = completion.positional()) {
    completion.values(*positional, typed);
  }
  std::string out = std::string(completion.shell_offers) + '\n';
  for (const Candidate& candidate : completion.found) {
    const std::string word = before + candidate.word;
    if (word.starts_with(typed)) out += word.substr(already) + '\t' + candidate.text + '\n';
  }
  print(out);
  return kDone;
} catch (const std::exception&) {
  print(":\n");
  return kDone;
}

}  // namespace

void add_complete(Command app, Context& context) {
  context.add_hidden_command(kCompleteCommand, std::nullopt,
                             [app, &context](const std::vector<std::string>& words) {
                               return complete(describe(app), context, words);
                             });
}

}  // namespace kiln::cli
