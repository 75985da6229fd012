// The order of settings: flag or option, KILN_*, configuration file, default. An unknown KILN_* is a warning.
#include "runtime/config/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/state/places.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

using runtime::Config;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    set("XDG_CONFIG_HOME", tree_.at("config"));
    for (const char* name :
         {"KILN_ARCH", "KILN_MODE", "KILN_JOBS", "KILN_CACHE_DIR", "KILN_CACHE_LAYERS", "KILN_CACHE_MAX_SIZE",
          "KILN_COMPILE_MEMORY", "KILN_TEMPLATE_PATH", "XDG_CACHE_HOME", "TMPDIR"})
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

TEST_F(ConfigTest, CompileMemoryIsASizeAndDecidedFromTheMachineByDefault) {
  EXPECT_EQ(Config::resolve({}).compile_memory_bytes(), 0u);
  set("KILN_COMPILE_MEMORY", "3G");
  EXPECT_EQ(Config::resolve({}).compile_memory_bytes(), std::uint64_t{3} << 30);
  Options options;
  options.compile_memory = "512 MiB";
  EXPECT_EQ(Config::resolve(options).compile_memory_bytes(), std::uint64_t{512} << 20);
  options.compile_memory = "much";
  EXPECT_THROW(Config::resolve(options), Error);
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

TEST_F(ConfigTest, ACompileDeadlineThatNoClockCanHoldIsRefused) {
  for (const char* seconds : {"1e7", "9999999", "0.001"}) {
    set("KILN_COMPILE_DEADLINE", seconds);
    EXPECT_GT(Config::resolve({}).compile_deadline_s(), 0) << seconds;
  }
  for (const char* seconds : {"10000001", "1e10", "1e300"}) {
    set("KILN_COMPILE_DEADLINE", seconds);
    try {
      Config::resolve({});
      ADD_FAILURE() << seconds;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(seconds), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("at most 10000000"), std::string::npos) << error.what();
    }
  }
  set("KILN_COMPILE_DEADLINE", "");
  Options options;
  options.compile_deadline_s = 1e10;
  EXPECT_THROW(Config::resolve(options), Error);
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
  const auto places = [] {
    std::vector<std::string> out;
    for (const auto& candidate : runtime::store_candidates(Config::resolve({})))
      out.push_back(candidate.directory);
    return out;
  };
  const std::string uid = std::to_string(::geteuid());
  EXPECT_EQ(places(), std::vector<std::string>{"/var/tmp/kiln-" + uid});
  set("HOME", "home/u");
  EXPECT_EQ(places(), std::vector<std::string>{"/var/tmp/kiln-" + uid}) << "relative: not set";
  set("HOME", "/home/u");
  EXPECT_EQ(places().front(), "/home/u/.cache/kiln");
  set("XDG_CACHE_HOME", "xdg");
  EXPECT_EQ(places().front(), "/home/u/.cache/kiln") << "relative: not set";
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(places().front(), "/xdg/kiln");
  set("KILN_CACHE_DIR", "/mine");
  EXPECT_EQ(places().front(), "/mine");
}

TEST_F(ConfigTest, SizesAreBytesOrPowersOf1024) {
  EXPECT_EQ(Config::resolve({}).cache_max_bytes(), std::uint64_t{5} << 30);
  const std::pair<const char*, std::uint64_t> good[] = {
      {"1", 1},          {"1000000", 1000000},  {"64K", 64 << 10},  {"64k", 64 << 10}, {"512M", 512 << 20},
      {"1.5G", 3 << 29}, {"2 GiB", 2ull << 30}, {"1T", 1ull << 40}, {"0.5k", 512}};
  for (const auto& [text, bytes] : good) {
    set("KILN_CACHE_MAX_SIZE", text);
    EXPECT_EQ(Config::resolve({}).cache_max_bytes(), bytes) << text;
  }
  for (const char* text : {"0", "-1", "5X", "G", "5GG", "5GB", "many", "nan", "inf", "1e30", "5G5", "5 i"}) {
    set("KILN_CACHE_MAX_SIZE", text);
    try {
      Config::resolve({});
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      for (const std::string& part :
           {std::string(text), std::string("KILN_CACHE_MAX_SIZE"), std::string("5G")})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  Options options;
  options.cache_max_size = "3M";
  EXPECT_EQ(Config::resolve(options).cache_max_bytes(), 3u << 20) << "beats the environment";
}

TEST_F(ConfigTest, ADirectoryWithKilnsOwnHeadersStandsForTheInstalledTemplates) {
  for (const char* file : {"own/kiln/vector.cuh", "own/shim/type_traits", "mine/one.toml"})
    tree_.write(file, "");
  set("KILN_TEMPLATE_PATH", tree_.at("mine"));
  const std::string installed = Config::resolve({}).installed_templates();
  EXPECT_EQ(Config::resolve({}).template_directories(), (std::vector{tree_.at("mine"), installed}));
  EXPECT_EQ(Config::resolve({}).about_templates(), "KILN_TEMPLATE_PATH adds directories");
  set("KILN_TEMPLATE_PATH", tree_.at("mine") + ':' + tree_.at("own"));
  EXPECT_EQ(Config::resolve({}).installed_templates(), tree_.at("own"));
  EXPECT_EQ(Config::resolve({}).template_directories(), (std::vector{tree_.at("mine"), tree_.at("own")}));
  Options options;
  options.template_path = installed;
  EXPECT_EQ(Config::resolve(options).installed_templates(), installed) << "code before the environment";
}

TEST_F(ConfigTest, LayersComeFromTheFirstThatNamesThem) {
  tree_.write("config/kiln/config.toml", "cache_layers = \"/file\"\n");
  EXPECT_EQ(Config::resolve({}).get("cache_layers"), "/file");
  set("KILN_CACHE_LAYERS", "/a:/b");
  EXPECT_EQ(Config::resolve({}).get("cache_layers"), "/a:/b");
  Options options;
  options.cache_layers = "/option";
  EXPECT_EQ(Config::resolve(options).get("cache_layers"), "/option");
}

}  // namespace
}  // namespace kiln::testing
