// The values that an operator gives the parameters and the arguments of its kernel.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "expression/symbols.hpp"
#include "manifest/bind/spec.hpp"
#include "manifest/manifest.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Reads `param` and `arg` of [bind], and finds the values that the signature gives. REQUIRES: `out` has its operands
/// and the names of `let`. All arguments must outlive it.
class ValueReader {
 public:
  /// `call` has the measures alone, and `launch` also what a launch knows.
  ValueReader(const Manifest& manifest, const TableReader& reader, const Symbols& call, const Symbols& launch,
              BindSpec& out)
      : manifest_(manifest), reader_(reader), call_(call), launch_(launch), out_(out) {}

  void read_parameters();
  void read_arguments();
  /// Lets the argument `by` of [family] give the family's parameter, unless something else gives it. REQUIRES: the
  /// parameters and arguments were read.
  void read_family();

 private:
  Expression compile(std::string_view key, const std::string& text, const Symbols& symbols) const;
  bool takes_integer(std::size_t argument) const;
  bool is_given_by_family(std::size_t parameter) const {
    return manifest_.family && manifest_.family->parameter == static_cast<int>(parameter);
  }
  template <class Fail>
  void bind_operand(std::size_t argument, const std::string& text, const Fail& fail);
  void lay_out(std::size_t argument, std::vector<bool>& bound);

  const Manifest& manifest_;
  const TableReader& reader_;
  const Symbols& call_;
  const Symbols& launch_;
  BindSpec& out_;
};

}  // namespace kiln::source
