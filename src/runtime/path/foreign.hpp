// Records of the same specialisation that another toolchain made, and who may be served one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cache/record/record.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

/// The rule of KILN_TOOLCHAIN (own, any, or a toolchain's id) and of hosts without a compiler. Thread-safe.
class ForeignRecords {
 public:
  explicit ForeignRecords(ServiceState& state) : state_(state) {}

  /// Whether this call takes one: on a sealed service, on a host without a compiler or without the headers
  /// that only a toolkit has, and where the setting says so.
  bool are_taken(const Unit& unit, const Permission& permission);
  /// Whether the setting allows this key's toolchain.
  bool allows(const Key& key) const;
  /// Null when the record may not serve this unit: it is of another specialisation, it cannot be read, or its
  /// project files were reached only through the toolkit. Otherwise its image is moved out of it.
  static std::shared_ptr<const StoredImage> image_of(const Unit& unit, cache::Record record);
  /// By NVRTC version, then age; of two places with the same record, the one that was asked first.
  static std::optional<Obtained> best(std::vector<Obtained> candidates);

 private:
  ServiceState& state_;
};

}  // namespace kiln::runtime
