#include "compile/backend/nvrtc/translation.hpp"

#include <algorithm>
#include <chrono>

#include "compile/backend/nvrtc/log.hpp"

namespace kiln::compile {
namespace {

using toolchain::Nvrtc;
using Status = WorkerResponse::Status;

/// Largest image that is taken: the host holds several copies of one, and the store
/// refuses larger ones anyway.
constexpr std::size_t kMaxImage = std::size_t{256} << 20;

struct Program {
  const Nvrtc& nvrtc;
  toolchain::nvrtcProgram handle = nullptr;
  ~Program() {
    if (handle) nvrtc.DestroyProgram(&handle);
  }
};

std::string fetch(const Nvrtc& nvrtc, toolchain::nvrtcProgram program,
                  toolchain::nvrtcResult (*size_of)(toolchain::nvrtcProgram, size_t*),
                  toolchain::nvrtcResult (*get)(toolchain::nvrtcProgram, char*), const char* call) {
  std::size_t size = 0;
  nvrtc.check(size_of(program, &size), call);
  std::string out(size, '\0');
  if (size) nvrtc.check(get(program, out.data()), call);
  return out;
}

/// Removes the terminating zeros that NVRTC counts, and the directory that programs seem to lie in.
std::string text(std::string bytes) {
  while (!bytes.empty() && bytes.back() == '\0') bytes.pop_back();
  constexpr std::string_view pretended = kProgramDirectory;
  std::string out;
  for (std::string_view rest = bytes;;) {
    const auto at = rest.find(pretended);
    out += rest.substr(0, at);
    if (at == std::string_view::npos) return out;
    rest.remove_prefix(at + pretended.size());
  }
}

/// True when the image or the requested PTX is too large to be taken; the response then says so.
bool refuse_size(const Nvrtc& nvrtc, toolchain::nvrtcProgram program, const WorkerRequest& request,
                 WorkerResponse& response) {
  std::size_t image = 0, ptx = 0;
  nvrtc.check(nvrtc.GetCUBINSize(program, &image), "nvrtcGetCUBINSize");
  if (request.want_ptx) nvrtc.check(nvrtc.GetPTXSize(program, &ptx), "nvrtcGetPTXSize");
  if (std::max(image, ptx) <= kMaxImage) return false;
  response.status = Status::compile_failed;
  response.lowered_names.clear();
  response.log = std::string(image > kMaxImage ? "the image has " : "the PTX has ") +
                 std::to_string(image > kMaxImage ? image : ptx) + " bytes, and at most " +
                 std::to_string(kMaxImage) +
                 " are allowed: fill large __device__ arrays at run time instead of initialising them";
  return true;
}

}  // namespace

bool translate(const Nvrtc& nvrtc, const WorkerRequest& request, const std::vector<std::string>& options,
               WorkerResponse& response) {
  Program program{nvrtc};
  // The compiler finds a header in memory by its exact spelling, before any file, even a file beside the
  // includer. The header only includes its replacement, which thus stays an ordinary file of the closure.
  std::vector<std::string> texts;
  std::vector<const char*> contents, names;
  for (const auto& [name, file] : request.replace) texts.push_back("#include <" + file + ">\n");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    contents.push_back(texts[i].c_str());
    names.push_back(request.replace[i].first.c_str());
  }
  nvrtc.check(nvrtc.CreateProgram(&program.handle, request.source.c_str(), request.program_name.c_str(),
                                  static_cast<int>(names.size()), contents.data(), names.data()),
              "nvrtcCreateProgram");
  for (const std::string& name : request.name_expressions) {
    nvrtc.check(nvrtc.AddNameExpression(program.handle, name.c_str()), "nvrtcAddNameExpression");
  }
  std::vector<const char*> raw;
  for (const std::string& option : options) raw.push_back(option.c_str());

  const auto start = std::chrono::steady_clock::now();
  const toolchain::nvrtcResult result =
      nvrtc.CompileProgram(program.handle, static_cast<int>(raw.size()), raw.data());
  response.total_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  response.log =
      fetch(nvrtc, program.handle, nvrtc.GetProgramLogSize, nvrtc.GetProgramLog, "nvrtcGetProgramLog");
  // Zeros separate the texts of the phases. A reader of C strings would miss ptxas' errors.
  std::erase(response.log, '\0');
  shorten(response.log);
  take_header_message(response.header, response.log, request.program_name);
  response.log = text(std::move(response.log));
  take_phase_times(response);
  if (result != 0) {
    response.status = says_out_of_memory(response.log, nvrtc.GetErrorString(result)) ? Status::out_of_memory
                                                                                     : Status::compile_failed;
    if (response.log.empty()) response.log = nvrtc.GetErrorString(result);
    return false;
  }
  for (const std::string& name : request.name_expressions) {
    const char* lowered = nullptr;
    nvrtc.check(nvrtc.GetLoweredName(program.handle, name.c_str(), &lowered), "nvrtcGetLoweredName");
    response.lowered_names.emplace_back(lowered);
  }
  if (refuse_size(nvrtc, program.handle, request, response)) return false;
  response.image = fetch(nvrtc, program.handle, nvrtc.GetCUBINSize, nvrtc.GetCUBIN, "nvrtcGetCUBIN");
  if (request.want_ptx)
    response.ptx = text(fetch(nvrtc, program.handle, nvrtc.GetPTXSize, nvrtc.GetPTX, "nvrtcGetPTX"));
  response.status = Status::ok;
  return true;
}

}  // namespace kiln::compile
