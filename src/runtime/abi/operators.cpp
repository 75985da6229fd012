// The C ABI over operators.
#include "runtime/abi/common.hpp"

using namespace kiln;
using namespace kiln::runtime;
using namespace kiln::runtime::c_api;

extern "C" {

kiln_status kiln_service_open_operator(kiln_service* service, const char* name, int32_t device,
                                       const char* arch, kiln_operator** out) {
  return guarded([&] {
    require(name && out, "name and out must not be null");
    const Operator& opened = of(service).operators().open(name, device, text(arch));
    *out = reinterpret_cast<kiln_operator*>(const_cast<Operator*>(&opened));
  });
}

kiln_status kiln_service_describe_operators(kiln_service* service, const char* name, kiln_text* out) {
  return guarded([&] { give_text(out, [&] { return of(service).operators().describe(text(name)); }); });
}

kiln_status kiln_operator_call(kiln_operator* op, const kiln_call* call) {
  return guarded([&] {
    require(op && call, "operator and call must not be null");
    const auto& opened = *reinterpret_cast<const Operator*>(op);
    if (call->struct_size == sizeof *call) [[likely]]
      return opened.call(*call);
    opened.call(sized(call));
  });
}

}  // extern "C"
