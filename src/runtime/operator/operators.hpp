// The operators that a service has opened.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/kernels/scope.hpp"
#include "runtime/operator/operator.hpp"

namespace kiln::runtime {

/// Thread-safe. A forked child opens its operators again.
class Operators {
 public:
  /// Both arguments must outlive it.
  Operators(Scope& scope, source::Catalog& catalog) : scope_(scope), catalog_(catalog) {}

  /// `name`: that of an operator, or TEMPLATE.OPERATOR. Throws Error as Scope::open, and unknown_template with the
  /// known operators.
  const Operator& open(const std::string& name, int device, const std::string& arch);
  /// A JSON array of source::json_of, for one operator or, with "", for all. Throws as open.
  std::string describe(const std::string& name);

 private:
  struct Found {
    std::string of, name;  ///< template and operator
  };
  Found find(const std::string& name);
  template <class Each>
  void each_template(const Each& each);

  struct State {
    std::mutex mutex;
    /// Templates are kept: a changed manifest has a new one.
    std::map<std::pair<const KernelTemplate*, std::string>, std::unique_ptr<Operator>> opened;
  };
  Scope& scope_;
  source::Catalog& catalog_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
