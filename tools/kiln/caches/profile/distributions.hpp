// The versions of Python distributions. They are read without starting Python, unless the interpreter's version is in
// neither its name nor a pyvenv.cfg, as with a shell script that starts another one.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kiln::cli {

/// One interpreter's directories of packages.
class PythonPackages {
 public:
  /// `python` names an interpreter; empty: $VIRTUAL_ENV, else python3 of PATH. Never throws for an interpreter
  /// that is not there: nothing is installed then. One whose version is not known is run with -c.
  explicit PythonPackages(const std::string& python);

  /// The version of a distribution, by the name of its *.dist-info directory; "none" when it is not installed.
  /// Names are compared as PyPI compares them: "Deep_Gemm" is "deep-gemm".
  std::string version_of(const std::string& distribution) const;
  /// "3.12"; "none" when there is no interpreter.
  const std::string& python_version() const noexcept { return version_; }

 private:
  static constexpr const char* kNone = "none";

  void search(const std::string& prefix);
  void read(const std::string& site);

  std::string version_ = kNone;
  std::map<std::string, std::string> versions_;
};

}  // namespace kiln::cli
