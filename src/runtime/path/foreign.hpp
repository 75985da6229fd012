// Records of the same specialisation that another toolchain made, and the rule of which calls may
// be served one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cache/record/record.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

/// The rule of KILN_TOOLCHAIN (own, any, or a toolchain's first digits) and of hosts without
/// a compiler. Thread-safe.
class ForeignRecords {
 public:
  explicit ForeignRecords(ServiceState& state) : state_(state) {}

  /// True when this call takes such a record. The setting `own` forbids it. Otherwise it does in these cases:
  /// - The setting names other toolchains.
  /// - The host has no compiler, or lacks headers that only a toolkit has.
  /// - The service is sealed, or the call may not compile.
  bool are_taken(const Unit& unit, const Permission& permission);
  /// True when the setting allows this key's toolchain.
  bool allows(const Key& key) const;
  /// The image of a record, moved out of it. Null when the record may not serve this unit: it is of another
  /// specialisation, it cannot be read, or its project files were reached only through the toolkit.
  static std::shared_ptr<const StoredImage> image_of(const Unit& unit, cache::Record record);
  /// The candidate with the newest NVRTC version, then the newest one. Of two stores with the same record,
  /// the one that was asked first.
  static std::optional<Obtained> best(std::vector<Obtained> candidates);

 private:
  ServiceState& state_;
};

}  // namespace kiln::runtime
