// Services of several users on one tree: the result of each, the store that it came from, and the warnings.
#pragma once

#include <cstdlib>
#include <map>

#include "base/log.hpp"
#include "base/text.hpp"
#include "runtime/service_fixture.hpp"
#include "support/other_user.hpp"

namespace kiln::testing {

struct Served {
  std::string outcome;    ///< "compiled", "layer", ..., or the text of the exception
  std::string directory;  ///< of the writable store; "memory" when there is none
  std::vector<std::string> warnings;
};

class PlacesTest : public ServiceTest {
 protected:
  using Variables = std::map<std::string, std::string>;

  void SetUp() override {
    ServiceTest::SetUp();
    ::chmod(tree_.path().c_str(), 0755);
    make(tree_.at("tmp"), 01777, ::geteuid());
  }
  void TearDown() override { remove_shared_memory_of(tree_.path()); }

  /// Compiles scale in a service of user `uid`. Only `variables` set HOME and the
  /// like; TMPDIR defaults to the tree's "tmp".
  Served serve(unsigned uid, const Options& options, Variables variables = {}, Value n = 7) {
    variables.emplace("TMPDIR", tree_.at("tmp"));
    const std::string text = as_user(uid, [&] {
      std::vector<std::string> lines;
      base::set_log_sink([&](base::Level, std::string_view line) { lines.emplace_back(line); });
      for (const char* name : {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR"}) ::unsetenv(name);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      std::string outcome, directory;
      {
        runtime::Service service(options, "");
        constexpr const char* names[] = {"memory", "disk", "layer", "remote", "compiled", "waited"};
        outcome = names[static_cast<int>(compile(service, "scale", {Dtype::f32, n}).outcome)];
        service.core().path().flush();
        const auto store = service.core().state().stores.writable();
        directory = store ? store->directory() : "memory";
      }
      std::string out = outcome + '\n' + directory;
      for (std::string& line : lines) {
        std::replace(line.begin(), line.end(), '\n', ' ');
        out += '\n' + line;
      }
      return out;
    });
    std::vector<std::string> lines = base::split(text, '\n');
    Served out;
    if (!lines.empty()) out.outcome = lines[0];
    if (lines.size() > 1) out.directory = lines[1];
    for (std::size_t i = 2; i < lines.size(); ++i) out.warnings.push_back(lines[i]);
    return out;
  }
  Options at(const std::string& cache_dir) const {
    Options o = options();
    o.cache_dir = cache_dir;
    return o;
  }
  static std::string name_of(unsigned uid) { return "/kiln-" + std::to_string(uid); }
};

/// The service must have given one warning that contains all of `parts`.
inline void expect_one_warning(const Served& served, const std::vector<std::string>& parts) {
  ASSERT_EQ(served.warnings.size(), 1u) << base::join(served.warnings, "\n");
  for (const std::string& part : parts)
    EXPECT_NE(served.warnings[0].find(part), std::string::npos) << part << " in " << served.warnings[0];
}

}  // namespace kiln::testing
