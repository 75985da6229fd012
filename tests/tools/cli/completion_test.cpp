// Completion and man pages. Both come from the real commands, and completion runs in real shells.
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class Completion : public KilnCommand {
 protected:
  /// Returns the candidates for the last word. `offers` receives the other offers to the shell.
  std::set<std::string> candidates(Arguments words, std::string* offers = nullptr) {
    words.insert(words.begin(), "__complete");
    const Finished r = kiln(words);
    EXPECT_EQ(r.status, 0);
    EXPECT_EQ(r.err, "");
    std::istringstream lines(r.out);
    std::string first;
    std::getline(lines, first);
    if (offers) *offers = first;
    std::set<std::string> out;
    for (std::string line; std::getline(lines, line);) out.insert(line.substr(0, line.find('\t')));
    return out;
  }
  using Set = std::set<std::string>;
};

TEST_F(Completion, OffersSubcommandsAndTheirSubcommands) {
  EXPECT_EQ(candidates({"pre"}), Set{"prewarm"});
  EXPECT_EQ(candidates({"bundle", "ex"}), Set{"export"});
  EXPECT_GT(candidates({""}).size(), 15u);
}

TEST_F(Completion, OffersFlagsThatWereNotGiven) {
  EXPECT_EQ(candidates({"prewarm", "--ke"}), Set{"--keep-going"});
  EXPECT_TRUE(candidates({"ls", "--arch", "sm_90a", "--"}).contains("--template"));
  EXPECT_FALSE(candidates({"ls", "--arch", "sm_90a", "--"}).contains("--arch"));
}

TEST_F(Completion, OffersTemplatesParametersAndTheirValues) {
  EXPECT_EQ(candidates({"compile", "sc"}), Set{"scale"});
  EXPECT_EQ(candidates({"compile", "scale", ""}), (Set{"FLAG=", "N="}));
  EXPECT_EQ(candidates({"compile", "rms_norm", "T="}), (Set{"T=bf16", "T=f16", "T=f32"}));
  EXPECT_EQ(candidates({"compile", "scale", "FLAG=t"}), Set{"FLAG=true"});
}

TEST_F(Completion, GoesOnBehindSpacesAroundTheEqualsSign) {
  EXPECT_EQ(candidates({"compile", "rms_norm", "T", "=", "b"}), Set{"bf16"});
  EXPECT_EQ(candidates({"compile", "rms_norm", "T", "=", ""}), (Set{"bf16", "f16", "f32"}));
  EXPECT_EQ(candidates({"compile", "rms_norm", "T", "="}), (Set{"=bf16", "=f16", "=f32"}));
  EXPECT_EQ(candidates({"compile", "rms_norm", "T", "=", "bf16", "VE"}), Set{"VEC="});
}

TEST_F(Completion, OffersTheValuesOfAFlag) {
  EXPECT_EQ(candidates({"ls", "--arch", "sm_9"}), Set{"sm_90a"});
  EXPECT_EQ(candidates({"ls", "--arch=sm_9"}), Set{"--arch=sm_90a"});
  EXPECT_EQ(candidates({"ls", "--log-level", "w"}), Set{"warning"});
  EXPECT_EQ(candidates({"completion", "z"}), Set{"zsh"});
}

TEST_F(Completion, LeavesFilesAndDirectoriesToTheShell) {
  std::string offers;
  candidates({"prewarm", ""}, &offers);
  EXPECT_EQ(offers, ":files");
  candidates({"prewarm", "--layer", ""}, &offers);
  EXPECT_EQ(offers, ":dirs");
}

TEST_F(Completion, SaysNothingWhereNothingIsKnown) {
  EXPECT_EQ(candidates({"compile", "nowhere", ""}), Set{});
  EXPECT_EQ(candidates({"frobnicate", ""}).size(), candidates({""}).size());
  EXPECT_EQ(candidates({"show", ""}), Set{});
  EXPECT_EQ(candidates({}).size(), candidates({""}).size());
}

class CachedCompletion : public Completion {
 protected:
  void SetUp() override {
    if (kiln({"compile", "scale", "N=1"}).status != 0) GTEST_SKIP() << "no compiler here";
  }
};

TEST_F(CachedCompletion, OffersKeys) {
  const std::string key = kiln({"ls", "--json"}).json()["entries"][0]["key"];
  EXPECT_EQ(candidates({"show", key.substr(0, 3)}), Set{key.substr(0, 12)});
  EXPECT_EQ(candidates({"show", "--cache-dir", path("elsewhere"), ""}), Set{});
}

/// Completion in a real shell: the text that the shell would put on the line.
class Shell : public Completion {
 protected:
  std::string run(const std::string& shell, const std::string& script) {
    const std::string file = path("script"), out = path("shell.out");
    write("script", script);
    std::string command =
        "PATH=" + std::string(places::kCommand).substr(0, std::string(places::kCommand).rfind('/')) +
        ":$PATH";
    for (const auto& [name, value] : environment())
      if (name.starts_with("KILN_")) command += ' ' + name + "='" + value + '\'';
    EXPECT_EQ(std::system((command + ' ' + shell + ' ' + file + " > " + out + " 2>&1").c_str()), 0);
    return base::read_file(out)->bytes;
  }
  static bool there(const std::string& shell) {
    return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0;
  }
};

TEST_F(Shell, BashCompletesParametersBehindTheEqualsSign) {
  const std::string script = kiln({"completion", "bash"}).out;
  const auto reply = [&](const std::string& line) {
    return run("bash", script + "compopt() { :; }\nCOMP_LINE='" + line + "' COMP_POINT=" +
                           std::to_string(line.size()) + "\n_kiln; printf '%s,' \"${COMPREPLY[@]}\"\n");
  };
  EXPECT_EQ(reply("kiln comp"), "compile,completion,");
  EXPECT_EQ(reply("kiln compile rms_norm T="), "f32,f16,bf16,");
  EXPECT_EQ(reply("kiln compile rms_norm T=b"), "bf16,");
  EXPECT_EQ(reply("kiln compile rms_norm T = b"), "bf16,");
  EXPECT_EQ(reply("kiln compile scale "), "N=,FLAG=,");
  EXPECT_EQ(reply("kiln ls --arch=sm_9"), "sm_90a,");
}

TEST_F(Shell, ZshTakesTheScript) {
  if (!there("zsh")) GTEST_SKIP() << "no zsh here";
  const std::string script = kiln({"completion", "zsh"}).out;
  const std::string out =
      run("zsh -f", "autoload -U compinit; compinit -u -D\n" + script +
                        "_describe() { print -r -- ${(P)4} }\nwords=(kiln comp) CURRENT=2\n_kiln\n");
  EXPECT_NE(out.find("compile:Compile one specialisation"), std::string::npos) << out;
}

TEST_F(Shell, FishTakesTheScript) {
  if (!there("fish")) GTEST_SKIP() << "no fish here";
  const std::string script = kiln({"completion", "fish"}).out;
  const std::string out = run("fish -N", script + "complete -C 'kiln compile rms_norm T=b'\n");
  EXPECT_NE(out.find("T=bf16"), std::string::npos) << out;
}

/// Man pages. pages() writes all of them and returns the names of their files.
class Man : public KilnCommand {
 protected:
  std::vector<std::string> pages() {
    std::filesystem::create_directories(path("man"));
    return kiln({"man", "--all", path("man"), "--json"}).json()["files"];
  }
};

TEST_F(Man, HasAPageForEveryCommandWithEveryFlag) {
  std::size_t flags = 0;
  for (const std::string& page : pages()) {
    std::string name = page.substr(page.rfind('/') + 1);
    name.resize(name.size() - 2);
    Arguments command;
    std::istringstream words(name);
    for (std::string word; std::getline(words, word, '-');) command.push_back(word);
    command.erase(command.begin()), command.push_back("--help");
    const std::string help = kiln(command).out, roff = base::read_file(page)->bytes;
    for (std::size_t at = 0; (at = help.find("  --", at)) != std::string::npos; ++flags) {
      std::string flag = help.substr(at + 2, help.find_first_of(" ,\n", at + 2) - at - 2);
      at += flag.size();
      for (std::size_t minus = 0; (minus = flag.find('-', minus)) != std::string::npos; minus += 2)
        flag.insert(minus, "\\");
      EXPECT_NE(roff.find("\\fB" + flag + "\\fR"), std::string::npos) << name << ' ' << flag;
    }
  }
  EXPECT_GT(flags, 100u);
}

TEST_F(Man, PagesAreRoffWithoutWarnings) {
  if (std::system("command -v groff > /dev/null") != 0) GTEST_SKIP() << "no groff here";
  for (const std::string& page : pages()) {
    EXPECT_EQ(std::system(("test -z \"$(groff -man -ww -z -Tutf8 " + page + " 2>&1)\"").c_str()), 0) << page;
  }
}

TEST_F(Man, OfACommandOfACommandIsFoundByItsWords) {
  EXPECT_EQ(kiln({"man", "ls", "--json"}).json()["name"], "kiln-ls");
  const Finished r = kiln({"man", "lss"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("no command 'lss'"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace kiln::test
