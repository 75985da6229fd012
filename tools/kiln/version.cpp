#include "tools/kiln/version.hpp"

#include "cache/place/directory.hpp"
#include "compile/key/fields.hpp"
#include "kiln/kiln.h"
#include "manifest/manifest.hpp"

namespace kiln::cli {

extern const char* const kRevision;  // revision.cmake writes its file

Json version_json() {
  return {{"schema", "kiln.version/1"},
          {"version", kiln_version()},
          {"revision", kRevision},
          {"build_type", KILN_BUILD_TYPE},
          {"abi", KILN_ABI},
          {"store_schema", cache::kStoreSchema},
          {"key_schema", std::stoi(std::string(compile::kKeySchema))},
          {"manifest_format", source::kManifestFormat}};
}

}  // namespace kiln::cli
