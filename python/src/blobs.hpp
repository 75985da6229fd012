// Blobs and their leases as Python classes over the C ABI.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>

#include "holder.hpp"

namespace kiln::python {

/// kiln._kiln.Blobs over kiln_service_open_blobs. REQUIRES: the GIL.
nanobind::object open_blobs(const std::shared_ptr<Holder>& holder, const std::string& space,
                            const std::string& compatibility, std::uint64_t budget, bool refuse_when_sealed,
                            bool behind);
void add_blobs(nanobind::module_& m);

}  // namespace kiln::python
