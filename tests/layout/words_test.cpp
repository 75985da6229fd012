// docs/glossary.md holds: a word stands only in identifiers of the folders that the
// glossary gives for its meaning.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/places.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path kSources = kiln::places::kSourceDirectory;

/// The words that once had several meanings. A term of two words in the table, such as "hash slot", is looked
/// for first and has its own folders.
const std::set<std::string> kWatched = {"slot", "plan", "entry", "record", "unit", "place", "tier"};

using Words = std::vector<std::string>;

/// The words of an identifier or a term: "kHashSlots" and "hash_slots" have "hash" and "slots".
Words words_in(std::string_view name) {
  const auto is = [&](int (*kind)(int), std::size_t at) {
    return at < name.size() && kind(static_cast<unsigned char>(name[at])) != 0;
  };
  Words out;
  bool fresh = true;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!is(std::isalnum, i)) {
      fresh = true;
      continue;
    }
    if (is(std::isupper, i) && i > 0 && (!is(std::isupper, i - 1) || is(std::islower, i + 1))) fresh = true;
    if (fresh) out.emplace_back();
    fresh = false;
    out.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

std::string singular(const std::string& word) {
  if (word == "entries") return "entry";
  return word.ends_with('s') ? word.substr(0, word.size() - 1) : word;
}

/// A file's code with blanks for comments, literals, numbers and the names of included files.
std::string only_code(std::string text) {
  const auto blank = [&](std::size_t begin, std::size_t end) {
    end = std::min(end, text.size());
    for (std::size_t i = begin; i < end; ++i)
      if (text[i] != '\n') text[i] = ' ';
    return end;
  };
  const auto after = [&](std::string_view what, std::size_t from) {
    const std::size_t found = text.find(what, from);
    return found == std::string::npos ? text.size() : found + what.size();
  };
  const auto is_name = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.starts_with("//")) {
      i = blank(i, text.find('\n', i));
    } else if (rest.starts_with("/*")) {
      i = blank(i, after("*/", i + 2));
    } else if (rest.starts_with("#include")) {
      i = blank(i, text.find('\n', i));
    } else if (rest.starts_with("R\"")) {
      const std::size_t open = text.find('(', i);
      i = blank(i, after(')' + text.substr(i + 2, open - i - 2) + '"', open));
    } else if (text[i] == '"' || text[i] == '\'') {
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
      i = blank(i, end + 1);
    } else if (std::isdigit(static_cast<unsigned char>(text[i]))) {
      std::size_t end = i;
      while (is_name(end) || (end < text.size() && (text[end] == '.' || text[end] == '\''))) ++end;
      i = blank(i, end);
    } else if (is_name(i)) {
      while (is_name(i)) ++i;
    } else {
      ++i;
    }
  }
  return text;
}

std::set<std::string> identifiers_in(std::string text) {
  const std::string code = only_code(std::move(text));
  std::set<std::string> out;
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t i = 0; i < code.size(); ++i) {
    std::size_t end = i;
    while (end < code.size() && is_name(code[end])) ++end;
    if (end > i) out.insert(code.substr(i, end - i)), i = end;
  }
  return out;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The rows of the glossary's table: terms, and the folders that may use each term.
class Glossary {
 public:
  explicit Glossary(const std::string& page) {
    for (std::size_t at = 0; at < page.size();) {
      const std::size_t end = std::min(page.find('\n', at), page.size());
      add_row(page.substr(at, end - at));
      at = end + 1;
    }
  }

  const std::map<Words, std::set<std::string>>& rows() const { return rows_; }

  /// The terms in an identifier that the folder may not use.
  std::vector<std::string> misused(const std::string& identifier, const std::string& folder) const {
    Words words = words_in(identifier);
    for (std::string& word : words) word = singular(word);
    std::vector<std::string> out;
    for (std::size_t i = 0; i < words.size();) {
      Words term = {words[i]};
      if (i + 1 < words.size() && rows_.contains({words[i], words[i + 1]})) term.push_back(words[i + 1]);
      const bool watched = kWatched.contains(term.front()) || kWatched.contains(term.back());
      if (watched && !may_use(term, folder))
        out.push_back(term.size() == 1 ? term[0] : term[0] + ' ' + term[1]);
      i += term.size();
    }
    return out;
  }

 private:
  void add_row(const std::string& line) {
    std::vector<std::string> cells;
    for (std::size_t at = 0; line.starts_with('|') && at + 1 < line.size();) {
      const std::size_t end = std::min(line.find('|', at + 1), line.size());
      cells.push_back(line.substr(at + 1, end - at - 1));
      at = end;
    }
    if (cells.size() != 3) return;
    std::set<std::string>& folders = rows_[words_in(cells[0])];
    for (std::size_t at = 0; at < cells[2].size();) {
      const std::size_t end = std::min(cells[2].find(',', at), cells[2].size());
      std::string folder = cells[2].substr(at, end - at);
      std::erase_if(folder, [](char c) { return c == ' ' || c == '`'; });
      if (!folder.empty()) folders.insert(folder);
      at = end + 1;
    }
  }
  bool may_use(const Words& term, const std::string& folder) const {
    const auto row = rows_.find(term);
    if (row == rows_.end()) return false;
    for (const std::string& allowed : row->second)
      if (allowed == "all" || (folder + '/').starts_with(allowed + '/')) return true;
    return false;
  }

  std::map<Words, std::set<std::string>> rows_;
};

Glossary glossary() { return Glossary(text_of(kSources / "docs/glossary.md")); }

std::vector<fs::path> code_files() {
  std::vector<fs::path> out;
  for (const char* top : {"src", "cache", "include", "tools"}) {
    for (const auto& file : fs::recursive_directory_iterator(kSources / top)) {
      const std::string extension = file.path().extension().string();
      if (extension == ".cpp" || extension == ".hpp" || extension == ".h") out.push_back(file.path());
    }
  }
  return out;
}

/// Names of several words in the public interface. The code behind the interface may use them, too.
std::set<std::string> public_names() {
  std::set<std::string> out;
  for (const auto& file : fs::directory_iterator(kSources / "include/kiln"))
    for (const std::string& name : identifiers_in(text_of(file.path())))
      if (words_in(name).size() > 1) out.insert(name);
  return out;
}

bool is_of_cuda(const std::string& name) {
  return name.size() > 2 && name.starts_with("cu") && std::isupper(static_cast<unsigned char>(name[2])) != 0;
}

}  // namespace

TEST(Words, StandInIdentifiersOfTheFoldersThatTheGlossaryGivesThem) {
  const Glossary table = glossary();
  const std::set<std::string> fixed = public_names();
  ASSERT_GT(fixed.size(), 300u);
  std::size_t identifiers = 0;
  for (const fs::path& file : code_files()) {
    const fs::path relative = fs::relative(file, kSources);
    for (const std::string& name : identifiers_in(text_of(file))) {
      ++identifiers;
      if (fixed.contains(name) || is_of_cuda(name)) continue;
      for (const std::string& word : table.misused(name, relative.parent_path().string()))
        ADD_FAILURE() << relative << ": " << name << " says '" << word
                      << "', which docs/glossary.md does not give to this folder";
    }
  }
  EXPECT_GT(identifiers, 10000u);
}

TEST(Words, TheGlossaryNamesFoldersThatExist) {
  const Glossary table = glossary();
  ASSERT_GT(table.rows().size(), 20u);
  for (const std::string& word : kWatched) EXPECT_TRUE(table.rows().contains({word})) << word;
  for (const auto& [term, folders] : table.rows()) {
    if (term == Words{"word"} || term.empty()) continue;  // the head of the table
    for (const std::string& folder : folders)
      EXPECT_TRUE(folder == "all" || fs::is_directory(kSources / folder)) << term.front() << ": " << folder;
  }
}

TEST(Words, AWordInAFolderThatIsNotListedIsFound) {
  const Glossary table(
      "| word | meaning | folders |\n|---|---|---|\n"
      "| slot | an index | `src/a`, `src/b` |\n| hash slot | of Redis | `cache/redis` |\n| entry | a kernel "
      "| all |\n");
  const Words none, slot = {"slot"}, hash_slot = {"hash slot"};
  EXPECT_EQ(table.misused("slot_of", "src/a"), none);
  EXPECT_EQ(table.misused("slot_of", "src/b/below"), none);
  EXPECT_EQ(table.misused("slot_of", "src/ab"), slot);
  EXPECT_EQ(table.misused("kMaxSlots", "cache"), slot);
  EXPECT_EQ(table.misused("free_slots_", "cache"), slot);
  EXPECT_EQ(table.misused("HTTPSlot", "cache"), slot);
  EXPECT_EQ(table.misused("slotted", "cache"), none);
  EXPECT_EQ(table.misused("kHashSlots", "cache/redis"), none);
  EXPECT_EQ(table.misused("hash_slot_of", "src/a"), hash_slot);
  EXPECT_EQ(table.misused("hash_of_slot", "cache/redis"), slot);
  EXPECT_EQ(table.misused("entries", "cache"), none);
  EXPECT_EQ(table.misused("unit", "cache"), Words{"unit"});  // the table has no row for "unit"
}

TEST(Words, AreLookedForInCodeAlone) {
  EXPECT_EQ(identifiers_in(
                "#include \"a/slot.hpp\"\nint a = f(\"slot\", 'p', 0x1p-53, 1'000u);  // slot\n"
                "/* slot\n slot */ auto b = R\"x(slot \" )\" slot)x\"; char c = '\"'; Slot d{\"\\\"slot\"};"),
            (std::set<std::string>{"int", "a", "f", "auto", "b", "char", "c", "Slot", "d"}));
}
