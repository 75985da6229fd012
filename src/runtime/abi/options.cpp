#include "runtime/abi/options.hpp"

#include "runtime/abi/common.hpp"

namespace kiln::runtime::c_api {

Options options_of(const kiln_options& in) {
  Options o;
  o.ignore_environment = in.hermetic != 0;
  require(in.mode >= KILN_MODE_DEFAULT && in.mode <= KILN_MODE_SEALED, "mode is not one of KILN_MODE_*");
  require(in.adopt == KILN_ADOPT_WHEN_ASKED || in.adopt == KILN_ADOPT_AUTOMATICALLY,
          "adopt is not one of KILN_ADOPT_*");
  o.mode = static_cast<Mode>(in.mode);
  o.cache_dir = text(in.cache_dir), o.template_path = text(in.template_path),
  o.include_path = text(in.include_path);
  o.cuda_home = text(in.cuda_home), o.toolchain = text(in.toolchain), o.arch = text(in.arch),
  o.worker = text(in.worker);
  o.jobs = in.jobs;
  o.compile_deadline_s = in.compile_deadline_s;
  o.cache_layers = text(in.cache_layers), o.cache_max_size = text(in.cache_max_size);
  o.record = text(in.record), o.compile_memory = text(in.compile_memory);
  o.adopt = static_cast<Adopt>(in.adopt);
  o.remote = text(in.remote), o.remote_mode = text(in.remote_mode), o.remote_key = text(in.remote_key);
  o.remote_sign = text(in.remote_sign), o.remote_sealed = text(in.remote_sealed);
  o.remote_budget_s = in.remote_budget_s;
  return o;
}

}  // namespace kiln::runtime::c_api
