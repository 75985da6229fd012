// The library's entry. It creates the service, and hands down the work lists, which the runtime
// does not know.
#include "library/work_lists.hpp"
#include "runtime/abi/common.hpp"
#include "runtime/abi/options.hpp"

using namespace kiln;
using namespace kiln::runtime;
using namespace kiln::runtime::c_api;

extern "C" kiln_status kiln_service_create(const kiln_options* options, kiln_service** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    const kiln_options in = sized(options);
    *out = new kiln_service(options_of(in), default_memo_file(), Events(in.on_event, in.event_user),
                            library::work_lists());
  });
}
