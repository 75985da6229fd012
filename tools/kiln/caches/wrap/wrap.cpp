// kiln wrap: runs a command with the caches of its JIT compilers restored before and captured after.
#include "tools/kiln/caches/wrap/wrap.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/caches/directory/push.hpp"
#include "tools/kiln/caches/directory/record.hpp"
#include "tools/kiln/caches/wrap/reports.hpp"
#include "tools/kiln/caches/wrap/run.hpp"
#include "tools/kiln/cli/child_process.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/store/python_start.hpp"

namespace kiln::cli {
namespace {

struct WrapArguments {
  std::vector<std::string> profiles, command;
  std::string python;
  bool push = false;
};

/// One profile of the command, and what became of its directory.
struct WrappedProfile {
  std::string name;
  bool found = false;
  std::uint64_t written = 0, files = 0, stored = 0;
  std::string not_restored, not_captured;  ///< the reasons; empty when it was
};

/// The profiles that are named, else all whose directory no cache of kiln's own replaces.
std::vector<std::string> profiles_of(const WrapArguments& arguments) {
  if (!arguments.profiles.empty()) {
    for (const std::string& name : arguments.profiles)
      if (!find_profile(name))
        throw Error(Errc::invalid_argument, "--profile: there is no profile '" + name + "'");
    return arguments.profiles;
  }
  std::vector<std::string> out;
  for (const Profile& profile : all_profiles())
    if (profile.served_by.empty()) out.push_back(profile.name);
  return out;
}

/// The interpreter whose packages count: the command, when it is a python, or the one of the virtual
/// environment that has the command.
std::string python_of(const WrapArguments& arguments) {
  if (!arguments.python.empty()) return arguments.python;
  std::string program = arguments.command.front();
  if (program.find('/') == std::string::npos) program = find_program(program, {});
  if (program.substr(program.rfind('/') + 1).starts_with("python")) return program;
  const std::string directory = base::directory_of(program);
  const bool is_environment = ::access((directory + "/../pyvenv.cfg").c_str(), R_OK) == 0;
  return is_environment ? directory + "/python" : std::string();
}

class Wrap {
 public:
  /// Throws Error(invalid_argument) for unknown profiles, and for --push without a tier that can be written to.
  Wrap(Context& context, const WrapArguments& arguments)
      : context_(context), arguments_(arguments), tier_(arguments.push ? writable_tier(context) : nullptr) {
    for (const std::string& name : profiles_of(arguments)) profiles_.emplace_back().name = name;
  }

  int run() {
    keep_ignored_signals();
    for (WrappedProfile& profile : profiles_) restore(profile);
    const base::TempDir reports("kiln-wrap-");
    const int status = run_wrapped(command(reports.path()));
    const WrapReports found = read_reports(reports.path());
    const PoliteInterrupt interrupt;
    if (status == 0) {
      for (WrappedProfile& profile : profiles_) capture(profile);
      if (tier_) push_blobs(found);
    } else {
      for (WrappedProfile& profile : profiles_) profile.not_captured = "the command failed";
    }
    print(status, found);
    return status == 0 && PoliteInterrupt::requested() ? kInterrupted : status;
  }

 private:
  /// The target of a profile. Nothing, with a reason, when its directory is not known.
  std::optional<Target> target(const WrappedProfile& profile, std::string& reason) {
    try {
      TargetArguments arguments;
      arguments.what = profile.name, arguments.python = python_of(arguments_);
      return target_of(arguments, context_);
    } catch (const Error& error) {
      reason = error.what();
      return std::nullopt;
    }
  }

  /// A fault of a cache never keeps the command from running.
  void restore(WrappedProfile& profile) try {
    const auto wanted = target(profile, profile.not_restored);
    if (!wanted) return;
    const RestoredTarget done = restore_target(*wanted, {}, context_.service());
    profile.found = done.missing.empty();
    profile.not_restored = done.missing;
    profile.written = done.written;
  } catch (const Error& error) {
    profile.not_restored = error.what();
    base::warn(profile.name + ": " + error.what());
  }

  void capture(WrappedProfile& profile) try {
    if (PoliteInterrupt::requested()) {
      profile.not_captured = "interrupted";
      return;
    }
    const auto wanted = target(profile, profile.not_captured);
    if (!wanted) return;
    if (::access(wanted->root.c_str(), F_OK) != 0) {
      profile.not_captured = "there is no directory " + wanted->root;
      return;
    }
    const CapturedTarget done = capture_target(*wanted, false, context_.service());
    profile.files = done.tree.files(), profile.stored = done.stored;
    if (tier_)
      push(profile.name,
           [&] { return push_captured(*wanted, done.tree, *tier_, context_.config(), context_.json); });
  } catch (const Error& error) {
    profile.not_captured = error.what();
    base::warn(profile.name + ": " + error.what());
  }

  /// Writes the blobs of the spaces that the command's processes used to the tier.
  void push_blobs(const WrapReports& reports) {
    std::set<std::string> spaces;
    for (const auto& [space, counts] : reports.spaces) spaces.insert(space);
    push("blobs", [&] { return push_spaces(spaces, *tier_, context_.config(), context_.json); });
  }

  /// Writes to the tier. A fault is a warning, and does not change what is told about the capture.
  void push(const std::string& what, const std::function<Pushed()>& write) {
    Pushed done;
    try {
      done = write();
      if (!pushed_ || !pushed_->fault) warn_of(done.fault, *tier_);
    } catch (const Error& error) {
      done.fault.text = error.what();
      base::warn("--push: " + what + ": " + error.what());
    }
    if (!pushed_) pushed_.emplace();
    *pushed_ += done;
  }

  WrappedCommand command(const std::string& reports) const {
    WrappedCommand out{arguments_.command, {{"KILN_CACHES_REPORT", reports}}, context_.json};
    if (!std::getenv("KILN_CACHES")) out.variables["KILN_CACHES"] = "on";
    if (!context_.cache_dir.empty())
      out.variables["KILN_CACHE_DIR"] = base::absolute(context_.cache_dir).value_or(context_.cache_dir);
    const std::string start = start_directory(), path(base::environment("PYTHONPATH"));
    if (start.empty())
      base::warn(
          "kiln's sitecustomize.py is not installed, so Python processes use kiln's caches only where "
          "their code says so");
    else
      out.variables["PYTHONPATH"] = path.empty() ? start : start + ':' + path;
    return out;
  }

  void print(int status, const WrapReports& reports) const {
    if (context_.json) return print_json(json(status, reports));
    for (const WrappedProfile& profile : profiles_) {
      if (profile.written + profile.stored == 0 && profile.files == 0) continue;
      std::fprintf(stderr, "kiln: %s: restored %s, captured %s of %s\n", profile.name.c_str(),
                   counted(profile.written, "file").c_str(), counted(profile.stored, "new file").c_str(),
                   std::to_string(profile.files).c_str());
    }
    if (pushed_)
      std::fprintf(stderr, "kiln: %s\n", text_of(*pushed_, "run 'kiln remote push --all-jits'").c_str());
    if (reports.spaces.empty()) return;
    std::fprintf(stderr, "kiln: %-20s %8s %8s %8s\n", "SPACE", "HITS", "MISSES", "STORED");
    for (const auto& [space, counts] : reports.spaces)
      std::fprintf(stderr, "kiln: %-20s %8s %8s %8s\n", space.c_str(), std::to_string(counts.hits).c_str(),
                   std::to_string(counts.misses).c_str(), std::to_string(counts.puts).c_str());
  }

  Json json(int status, const WrapReports& reports) const {
    Json out{{"schema", context_.schema()}, {"status", status}};
    out["restored"] = Json::array(), out["captured"] = Json::array();
    for (const WrappedProfile& profile : profiles_) {
      out["restored"].push_back({{"profile", profile.name},
                                 {"found", profile.found},
                                 {"written", profile.written},
                                 {"reason", profile.not_restored}});
      out["captured"].push_back({{"profile", profile.name},
                                 {"files", profile.files},
                                 {"stored", profile.stored},
                                 {"reason", profile.not_captured}});
    }
    out["processes"] = reports.processes;
    out["spaces"] = Json::array();
    for (const auto& [space, counts] : reports.spaces)
      out["spaces"].push_back({{"space", space},
                               {"hits", counts.hits},
                               {"misses", counts.misses},
                               {"puts", counts.puts},
                               {"damaged", counts.damaged}});
    if (pushed_) out["tier"] = json_of(*pushed_);
    return out;
  }

  Context& context_;
  const WrapArguments& arguments_;
  std::shared_ptr<fleet::Tier> tier_;  // only with --push
  std::vector<WrappedProfile> profiles_;
  std::optional<Pushed> pushed_;
};

}  // namespace

void add_wrap(Command app, Context& context) {
  const auto arguments = std::make_shared<WrapArguments>();
  const Command sub = context.add_command(app, "wrap", "Run a command with the caches of its JIT compilers",
                                          [&context, arguments] { return Wrap(context, *arguments).run(); });
  sub.option("command", arguments->command, "The command and its arguments, after --").required();
  sub.option("--profile", arguments->profiles,
             "Restore and capture this directory (repeatable); default: every\nprofile that no cache of kiln "
             "replaces")
      .type_name("NAME")
      .allow_extra_args(false);
  sub.option("--python", arguments->python,
             "The interpreter whose packages count; default: the command, if it is\na python, else "
             "$VIRTUAL_ENV, else python3")
      .type_name("PROGRAM");
  sub.flag("--push", arguments->push,
           "When the command ends with 0, also write to the fleet's tier: the captured\ndirectories, and all "
           "blobs of the spaces that the command used");
  sub.footer(
      "Directories of profiles are restored first. The command then runs with KILN_CACHES=on, unless that\n"
      "variable is set already, and Python processes keep what torch.compile and Triton compile in kiln's\n"
      "store. When the command ends with 0, the directories are captured. Hits and misses of each space are\n"
      "printed on stderr.\n"
      "With --json, the command's output goes to stderr.\n"
      "With --push, entries are signed with KILN_REMOTE_SIGN, whatever KILN_REMOTE_MODE says. A server that\n"
      "does not answer is a warning, and the exit status is the command's.\n"
      "Ctrl-C after the command ended with 0 stops the capture and the push, and the summary is printed.\n"
      "Exit status: the command's; 128 + the signal that ended it; 1 when it cannot be started, 2 usage\n"
      "or no tier, 130 interrupted after the command.\n"
      "Example: kiln wrap -- python serve.py --port 8000");
}

}  // namespace kiln::cli
