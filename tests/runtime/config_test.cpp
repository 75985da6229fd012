// Flag or option, then KILN_*, then the configuration file, then the default; and an unknown KILN_* is a
// warning.
#include "runtime/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/places.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

using runtime::Config;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    set("XDG_CONFIG_HOME", tree_.at("config"));
    for (const char* name : {"KILN_ARCH", "KILN_MODE", "KILN_JOBS", "KILN_CACHE_DIR", "KILN_TEMPLATE_PATH",
                             "XDG_CACHE_HOME", "TMPDIR"})
      set(name, "");
    base::set_log_sink([this](base::Level, std::string_view line) { lines_.emplace_back(line); });
  }
  ~ConfigTest() override {
    base::set_log_sink(nullptr);
    for (const auto& [name, value] : saved_)
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    saved_.emplace(name, old ? old : "");
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  static std::string origin(const Config& config, const std::string& name) {
    for (const auto& s : config.settings()) {
      if (s.name == name) return s.origin;
    }
    return "absent";
  }
  Tree tree_;
  std::map<std::string, std::string> saved_;
  std::vector<std::string> lines_;
};

TEST_F(ConfigTest, EachLayerBeatsTheNextAndSaysWhereTheValueCameFrom) {
  EXPECT_EQ(origin(Config::resolve({}), "arch"), "default");
  tree_.write("config/kiln/config.toml", "arch = \"sm_80\"\njobs = 3\n");
  EXPECT_EQ(Config::resolve({}).get("arch"), "sm_80");
  EXPECT_EQ(Config::resolve({}).jobs(), 3);
  EXPECT_EQ(origin(Config::resolve({}), "arch"), tree_.at("config/kiln/config.toml"));
  set("KILN_ARCH", "90");
  EXPECT_EQ(Config::resolve({}).get("arch"), "90");
  EXPECT_EQ(origin(Config::resolve({}), "arch"), "KILN_ARCH");
  Options options;
  options.arch = "sm_120";
  EXPECT_EQ(Config::resolve(options).get("arch"), "sm_120");
  EXPECT_EQ(origin(Config::resolve(options), "arch"), "option");
}

TEST_F(ConfigTest, HermeticIgnoresEnvironmentAndFile) {
  tree_.write("config/kiln/config.toml", "arch = \"sm_80\"\n");
  set("KILN_MODE", "sealed");
  const Config config = Config::resolve(Options::hermetic());
  EXPECT_EQ(config.get("arch"), "");
  EXPECT_EQ(config.mode(), Mode::jit);
}

TEST_F(ConfigTest, AnUnknownVariableIsOneWarningWithTheNearestName) {
  set("KILN_CACHE_DIRR", "/x");
  Config::resolve({});
  Config::resolve({});
  ASSERT_EQ(
      std::count_if(lines_.begin(), lines_.end(),
                    [](const std::string& l) { return l.find("KILN_CACHE_DIRR") != std::string::npos; }),
      1);
  EXPECT_NE(lines_[0].find("did you mean 'KILN_CACHE_DIR'"), std::string::npos) << lines_[0];
}

TEST_F(ConfigTest, AValueThatCannotBeRightNamesItsOrigin) {
  const auto expect = [&](const std::string& name, const std::string& value) {
    set(name, value);
    try {
      Config::resolve({});
      ADD_FAILURE() << name << "=" << value;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(value), std::string::npos) << error.what();
    }
    set(name, "");
  };
  expect("KILN_MODE", "turbo");
  expect("KILN_JOBS", "many");
  expect("KILN_JOBS", "-1");
  expect("KILN_COMPILE_DEADLINE", "0");
  expect("KILN_COMPILE_DEADLINE", "nan");
  expect("KILN_ARCH", "hopper");
  tree_.write("config/kiln/config.toml", "jobs = [1]\n");
  EXPECT_THROW(Config::resolve({}), Error);
  tree_.write("config/kiln/config.toml", "jobs =\n");
  try {
    Config::resolve({});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("config.toml:1"), std::string::npos) << error.what();
  }
}

TEST_F(ConfigTest, TemplateDirectoriesAddUpInOrder) {
  set("KILN_TEMPLATE_PATH", "/env1:/env2");
  Options options;
  options.template_path = "/option";
  const auto directories = Config::resolve(options).template_directories();
  ASSERT_GE(directories.size(), 3u);
  EXPECT_EQ(directories[0], "/option");
  EXPECT_EQ(directories[1], "/env1");
  EXPECT_EQ(directories[2], "/env2");
}

TEST_F(ConfigTest, PlacesForTheStoreStepDownWithoutHome) {
  set("HOME", "");
  const auto places = runtime::store_candidates(Config::resolve({}));
  const std::string uid = std::to_string(::geteuid());
  EXPECT_EQ(places, std::vector<std::string>{"/var/tmp/kiln-" + uid});
  set("HOME", "/home/u");
  EXPECT_EQ(runtime::store_candidates(Config::resolve({})).front(), "/home/u/.cache/kiln");
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(runtime::store_candidates(Config::resolve({})).front(), "/xdg/kiln");
  set("KILN_CACHE_DIR", "/mine");
  EXPECT_EQ(runtime::store_candidates(Config::resolve({})).front(), "/mine");
}

}  // namespace
}  // namespace kiln::testing
