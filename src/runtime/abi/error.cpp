// The last error of each thread.
#include <new>

#include "runtime/abi/common.hpp"

namespace kiln::runtime::c_api {
namespace {

struct LastError {
  std::string message, specialization, options, log;
  kiln_error view{sizeof(kiln_error), 0, "", "", "", ""};
};
thread_local LastError t_error;

kiln_status fail(Errc code, const char* message, const CompileError* compile = nullptr) noexcept {
  LastError& e = t_error;
  const auto status = static_cast<kiln_status>(code);
  try {
    e.message = message;
    e.specialization = compile ? compile->specialization() : "";
    e.options = compile ? compile->options() : "";
    e.log = compile ? compile->log() : "";
    e.view = {sizeof(kiln_error), status,       e.message.c_str(), e.specialization.c_str(),
              e.options.c_str(),  e.log.c_str()};
  } catch (...) {
    e.view = {sizeof(kiln_error), status, "out of memory while reporting an error", "", "", ""};
  }
  return status;
}

}  // namespace

kiln_status keep_current_exception() noexcept {
  try {
    throw;
  } catch (const CompileError& error) {
    return fail(error.code(), error.what(), &error);
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(Errc::internal, "out of memory");
  } catch (const std::exception& error) {
    return fail(Errc::internal, error.what());
  } catch (...) {
    return fail(Errc::internal, "unknown exception");
  }
}

}  // namespace kiln::runtime::c_api

extern "C" const kiln_error* kiln_last_error(void) { return &kiln::runtime::c_api::t_error.view; }
