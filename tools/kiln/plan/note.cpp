#include "tools/kiln/plan/note.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/file.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"
#include "kiln/kiln.h"
#include "tools/kiln/cli/outcome.hpp"

namespace kiln::cli {
namespace {

using State = TaskResult::State;

constexpr const char* kFormat = "kiln.prewarm-run/1";
constexpr double kLongest = 1e9;     // ms: eleven days
constexpr double kLastTime = 1e14;   // ms since 1970
constexpr std::size_t kText = 4096;  // longest text field, in bytes
constexpr int kDeepest = 3;          // levels of the JSON: the object, its tasks, a task
constexpr std::uint64_t kMostCounted = 1'000'000'000;

std::string file_of(const std::string& directory) { return directory + "/v1/prewarm.json"; }

Json task_json(const NotedTask& t) {
  return {{"template", t.template_name},
          {"params", t.params},
          {"arch", t.arch},
          {"key", t.key},
          {"outcome", t.outcome},
          {"lane", t.lane},
          {"start_ms", rounded(t.start_ms)},
          {"total_ms", rounded(t.total_ms)},
          {"compile_ms", rounded(t.compile_ms)},
          {"frontend_ms", rounded(t.frontend_ms)},
          {"nvvm_ms", rounded(t.nvvm_ms)},
          {"ptxas_ms", rounded(t.ptxas_ms)}};
}

/// Reads fields of an object and checks each; throws Error(io) that names the field.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {
    if (!object.is_object()) throw Error(Errc::io, "not an object");
  }
  double number(const char* name, double most) const {
    const Json& value = at(name);
    const double out = value.is_number() ? value.get<double>() : -1;
    if (!(out >= 0 && out <= most)) fail(name);
    return out;
  }
  std::uint64_t count(const char* name, std::uint64_t most = kMostCounted) const {
    const Json& value = at(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) fail(name);
    return value.get<std::uint64_t>();
  }
  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kText) fail(name);
    return value.get<std::string>();
  }
  bool flag(const char* name) const {
    if (!at(name).is_boolean()) fail(name);
    return at(name).get<bool>();
  }
  const Json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(name);
    return *found;
  }
  [[noreturn]] static void fail(const char* name) {
    throw Error(Errc::io, std::string("its field '") + name + "' is missing or out of range");
  }

 private:
  const Json& object_;
};

NotedTask task_of(const Json& json) {
  const Fields in(json);
  NotedTask out;
  out.template_name = in.text("template"), out.params = in.text("params"), out.arch = in.text("arch");
  out.key = in.text("key"), out.outcome = in.text("outcome");
  out.lane = static_cast<int>(in.count("lane", 1023));
  out.start_ms = in.number("start_ms", kLongest), out.total_ms = in.number("total_ms", kLongest);
  out.compile_ms = in.number("compile_ms", kLongest), out.frontend_ms = in.number("frontend_ms", kLongest);
  out.nvvm_ms = in.number("nvvm_ms", kLongest), out.ptxas_ms = in.number("ptxas_ms", kLongest);
  return out;
}

NotedRun run_of(const Json& json) {
  const Fields in(json);
  if (in.text("format") != kFormat) throw Error(Errc::io, "it is of another version of kiln");
  NotedRun out;
  out.version = in.text("version");
  out.started_ms = in.number("started_ms", kLastTime), out.wall_ms = in.number("wall_ms", kLongest);
  if (!in.at("cpu_ms").is_null()) out.cpu_ms = in.number("cpu_ms", kLongest * 1024);
  out.jobs = static_cast<int>(in.count("jobs", 1024));
  out.total = in.count("total"), out.from_disk = in.count("from_disk"), out.compiled = in.count("compiled");
  out.waited = in.count("waited"), out.failed = in.count("failed");
  out.not_started = in.count("not_started"), out.left_out = in.count("left_out");
  out.interrupted = in.flag("interrupted");
  const Json& tasks = in.at("tasks");
  if (!tasks.is_array() || tasks.size() > kNotedTasks) Fields::fail("tasks");
  for (const Json& task : tasks) out.tasks.push_back(task_of(task));
  return out;
}

}  // namespace

NotedRun noted_run(const PrewarmPlan& plan, const PrewarmResult& result) {
  NotedRun out;
  out.version = kiln_version();
  out.started_ms = result.started_ms, out.wall_ms = result.wall_ms, out.cpu_ms = result.cpu_ms;
  out.jobs = result.jobs;
  out.total = plan.tasks.size();
  out.compiled = result.count(Outcome::compiled), out.waited = result.count(Outcome::waited);
  out.from_disk = result.succeeded() - out.compiled - out.waited;
  out.failed = result.failed(), out.not_started = result.count(State::not_started);
  out.interrupted = result.interrupted;
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    const TaskResult& t = result.tasks[i];
    if (t.state == State::not_started) continue;
    const bool done = t.state == State::done;
    const Specialization& what = plan.tasks[i].specialization();
    out.tasks.push_back({what.template_name, text_of(what.parameters), plan.tasks[i].resolved.arch.name(),
                         done ? t.key.hex() : std::string(),
                         std::string(done ? name_of(t.outcome) : "failed"), t.lane, t.start_ms, t.total_ms,
                         t.compile_ms, t.frontend_ms, t.nvvm_ms, t.ptxas_ms});
  }
  std::stable_sort(out.tasks.begin(), out.tasks.end(),
                   [](const NotedTask& a, const NotedTask& b) { return a.start_ms < b.start_ms; });
  return out;
}

double rounded(double ms) noexcept { return std::round(ms * 1000) / 1000; }

Json figures_json(const NotedRun& run) {
  return {{"wall_ms", rounded(run.wall_ms)},
          {"cpu_ms", run.cpu_ms ? Json(rounded(*run.cpu_ms)) : Json(nullptr)},
          {"jobs", run.jobs},
          {"total", run.total},
          {"from_disk", run.from_disk},
          {"compiled", run.compiled},
          {"waited", run.waited},
          {"failed", run.failed},
          {"not_started", run.not_started}};
}

void write_note(const std::string& directory, NotedRun run) noexcept try {
  if (run.compiled + run.waited + run.failed == 0) return;
  if (run.tasks.size() > kNotedTasks) {
    run.left_out = run.tasks.size() - kNotedTasks;
    run.tasks.erase(run.tasks.begin(), run.tasks.end() - kNotedTasks);
  }
  Json out{{"format", kFormat}, {"version", run.version}, {"started_ms", std::round(run.started_ms)}};
  out.update(figures_json(run));
  out["interrupted"] = run.interrupted;
  out["left_out"] = run.left_out;
  out["tasks"] = Json::array();
  for (const NotedTask& task : run.tasks) out["tasks"].push_back(task_json(task));
  base::write_file(file_of(directory), out.dump(-1, ' ', false, Json::error_handler_t::replace), 0600);
} catch (const std::exception& error) {
  base::debug(std::string("this prewarm could not be noted for 'kiln report': ") + error.what());
}

Note read_note(const std::string& directory) {
  const std::string file = file_of(directory);
  struct stat st {};
  if (::lstat(file.c_str(), &st) != 0)
    return {{}, errno == ENOENT || errno == ENOTDIR ? "" : std::string(std::strerror(errno))};
  if (!S_ISREG(st.st_mode)) return {{}, "it is no regular file"};
  const auto content = base::read_file(file, kNoteBytes);
  if (!content) return {{}, std::strerror(errno)};
  // Deeper levels are dropped while parsing, because they would take far more memory than the file.
  const Json json = Json::parse(
      content->bytes, [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; }, false);
  if (json.is_discarded()) return {{}, "it is no JSON"};
  try {
    return {run_of(json), {}};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

}  // namespace kiln::cli
