// kiln prewarm where the number of threads and processes is limited.
#include <sys/resource.h>

#include <filesystem>

#include "support/places.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/sanitized.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

namespace fs = std::filesystem;

class PrewarmUnderALimitOfThreads : public KilnCompiler {
 protected:
  /// A user without other processes. The limit counts all threads of a user, and does not apply to root.
  const unsigned user_ = 100000 + static_cast<unsigned>(::getpid()) % 100000;

  void SetUp() override {
    KILN_NEEDS_ROOT();
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    fs::copy_file(places::kCommand, path("kiln"));  // the build may lie where only root can read
    fs::copy_file(std::string(places::kBuildDirectory) + "/kiln-worker", path("kiln-worker"));
    give(path(""));
    for (const auto& entry : fs::recursive_directory_iterator(path(""))) give(entry.path());
  }
  void TearDown() override { kiln::testing::remove_shared_memory_of(path("")); }
  void give(const std::string& file) const { ASSERT_EQ(::chown(file.c_str(), user_, user_), 0) << file; }

  /// Runs prewarm as a user who may have `threads` threads.
  std::string prewarm(unsigned threads, const std::string& plan, const std::string& store) {
    Environment all = environment();
    all["KILN_WORKER"] = path("kiln-worker"), all["KILN_CACHE_DIR"] = path(store);
    std::string settings;
    for (const auto& [name, value] : all) settings += name + "='" + value + "' ";
    const std::string command = "cd " + path("") + " && env -i " + settings + path("kiln") + " prewarm " +
                                plan + " -j 100 > out 2> err; echo $?";
    return kiln::testing::as_user(user_, [&] {
      std::string out;
      std::FILE* shell = nullptr;
      const rlimit limit{threads, threads};
      if (::setrlimit(RLIMIT_NPROC, &limit) != 0 || !(shell = ::popen(command.c_str(), "r"))) return out;
      for (int c; (c = std::fgetc(shell)) != EOF;) out += static_cast<char>(c);
      ::pclose(shell);
      return out;
    });
  }
};

TEST_F(PrewarmUnderALimitOfThreads, GoesOnWithThoseThereAre) {
  KILN_SKIP_SANITIZED("threads");
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = { from = 14, to = 43, step = 1 }\n");
  for (const unsigned limit : {12u, 28u}) {  // this test's own three threads count, too
    const std::string status = prewarm(limit, path("plan.toml"), "store" + std::to_string(limit));
    const std::string out = base::read_file(path("out"))->bytes, err = base::read_file(path("err"))->bytes;
    EXPECT_EQ(status, "0\n") << out << err;
    EXPECT_NE(out.find("30 of 30 specialisations: 0 from disk, 30 compiled"), std::string::npos) << out;
    EXPECT_NE(err.find("at once instead of 30: no more threads"), std::string::npos) << err;
  }
}

}  // namespace
}  // namespace kiln::test
