#include "tools/kiln_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "support/places.hpp"
#include "toolchain/locate.hpp"
#include "tools/schema.hpp"

namespace kiln::test {

const char* const kScaleManifest = R"toml(format = 1
[template]
name = "scale"
source = "scale.cu"
instantiate = "scale<{N}, {FLAG}>"
summary = "multiplies by N"
formula = "y = N * x"
[param.N]
kind = "int"
range = [1, 64]
doc = "the factor"
[param.FLAG]
kind = "bool"
default = false
doc = "adds one"
[[require]]
expr = "N != 13"
message = "N = {N} is unlucky"
[[arg]]
name = "x"
type = "ptr<f32>"
access = "readwrite"
shape = ["n"]
doc = "the data"
[[arg]]
name = "n"
type = "i32"
value = 1024
doc = "elements"
[launch]
grid = ["ceil_div(n, 256)"]
block = ["256"]
[[prewarm]]
N = [1, 2, 3]
)toml";

namespace {
constexpr const char* kScaleSource = R"cu(template <int N, bool FLAG> __global__ void scale(float* x, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) x[i] = x[i] * N + (FLAG ? 1 : 0);
}
)cu";
constexpr const char* kPickyManifest = R"toml(format = 1
[template]
name = "picky"
source = "picky.cu"
instantiate = "picky<{N}>"
summary = "does not like 2"
arch = { min = "sm_90" }
[param.N]
kind = "int"
range = [1, 9]
[launch]
grid = ["1"]
block = ["1"]
)toml";
constexpr const char* kPickySource =
    "template <int N> __global__ void picky() { static_assert(N != 2, \"two is refused\"); }\n";

std::string read(const std::string& path) {
  const auto content = base::read_file(path);
  return content ? content->bytes : std::string();
}

}  // namespace

nlohmann::json Finished::json() const {
  const auto parsed = nlohmann::json::parse(out, nullptr, false);
  if (parsed.is_object()) {
    EXPECT_EQ(breach_of_schema(parsed), "") << out;
    return parsed;
  }
  ADD_FAILURE() << "no JSON object on stdout:\n" << out << "\nstderr:\n" << err;
  return {};
}

Running::Running(const std::string& scratch, const Arguments& arguments, const Environment& environment) {
  static std::atomic<int> count{0};
  const std::string base = scratch + "/run" + std::to_string(++count);
  out_path_ = base + ".out", err_path_ = base + ".err";
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) settings.push_back(name + '=' + value);
  std::vector<char*> argv{const_cast<char*>(places::kCommand)}, envp;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  for (const std::string& s : settings) envp.push_back(const_cast<char*>(s.c_str()));
  argv.push_back(nullptr), envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_addchdir_np(&actions, scratch.c_str());
  if (::posix_spawn(&pid_, places::kCommand, &actions, nullptr, argv.data(), envp.data()) != 0) pid_ = -1;
  ::posix_spawn_file_actions_destroy(&actions);
  EXPECT_GT(pid_, 0) << places::kCommand;
}

Running::~Running() {
  if (pid_ > 0) wait();
}

void Running::send(int signal) const { ::kill(pid_, signal); }

std::string Running::out() const { return read(out_path_); }

Finished Running::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), read(out_path_),
          read(err_path_)};
}

KilnCommand::KilnCommand() : scratch_("kiln-tools-test") {
  ::mkdir(path("templates").c_str(), 0700);
  write("templates/scale.toml", kScaleManifest);
  write("templates/scale.cu", kScaleSource);
  write("templates/picky.toml", kPickyManifest);
  write("templates/picky.cu", kPickySource);
}

KilnCommand::~KilnCommand() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::recursive_directory_iterator place(scratch_.path(), ignored), end; place != end;
       place.increment(ignored)) {
    struct stat st {};
    if (place->path().filename() != "v1" || ::stat(place->path().c_str(), &st) != 0) continue;
    const std::string name = "/dev/shm/kiln-" + std::to_string(::getuid()) + '-' + std::to_string(st.st_dev) +
                             '-' + std::to_string(st.st_ino);
    for (const char* kind : {".flight", ".board"}) ::unlink((name + kind).c_str());
  }
}

Environment KilnCommand::environment() const {
  Environment out{{"HOME", path("home")},
                  {"TMPDIR", scratch_.path()},
                  {"KILN_CACHE_DIR", cache()},
                  {"KILN_TEMPLATE_PATH", path("templates")}};
  for (const char* name : {"PATH", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "KILN_CUDA_HOME",
                           "VIRTUAL_ENV", "ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) out[name] = value;
  }
  return out;
}

std::unique_ptr<Running> KilnCommand::start(const Arguments& arguments, const Environment& more) {
  Environment all = environment();
  for (const auto& [name, value] : more) all[name] = value;
  return std::make_unique<Running>(scratch_.path(), arguments, all);
}

Finished KilnCommand::kiln(const Arguments& arguments, const Environment& more) {
  return start(arguments, more)->wait();
}

void KilnCompiler::SetUp() {
  const char* home = std::getenv("KILN_CUDA_HOME");
  if (!toolchain::locate_toolkit({home ? home : "", true}).has_compiler())
    GTEST_SKIP() << "no NVRTC found on this machine";
}

}  // namespace kiln::test
