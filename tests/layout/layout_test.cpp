// The floors of docs/architecture.md: includes point down, and rooms on one floor include each other in one
// direction at most.
// The test walks the include closure of every file, so that a breach through a header is found, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/places.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = kiln::places::kSourceDirectory;

struct Room {
  std::string name;
  std::set<std::string> may_use;
};

// The rooms floor by floor, and the rooms that each may use. The value headers of include/kiln are "values";
// its other headers are "api", which runtime implements.
const std::vector<Room> kRooms = {
    {"values", {}},
    {"words", {}},
    {"base", {"values"}},
    {"toolchain", {"base", "values"}},
    {"source", {"base", "values"}},
    {"cache", {"base", "values"}},
    {"compile", {"toolchain", "source", "base", "values"}},
    {"api", {"values"}},
    {"runtime", {"words", "api", "compile", "cache", "toolchain", "source", "base", "values"}},
    // Code for one kind of operator, and the library's entry, which hands that code down.
    {"attention", {"words", "runtime", "api", "compile", "cache", "toolchain", "source", "base", "values"}},
    {"library",
     {"words", "attention", "runtime", "api", "compile", "cache", "toolchain", "source", "base", "values"}},
    {"tools",
     {"words", "library", "attention", "runtime", "api", "compile", "cache", "toolchain", "source", "base",
      "values"}},
};

/// The rooms inside a room, in order. Each may use the rooms before it, and the rooms
/// that the whole room may use.
struct Wing {
  std::string whole;
  std::vector<std::string> rooms;
};
const std::vector<Wing> kWings = {
    // The storage side: rooms of floor 0, then of floor 1.
    {"cache",
     {"cache/record", "cache/compression", "cache/blob", "cache/trust", "cache/lock", "cache/place",
      "cache/store/file", "cache/store", "cache/flight", "cache/bundle", "cache/fleet/net", "cache/fleet"}},
    {"source", {"src/expression", "src/closure", "src/overlay", "src/manifest", "src/instantiate"}},
    {"compile",
     {"src/compile/key", "src/compile/backend", "src/compile/worker", "src/compile/pool",
      "src/compile/advice", "src/compile/compiler"}},
    {"runtime",
     {"src/runtime/config", "src/runtime/state", "src/runtime/tuned", "src/runtime/path", "src/runtime/blob",
      "src/runtime/launch", "src/runtime/kernels", "src/runtime/operator", "src/runtime/service",
      "src/runtime/abi"}},
    {"tools", {"tools/kiln/cli",       "tools/kiln/store",  "tools/kiln/plan",   "tools/kiln/compile",
               "tools/kiln/run",       "tools/kiln/tune",   "tools/kiln/import", "tools/kiln/lint",
               "tools/kiln/templates", "tools/kiln/bundle", "tools/kiln/fleet",  "tools/kiln/prewarm",
               "tools/kiln/inspect",   "tools/kiln/why",    "tools/kiln/stats",  "tools/kiln/top",
               "tools/kiln/report",    "tools/kiln/verify", "tools/kiln/audit",  "tools/kiln/maintain",
               "tools/kiln/caches",    "tools/kiln/doctor", "tools/kiln/help",   "tools"}},
};
const std::set<std::string> kValueHeaders = {"error.hpp", "dtype.hpp", "digest.hpp", "specialization.hpp"};

const Wing* wing_of(const std::string& room) {
  for (const Wing& wing : kWings)
    if (std::find(wing.rooms.begin(), wing.rooms.end(), room) != wing.rooms.end()) return &wing;
  return nullptr;
}

/// The room of a file: the innermost folder that is a room of a wing, else the floor's room. Folders below a
/// room are parts of the room.
std::string room_of(const fs::path& relative) {
  for (fs::path folder = relative.parent_path(); !folder.empty(); folder = folder.parent_path())
    if (wing_of(folder.string())) return folder.string();
  auto part = relative.begin();
  const std::string top = part->string();
  if (top == "src") return (++part)->string();
  if (top == "templates") return "words";  // headers that host and device compile
  if (top == "include") return kValueHeaders.contains(relative.filename().string()) ? "values" : "api";
  return top;
}

/// The project's files that a file includes, as paths relative to the root.
std::vector<fs::path> project_includes(const fs::path& file) {
  static const std::regex directive(R"(^\s*#\s*include\s*"([^"]+)\")");
  std::vector<fs::path> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, directive)) continue;
    for (const fs::path& base : {file.parent_path(), kRoot / "src", kRoot / "include", kRoot}) {
      if (fs::exists(base / match[1].str())) {
        out.push_back(fs::relative(base / match[1].str(), kRoot));
        break;
      }
    }
  }
  return out;
}

std::vector<fs::path> sources_below(const std::vector<std::string>& tops) {
  std::vector<fs::path> out;
  for (const std::string& top : tops) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".cpp" || extension == ".hpp" || extension == ".h")
        out.push_back(fs::relative(entry.path(), kRoot));
    }
  }
  return out;
}

std::vector<fs::path> sources() { return sources_below({"src", "cache", "include", "tools"}); }

/// The floor's room that a room of a wing belongs to; other rooms are returned as they are.
std::string whole_of(const std::string& room) {
  const Wing* wing = wing_of(room);
  return wing ? wing->whole : room;
}

bool may_use(const std::string& room, const std::string& target) {
  const Wing* wing = wing_of(room);
  if (wing && wing == wing_of(target)) {
    const auto own = std::find(wing->rooms.begin(), wing->rooms.end(), room);
    return std::find(wing->rooms.begin(), own, target) != own;
  }
  for (const Room& r : kRooms) {
    if (r.name == whole_of(room)) return r.may_use.contains(whole_of(target));
  }
  return false;
}

}  // namespace

TEST(Layout, EveryFileBelongsToARoom) {
  std::set<std::string> known = {"tools"};
  for (const Room& r : kRooms) known.insert(r.name);
  for (const Wing& wing : kWings) known.erase(wing.whole);
  for (const Wing& wing : kWings) known.insert(wing.rooms.begin(), wing.rooms.end());
  for (const fs::path& file : sources()) EXPECT_TRUE(known.contains(room_of(file))) << file;
}

/// The number of files of each folder below `top`.
std::map<std::string, std::size_t> files_in_folders_of(const char* top) {
  std::map<std::string, std::size_t> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
    const fs::path folder = fs::relative(entry.path().parent_path(), kRoot);
    if (entry.is_regular_file() && folder.filename() != "__pycache__") ++files[folder.string()];
  }
  return files;
}

TEST(Layout, NoFolderHoldsMoreThanThirtyFiles) {
  constexpr std::size_t kMost = 30;
  std::map<std::string, std::size_t> files = files_in_folders_of("templates");
  ASSERT_GT(files.size(), 10u);
  // Other libraries give the names of these headers, and one search directory has them all.
  for (const char* folder : {"templates/shim", "templates/stubs"}) {
    EXPECT_GT(files[folder], kMost) << folder << " needs no exception any more";
    files.erase(folder);
  }
  for (const fs::path& file : sources()) ++files[file.parent_path().string()];
  ASSERT_GT(files.size(), 40u);
  for (const auto& [folder, count] : files) EXPECT_LE(count, kMost) << folder;
}

TEST(Layout, NoFolderOfTestsHoldsMoreThanFortyFiles) {
  constexpr std::size_t kMost = 40;
  const auto files = files_in_folders_of("tests");
  ASSERT_GT(files.size(), 30u);
  for (const auto& [folder, count] : files) EXPECT_LE(count, kMost) << folder;
}

TEST(Layout, ASourceHasAHeaderOfItsOwn) {
  std::vector<fs::path> without;
  for (const fs::path& file : sources()) {
    if (file.extension() != ".cpp" || fs::exists(kRoot / fs::path(file).replace_extension(".hpp"))) continue;
    if (room_of(file) == "src/runtime/abi" || file.filename() == "abi.cpp") continue;  // kiln.h is the header
    without.push_back(file);
  }
  EXPECT_LE(without.size(), 5u) << ::testing::PrintToString(without);
}

TEST(Layout, IncludesPointDownThroughEveryClosure) {
  std::map<fs::path, std::vector<fs::path>> graph;
  for (const fs::path& file : sources()) graph[file] = project_includes(kRoot / file);
  ASSERT_GT(graph.size(), 50u);
  int edges = 0;
  for (const auto& [file, direct] : graph) {
    const std::string room = room_of(file);
    std::set<fs::path> seen;
    std::vector<fs::path> todo(direct.begin(), direct.end());
    while (!todo.empty()) {
      const fs::path next = todo.back();
      todo.pop_back();
      if (!seen.insert(next).second) continue;
      ++edges;
      const std::string target = room_of(next);
      EXPECT_TRUE(target == room || may_use(room, target))
          << file << " (" << room << ") reaches " << next << " (" << target << ")";
      const auto& more = graph[next];
      todo.insert(todo.end(), more.begin(), more.end());
    }
  }
  EXPECT_GT(edges, 200);
}

TEST(Layout, CacheKnowsNoCuda) {
  for (const fs::path& file : sources()) {
    const std::string room = room_of(file);
    if (whole_of(room) != "cache" || room == "cache/fleet")
      continue;  // a row of the fleet names the NVRTC version
    std::ifstream in(kRoot / file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    for (const char* word : {"cuLibrary", "nvrtc", "cubin\"", "cuda.h"})
      EXPECT_EQ(text.find(word), std::string::npos) << file << " says " << word;
  }
}

/// A file's code without comments and strings, which may name anything.
std::string code_of(const fs::path& file) {
  std::ifstream in(kRoot / file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  static const std::regex words(R"(//[^\n]*|"(\\.|[^"\\\n])*\")");
  return std::regex_replace(text, words, "");
}

TEST(Layout, ACompilerIsNamedInItsBackendAndInTheSearchForIt) {
  int named = 0;
  for (const fs::path& file : sources()) {
    const std::string path = file.string();
    if (path.starts_with("tools/") || path.starts_with("include/") || path.starts_with("cache/")) continue;
    const std::string code = code_of(file);
    const bool has = code.find("nvrtc") != std::string::npos || code.find("Nvrtc") != std::string::npos;
    named += has;
    const bool may = path.starts_with("src/compile/backend/") || path.starts_with("src/toolchain/");
    EXPECT_TRUE(may || !has) << file;
  }
  EXPECT_GT(named, 5);
}

TEST(Layout, AnOperatorIsNamedAboveTheRuntimeAlone) {
  int named = 0;
  for (const fs::path& file : sources()) {
    const std::string path = file.string();
    if (!path.starts_with("src/")) continue;
    const std::string code = code_of(file);
    const bool has =
        code.find("attention") != std::string::npos || code.find("Attention") != std::string::npos;
    named += has;
    EXPECT_TRUE(!has || path.starts_with("src/attention/") || path.starts_with("src/library/")) << file;
  }
  EXPECT_GT(named, 10);
}

/// The backend of remote tiers that a file belongs to; "" when it belongs to none. Each folder below
/// cache/fleet except the network's is a backend.
std::string backend_of(const fs::path& file) {
  const fs::path below = file.lexically_relative("cache/fleet");
  const std::string first = below.begin()->string();
  return first == ".." || first == "net" || !below.has_parent_path() ? "" : first;
}

TEST(Layout, TheFleetKnowsItsBackendsInOnePlace) {
  EXPECT_EQ(backend_of("cache/fleet/redis/url.hpp"), "redis");
  for (const char* of_none :
       {"cache/fleet/tier.hpp", "cache/fleet/net/tls.hpp", "tools/kiln/fleet/remote.hpp"})
    EXPECT_EQ(backend_of(of_none), "") << of_none;
  int inside = 0;
  for (const fs::path& file : sources()) {
    const std::string backend = backend_of(file);
    inside += !backend.empty();
    for (const fs::path& included : project_includes(kRoot / file)) {
      const bool is_above = included == "cache/fleet/tier.hpp" || included == "cache/fleet/tier_context.hpp";
      EXPECT_TRUE(backend.empty() || !is_above) << file << " includes " << included;
      const std::string other = backend_of(included);
      EXPECT_TRUE(other.empty() || other == backend || file == "cache/fleet/tier_url.cpp")
          << file << " includes " << included;
    }
  }
  EXPECT_GT(inside, 10);
}

/// The family of commands that a file belongs to, also as its test; "" when it belongs to none.
std::string family_of(const fs::path& file) {
  for (const char* families : {"tools/kiln", "tests/tools"}) {
    const fs::path below = file.lexically_relative(families);
    if (below.has_parent_path() && *below.begin() != "..") return below.begin()->string();
  }
  return "";
}

struct Include {
  fs::path file, included;
};
/// The families of which files outside include several headers, with these headers.
std::map<std::string, std::set<fs::path>> families_of_several_headers(const std::vector<Include>& includes) {
  // They have no command: every family may build on any part of them.
  const std::set<std::string> foundations = {"cli", "store", "plan"};
  std::map<std::string, std::set<fs::path>> out;
  for (const auto& [file, included] : includes) {
    const std::string family = family_of(included);
    if (!family.empty() && family != family_of(file) && !foundations.contains(family))
      out[family].insert(included);
  }
  std::erase_if(out, [](const auto& family) { return family.second.size() < 2; });
  return out;
}

TEST(Layout, AFamilyOfCommandsHasOnePublicHeader) {
  EXPECT_EQ(family_of("tools/kiln/main.cpp"), "");
  const Include header{"tools/kiln/main.cpp", "tools/kiln/run/run.hpp"};
  for (const char* outside :
       {"tools/kiln/main.cpp", "tools/kiln/tune/tune.cpp", "tests/tools/tune/tune_test.cpp"})
    EXPECT_TRUE(families_of_several_headers({header, {outside, "tools/kiln/run/case.hpp"}}).contains("run"))
        << outside;
  for (const char* inside : {"tools/kiln/run/run.cpp", "tests/tools/run/run_test.cpp"})
    EXPECT_TRUE(families_of_several_headers({header, {inside, "tools/kiln/run/case.hpp"}}).empty()) << inside;

  std::vector<Include> includes;
  std::set<std::string> met;
  for (const fs::path& file : sources_below({"tools", "tests"})) {
    for (const fs::path& included : project_includes(kRoot / file)) {
      includes.push_back({file, included});
      met.insert(family_of(included));
    }
  }
  EXPECT_GT(met.size(), 20u);
  for (const auto& [family, headers] : families_of_several_headers(includes))
    ADD_FAILURE() << family << ": " << ::testing::PrintToString(headers);
}

TEST(Layout, PublicHeadersAreSelfContainedCxx17) {
  // tests/runtime compiles them. Here they may include only the standard library and each other.
  for (const auto& entry : fs::directory_iterator(kRoot / "include/kiln")) {
    for (const fs::path& included : project_includes(entry.path()))
      EXPECT_EQ(included.begin()->string(), "include") << entry.path();
  }
}

TEST(Layout, TopLevelIsFixed) {
  const std::set<std::string> expected = {"CMakeLists.txt",
                                          "CMakePresets.json",
                                          "mkdocs.yml",
                                          "ruff.toml",
                                          "SECURITY.md",
                                          "src",
                                          "templates",
                                          "include",
                                          "cache",
                                          "tests",
                                          "tools",
                                          "README.md",
                                          "CONTRIBUTING.md",
                                          "CHANGELOG.md",
                                          "LICENSE",
                                          "docs",
                                          "examples",
                                          ".ci",
                                          ".git",
                                          ".gitignore",
                                          ".clang-format",
                                          ".clang-tidy",
                                          "build",
                                          "packaging",
                                          "python"};
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && !expected.contains(name)) continue;  // a developer's own file
    EXPECT_TRUE(expected.contains(name)) << name;
  }
}
