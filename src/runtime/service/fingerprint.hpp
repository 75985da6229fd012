// The code that a process uses, by which the ranks of one job find out whether they run the same code.
#pragma once

#include <map>
#include <set>
#include <string>

#include "kiln/digest.hpp"

namespace kiln::runtime {

/// The contents of one space by their names: "rms_norm T=bf16 H=4096 sm_90a" has the digest of its image. A name
/// has several contents where scopes have several templates of one name.
using UsedItems = std::map<std::string, std::set<std::string>>;
/// All spaces: "kernels" has the loaded kernels, and each other one the blobs that were read or stored.
using Used = std::map<std::string, UsedItems>;

inline constexpr const char* kKernelSpace = "kernels";

/// A digest of one space. Equal in two processes that use the same items, in whatever order.
Digest fingerprint_of(const std::string& space, const UsedItems& items);
/// A digest of all spaces that have items.
Digest fingerprint_of(const Used& used);

/// The fields that kiln_service_describe_fingerprint() documents, as a JSON object.
std::string to_json(const Used& used);

}  // namespace kiln::runtime
