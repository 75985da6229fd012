// Helpers for tests that run the kiln command: a private cache, small templates, and the process.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.hpp"

namespace kiln::test {

using Arguments = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

struct Finished {
  int status = -1;  ///< exit status; 128 + signal when a signal ended it
  std::string out, err;

  /// `out` as JSON. Fails the test and returns null when `out` is not exactly one JSON object. Also
  /// fails when the object breaks docs/schema.
  nlohmann::json json() const;
};

/// A process that has been started. The destructor waits for it.
class Running {
 public:
  Running(const std::string& scratch, const Arguments& arguments, const Environment& environment);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  void send(int signal) const;
  /// Everything that it has written to stdout so far.
  std::string out() const;
  Finished wait();
  int pid() const noexcept { return pid_; }

 private:
  std::string out_path_, err_path_;
  int pid_ = -1;
};

/// Runs the kiln command in tests. No KILN_*, XDG_* or HOME of the host reaches the command.
class KilnCommand : public ::testing::Test {
 protected:
  KilnCommand();
  /// Also removes the lock files of the stores below the scratch directory, which lie in /dev/shm.
  ~KilnCommand() override;
  Environment environment() const;
  Finished kiln(const Arguments& arguments, const Environment& more = {});
  /// Starts the command and does not wait for it.
  std::unique_ptr<Running> start(const Arguments& arguments, const Environment& more = {});
  std::string path(const std::string& name) const { return scratch_.path() + '/' + name; }
  std::string cache() const { return path("cache"); }
  void write(const std::string& name, const std::string& text) const { base::write_file(path(name), text); }

 private:
  base::TempDir scratch_;
};

/// A KilnCommand for tests that need a compiler. They skip with a message where there is none.
class KilnCompiler : public KilnCommand {
 protected:
  void SetUp() override;
};

/// Two templates in the fixture's path.
/// - `scale`: N = 1..64, FLAG = false. It prewarms N = 1, 2, 3, and refuses N = 13 before compiling.
/// - `picky`: N = 1..9. The compiler refuses N = 2.
extern const char* const kScaleManifest;

}  // namespace kiln::test
