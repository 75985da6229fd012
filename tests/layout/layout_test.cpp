// The floors of the house (docs/architecture.md): includes point down, rooms on one floor never include each
// other. Computed over the include closure of every file, so that a breach through a header is found as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = KILN_SOURCE_DIR;

struct Room {
  std::string name;
  std::set<std::string> may_use;
};

// Floor by floor. The value headers of include/kiln belong to base; the rest of include/kiln is "api", which
// runtime implements.
const std::vector<Room> kRooms = {
    {"values", {}},
    {"base", {"values"}},
    {"toolchain", {"base", "values"}},
    {"source", {"base", "values"}},
    {"attention", {"base", "values"}},
    {"compile", {"toolchain", "source", "base", "values"}},
    {"api", {"values"}},
    {"runtime", {"api", "compile", "cache", "toolchain", "source", "attention", "base", "values"}},
    {"tools", {"runtime", "api", "compile", "cache", "toolchain", "source", "attention", "base", "values"}},
};
// The storage side, floor 0 and then floor 1. A room may use base, the value headers and the storage rooms to
// its left. Other rooms name the whole side as "cache".
const std::vector<std::string> kStorage = {"cache/record",     "cache/compression", "cache/trust",
                                           "cache/lock",       "cache/place",  //
                                           "cache/store/file", "cache/store",       "cache/flight",
                                           "cache/bundle",     "cache/fleet/net",   "cache/fleet"};
const std::set<std::string> kValueHeaders = {"error.hpp", "dtype.hpp", "digest.hpp", "specialization.hpp"};

std::string room_of(const fs::path& relative) {
  auto part = relative.begin();
  const std::string top = part->string();
  if (top == "tools") return top;
  if (top == "cache") {  // the innermost folder that is a room; folders below it are its parts
    for (fs::path folder = relative.parent_path(); !folder.empty(); folder = folder.parent_path())
      if (std::find(kStorage.begin(), kStorage.end(), folder) != kStorage.end()) return folder;
    return "";
  }
  if (top == "src") return (++part)->string();
  if (top == "include") return kValueHeaders.contains(relative.filename().string()) ? "values" : "api";
  return "";
}

/// Includes of ours, as paths relative to the root.
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

std::vector<fs::path> sources() {
  std::vector<fs::path> out;
  for (const char* top : {"src", "cache", "include", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".cpp" || extension == ".hpp" || extension == ".h")
        out.push_back(fs::relative(entry.path(), kRoot));
    }
  }
  return out;
}

bool is_storage(const std::string& room) { return room.starts_with("cache/"); }

/// Whether a storage room may use another room.
bool storage_may_use(const std::string& room, const std::string& target) {
  if (target == "base" || target == "values") return true;
  const auto own = std::find(kStorage.begin(), kStorage.end(), room);
  return std::find(kStorage.begin(), own, target) != own;
}

const std::set<std::string>& allowed(const std::string& room) {
  for (const Room& r : kRooms) {
    if (r.name == room) return r.may_use;
  }
  static const std::set<std::string> none;
  return none;
}

bool may_use(const std::string& room, const std::string& target) {
  if (is_storage(room)) return storage_may_use(room, target);
  return allowed(room).contains(is_storage(target) ? "cache" : target);
}

}  // namespace

TEST(Layout, EveryFileBelongsToARoom) {
  std::set<std::string> known(kStorage.begin(), kStorage.end());
  for (const Room& r : kRooms) known.insert(r.name);
  for (const fs::path& file : sources()) EXPECT_TRUE(known.contains(room_of(file))) << file;
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
    if (!is_storage(room) || room == "cache/fleet") continue;  // a fleet's row names the NVRTC version
    std::ifstream in(kRoot / file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    for (const char* word : {"cuLibrary", "nvrtc", "cubin\"", "cuda.h"})
      EXPECT_EQ(text.find(word), std::string::npos) << file << " says " << word;
  }
}

TEST(Layout, TheFleetKnowsItsBackendsInOnePlace) {
  int inside = 0;
  for (const fs::path& file : sources()) {
    if (room_of(file) != "cache/fleet") continue;
    const bool backend = file.parent_path() == "cache/fleet/redis";
    inside += backend;
    for (const fs::path& included : project_includes(kRoot / file)) {
      if (backend) {
        EXPECT_FALSE(included == "cache/fleet/tier.hpp" || included == "cache/fleet/tier_context.hpp")
            << file;
      } else if (file != "cache/fleet/tier_url.cpp") {
        EXPECT_NE(included.parent_path(), "cache/fleet/redis") << file << " includes " << included;
      }
    }
  }
  EXPECT_GT(inside, 10);
}

TEST(Layout, EveryStorageSourceHasAHeaderOfItsOwn) {
  for (const fs::path& file : sources()) {
    if (!is_storage(room_of(file)) || file.extension() != ".cpp") continue;
    EXPECT_TRUE(fs::exists((kRoot / file).replace_extension(".hpp"))) << file;
  }
}

TEST(Layout, StorageFoldersHoldAtMostThirtyFiles) {
  std::map<fs::path, int> files;
  for (const fs::path& file : sources())
    if (is_storage(room_of(file))) ++files[file.parent_path()];
  EXPECT_GE(files.size(), kStorage.size());
  for (const auto& [folder, count] : files) EXPECT_LE(count, 30) << folder;
}

TEST(Layout, PublicHeadersAreSelfContainedCxx17) {
  // Compiled for real in tests/runtime; here: nothing but the standard library and each other.
  for (const auto& entry : fs::directory_iterator(kRoot / "include/kiln")) {
    for (const fs::path& included : project_includes(entry.path()))
      EXPECT_EQ(included.begin()->string(), "include") << entry.path();
  }
}

TEST(Layout, TopLevelIsFixed) {
  const std::set<std::string> expected = {
      "CMakeLists.txt", "CMakePresets.json", "src",     "templates", "include", "cache", "tests",
      "tools",          "README.md",         "LICENSE", "docs",      ".ci",     ".git",  ".gitignore",
      ".clang-format",  ".clang-tidy",       "build",   "python"};
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && !expected.contains(name)) continue;  // a developer's own
    EXPECT_TRUE(expected.contains(name)) << name;
  }
}
