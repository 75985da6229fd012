// kiln: CUDA kernels specialised, compiled, cached and launched at run time.
//
//   kiln::Service service;
//   auto rms_norm = service.open("rms_norm");
//   kiln::Kernel k = rms_norm.get(kiln::Dtype::bf16, 4096);
//   k(stream, out, x, w, rows, stride_x, stride_out, eps);
#pragma once

#include "kiln/attention.hpp"
#include "kiln/blobs.hpp"
#include "kiln/digest.hpp"
#include "kiln/dtype.hpp"
#include "kiln/error.hpp"
#include "kiln/event.hpp"
#include "kiln/family.hpp"
#include "kiln/kernel.hpp"
#include "kiln/kernel_template.hpp"
#include "kiln/operator.hpp"
#include "kiln/options.hpp"
#include "kiln/scope.hpp"
#include "kiln/service.hpp"
#include "kiln/specialization.hpp"
