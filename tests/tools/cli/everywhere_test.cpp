// Rules for every command: it works on an empty cache, on a cache that
// cannot be written, and into a closed pipe.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "support/places.hpp"
#include "tests/support/other_user.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

struct Row {
  const char* name;
  Arguments arguments;    ///< KEY stands for the key of the one entry
  int on_empty, on_full;  ///< exit status without an entry, and with one
};

[[maybe_unused]] void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

const Row kRows[] = {
    {"Templates", {"templates"}, 0, 0},
    {"Lint", {"lint", "scale"}, 0, 0},
    {"CompileHit", {"compile", "scale", "N=1"}, 0, 0},
    {"Import", {"import", "SOURCE", "scale", "--print"}, 0, 0},
    {"PrewarmCheck", {"prewarm", "PLAN", "--check"}, 3, 0},
    {"Ls", {"ls"}, 0, 0},
    {"Show", {"show", "KEY"}, 1, 0},
    {"Why", {"why", "scale", "N=1"}, 3, 0},
    {"WhyMiss", {"why", "scale", "N=2"}, 3, 3},
    {"Diff", {"diff", "KEY", "KEY"}, 1, 0},
    {"Stats", {"stats"}, 0, 0},
    {"Prometheus", {"stats", "--prometheus"}, 0, 0},
    {"Top", {"top"}, 0, 0},
    {"Report", {"report", "-"}, 0, 0},
    {"Verify", {"verify"}, 0, 0},
    {"Audit", {"audit"}, 0, 0},
    {"BundleExport", {"bundle", "export", "-", "--all"}, 0, 0},
    {"TuneList", {"tune", "--list"}, 0, 0},
    {"Doctor", {"doctor"}, 0, 0},
};

class Everywhere : public KilnCompiler, public ::testing::WithParamInterface<Row> {
 protected:
  void fill() {
    ASSERT_EQ(kiln({"compile", "scale", "N=1"}).status, 0);
    key_ = kiln({"ls", "--json"}).json()["entries"][0]["key"];
  }
  Arguments arguments() {
    write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = 1\n");
    Arguments out = GetParam().arguments;
    for (std::string& word : out) {
      if (word == "KEY") word = key_;
      if (word == "PLAN") word = path("plan.toml");
      if (word == "SOURCE") word = path("templates/scale.cu");
    }
    return out;
  }
  std::string key_ = "0";
};

TEST_P(Everywhere, WorksOnAnEmptyCache) {
  const Finished r = kiln(arguments());
  EXPECT_EQ(r.status, GetParam().on_empty) << r.out << r.err;
  EXPECT_EQ(r.err.empty(), r.status == 0 || r.status == 3) << r.err;
}

/// A cache of root, read by a user who may not write it.
TEST_P(Everywhere, WorksOnACacheThatCannotBeWritten) {
  KILN_NEEDS_ROOT();
  fill();
  ::chmod(path("").c_str(), 0777);  // because the test itself writes there
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("templates")))
    ::chmod(entry.path().c_str(), entry.is_directory() ? 0755 : 0644);
  ::chmod(path("templates").c_str(), 0755);
  for (const char* place : {"", "/v1"}) ::chmod((cache() + place).c_str(), 0755);
  ::chmod((cache() + "/v1/data.mdb").c_str(), 0644);
  const auto words = arguments();
  const std::string before = base::read_file(cache() + "/v1/data.mdb")->bytes;
  const std::string said = testing::as_user(testing::kUser, [&] {
    const Finished r = kiln(words);
    return r.status == GetParam().on_full ? "as expected" : std::to_string(r.status) + ' ' + r.out + r.err;
  });
  EXPECT_EQ(said, "as expected");
  EXPECT_EQ(base::read_file(cache() + "/v1/data.mdb")->bytes, before);
}

TEST_P(Everywhere, LeavesQuietlyWhenNobodyReads) {
  fill();
  const Arguments words = arguments();
  const auto environment_of_test = environment();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);  // closed before the command can write
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::vector<std::string> settings;
    for (const auto& [name, value] : environment_of_test) settings.push_back(name + '=' + value);
    std::vector<char*> argv{const_cast<char*>(places::kCommand)}, envp;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    for (const std::string& setting : settings) envp.push_back(const_cast<char*>(setting.c_str()));
    argv.push_back(nullptr), envp.push_back(nullptr);
    ::dup2(ends[1], 1);
    ::dup2(::open(path("err").c_str(), O_WRONLY | O_CREAT, 0600), 2);
    ::execve(places::kCommand, argv.data(), envp.data());
    ::_exit(99);
  }
  ::close(ends[1]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(base::read_file(path("err"))->bytes, "");
}

INSTANTIATE_TEST_SUITE_P(Command, Everywhere, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kiln::test
