#include "compile/backend/nvrtc/program.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "base/arch.hpp"
#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/process.hpp"
#include "compile/backend/confinement.hpp"
#include "compile/backend/nvrtc/log.hpp"
#include "compile/backend/nvrtc/pinned_heap.hpp"
#include "compile/backend/nvrtc/translation.hpp"
#include "kiln/error.hpp"
#include "toolchain/nvrtc.hpp"

namespace kiln::compile {
namespace {

using toolchain::Nvrtc;
using Status = WorkerResponse::Status;

constexpr std::size_t kStackBytes = std::size_t{256} << 20;
void link_into(const std::string& directory, const std::string& name, const std::string& target) {
  if (::symlink(target.c_str(), (directory + '/' + name).c_str()) != 0) {
    throw Error(Errc::io, "cannot link '" + name + "' in '" + directory + "': " + std::strerror(errno));
  }
}

/// Makes the folders that a file needs, and returns its path.
std::string path_in(const std::string& directory, const std::string& name) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::path(directory) / name;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw Error(Errc::io, "cannot make the folder of '" + name + "': " + error.message());
  return path;
}

/// A root is a link to its directory. A root of which the compiler sees other texts is a folder of these
/// texts, with links to the other files.
void make_roots(const std::string& directory, const WorkerRequest& request) {
  std::set<std::string, std::less<>> folders;
  for (const auto& [name, text] : request.overlay) {
    folders.insert(name.substr(0, name.find('/')));
    std::ofstream file(path_in(directory, name), std::ios::binary);
    if (!file.write(text.data(), static_cast<std::streamsize>(text.size())).flush())
      throw Error(Errc::io, "cannot write '" + name + "' in '" + directory + "'");
  }
  for (const auto& [name, path] : request.beside) {
    path_in(directory, name);
    link_into(directory, name, path.starts_with('/') ? path : directory + '/' + path);
  }
  for (const auto& [name, path] : request.beside) folders.insert(name.substr(0, name.find('/')));
  for (const auto& [name, path] : request.roots)
    if (!folders.contains(name)) link_into(directory, name, path);
}

/// The header trace goes to a memory file, because NVRTC aborts on an unwritable path and
/// crashes on a full disk.
struct HeaderTrace {
  base::Fd memory;
  HeaderTrace(const std::string& directory) : memory(::memfd_create("kiln-trace", MFD_CLOEXEC)) {
    if (!memory) throw Error(Errc::io, std::string("memfd_create: ") + std::strerror(errno));
    link_into(directory, "trace.json", "/proc/self/fd/" + std::to_string(memory.get()));
  }
  /// NVRTC refuses to write to a trace that is not empty.
  void empty() const {
    if (::ftruncate(memory.get(), 0) != 0)
      throw Error(Errc::io, std::string("ftruncate: ") + std::strerror(errno));
  }
  std::vector<std::string> headers() const {
    std::string text(static_cast<std::size_t>(std::max<off_t>(0, ::lseek(memory.get(), 0, SEEK_END))), '\0');
    if (::pread(memory.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return {};
    return traced_headers(text);
  }
};

/// The options that this NVRTC knows. --no-cache and the seed exist since 12.9, --time and the stack limit
/// since early versions of 12.
std::vector<std::string> options_for(const Nvrtc& nvrtc, const WorkerRequest& request,
                                     const std::string& prefix, bool trace) {
  std::vector<std::string> out{"--gpu-architecture=" + base::Arch::parse(request.arch).compiler_name()};
  for (const auto& [name, path] : request.roots) out.push_back("-I" + prefix + name);
  for (const std::string& option : request.options) {
    if (option == "--no-cache" && !nvrtc.at_least(12, 9)) continue;
    if (option == "--modify-stack-limit=false" && !nvrtc.at_least(12, 1)) continue;
    if (option == "--time=-" && !nvrtc.at_least(12, 1)) continue;
    out.push_back(option);
  }
  if (request.only_headers) out.push_back("--fdevice-syntax-only");
  if (!request.random_seed.empty() && nvrtc.at_least(12, 9))
    out.push_back("-frandom-seed=" + request.random_seed);
  if (trace && nvrtc.at_least(12, 8)) out.push_back("--fdevice-time-trace=" + prefix + "trace");
  return out;
}

/// True when this process can do what `order` says. Otherwise the outcome says why it cannot.
bool ready_for_header(const Nvrtc& nvrtc, const HeaderOrder& order, HeaderOutcome& outcome) {
  outcome.end = HeaderOutcome::End::refused;
  if (order.only_in != 0 && order.only_in != ::getpid()) {
    outcome.end = HeaderOutcome::End::not_here;
    return false;
  }
  if (!nvrtc.has_precompiled_headers())
    outcome.why = "NVRTC before 13.0";
  else if (!reserve_pinned_heap(order.heap_bytes))
    outcome.why = "the address range of its heap cannot be reserved";
  else
    return true;
  return false;
}

/// Sets the heap's size, because NVRTC allocates the heap at the first compile that asks for one.
void set_heap(const Nvrtc& nvrtc, std::uint64_t bytes) {
  static std::uint64_t set = 0;  // a worker compiles one at a time
  if (set != bytes) nvrtc.check(nvrtc.SetPCHHeapSize(bytes), "nvrtcSetPCHHeapSize");
  set = bytes;
}

/// A request's precompiled header, as this thread reaches it once it is confined. The host's descriptor is
/// opened before that, because a confined thread may not look into another process.
struct HeaderFile {
  HeaderOrder::Step step;
  base::Fd used;
  std::string path;
  std::vector<std::string> readable, writable;

  HeaderFile(const WorkerRequest& request, WorkingDirectory whose)
      : step(whose == WorkingDirectory::of_process ? request.header.step : HeaderOrder::Step::none) {
    if (step == HeaderOrder::Step::none) return;
    // The worker's own directory, which is removed with the worker. Created headers lie there, and a compile
    // that uses a header wants to write there.
    const char* directory = std::getenv("TMPDIR");
    writable.emplace_back(directory ? directory : "/tmp");
    path = writable.front() + "/header.pch";
    if (step == HeaderOrder::Step::create) return;
    used = base::Fd(::open(request.header.file.c_str(), O_RDONLY | O_CLOEXEC));
    path = "/proc/self/fd/" + std::to_string(used.get());
    readable.push_back(path);
  }
};

/// True when the response is complete; false when the compile has to be done again without a header.
bool translate_with_header(const Nvrtc& nvrtc, const WorkerRequest& request, const HeaderFile& file,
                           std::vector<std::string> options, WorkerResponse& response) {
  if (!ready_for_header(nvrtc, request.header, response.header)) return false;
  set_heap(nvrtc, request.header.heap_bytes);
  HeaderOutcome& outcome = response.header;
  const bool create = file.step == HeaderOrder::Step::create;
  outcome.file = file.path;
  if (create) ::unlink(file.path.c_str());
  options.push_back((create ? "--create-pch=" : "--use-pch=") + file.path);
  const bool ok = translate(nvrtc, request, options, response);
  // The outcome is the proof: NVRTC goes on without a header that it cannot use, and only warns in the log.
  const bool done = outcome.end == (create ? HeaderOutcome::End::created : HeaderOutcome::End::used);
  if (ok && done && heap_is_pinned()) return true;
  if (create) ::unlink(outcome.file.c_str());
  outcome.end = HeaderOutcome::End::refused;
  outcome.why = !heap_is_pinned() ? "its heap could not be pinned"
                : ok              ? "the compiler did not accept it: " + response.log.substr(0, 300)
                                  : "the compile failed: " + response.log.substr(0, 300);
  return false;
}

std::vector<std::string> headers_in(const HeaderTrace& trace, const WorkerRequest& request) {
  std::vector<std::string> out = trace.headers();
  // Headers in memory only lead to others, which are listed as well.
  std::erase_if(out, [&](const std::string& read) {
    return std::any_of(request.replace.begin(), request.replace.end(),
                       [&](const auto& replaced) { return replaced.first == read; });
  });
  return out;
}

/// `prefix` is empty when `directory` is the working directory. Otherwise it is the directory with a slash.
void compile_in(const std::string& directory, const std::string& prefix, const WorkerRequest& request,
                WorkingDirectory whose, WorkerResponse& response) {
  const Nvrtc& nvrtc = Nvrtc::load(request.compiler.library, request.compiler.builtins);
  const HeaderFile header(request, whose);
  if (whose == WorkingDirectory::of_process)
    confine_compile(request, directory, header.writable, header.readable);
  response.compiler_version = std::to_string(nvrtc.major) + '.' + std::to_string(nvrtc.minor);
  if (const int number = base::Arch::parse(request.arch).number;
      std::find(nvrtc.archs.begin(), nvrtc.archs.end(), number) == nvrtc.archs.end()) {
    response.status = Status::unsupported_arch;
    response.message =
        "NVRTC " + response.compiler_version + " has no code for " + request.arch + "; it knows";
    for (const int arch : nvrtc.archs) response.message += ' ' + base::Arch(arch).name();
    return;
  }
  make_roots(directory, request);
  std::unique_ptr<HeaderTrace> trace;
  // The request alone decides, also when a header is used. NVRTC requires the options of the header's
  // creator, and a trace makes its PTX vary between runs.
  if (request.trace_headers) trace = std::make_unique<HeaderTrace>(directory);
  const std::vector<std::string> options = options_for(nvrtc, request, prefix, trace != nullptr);

  bool done = false;
  if (header.step != HeaderOrder::Step::none) {
    done = translate_with_header(nvrtc, request, header, options, response);
    if (!done) {
      WorkerResponse fresh;
      fresh.compiler_version = response.compiler_version;
      fresh.private_directory = response.private_directory;
      fresh.worker_pid = response.worker_pid;
      fresh.header = std::move(response.header);
      response = std::move(fresh);
      if (trace) trace->empty();
    }
  }
  if (request.only_headers) {
    try {
      translate(nvrtc, request, options, response);
    } catch (const Error&) {  // only headers were wanted: there is no image to read
    }
    response.status = Status::ok;
  } else if (!done) {
    translate(nvrtc, request, options, response);
  }
  if (trace && response.status == Status::ok) response.headers_read = headers_in(*trace, request);
}

/// Number of compiles in this process. A child that is forked during a compile inherits the number for ever,
/// as it inherits the lock that NVRTC compiles under.
constinit std::atomic<int> g_compiling{0};
struct Inherited {
  const bool locked = g_compiling != 0;
};
constinit base::ProcessWide<Inherited> g_inherited;

class Compiling {
 public:
  Compiling() {
    if (g_inherited.get().locked)
      throw Error(
          Errc::no_compiler,
          "this process was forked while its parent compiled in its own process, so the compiler stays "
          "locked here for ever: give kiln a kiln-worker executable (KILN_WORKER), or fork before any "
          "compile");
    ++g_compiling;
  }
  ~Compiling() { --g_compiling; }
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;
};

struct Job {
  const WorkerRequest& request;
  WorkerResponse& response;
  WorkingDirectory whose;
};

void* thread_main(void* argument) noexcept {
  const Job& job = *static_cast<Job*>(argument);
  try {
    const Compiling here;
    const base::TempDir directory("kiln-compile-");
    job.response.private_directory = directory.path();
    const bool entered = (job.whose == WorkingDirectory::of_process || ::unshare(CLONE_FS) == 0) &&
                         ::chdir(directory.path().c_str()) == 0;
    compile_in(directory.path(), entered ? "" : directory.path() + '/', job.request, job.whose, job.response);
    if (entered && ::chdir("/") != 0) throw Error(Errc::io, "cannot leave the compile directory");
  } catch (const Error& error) {
    job.response.status = error.code() == Errc::no_compiler ? Status::no_compiler : Status::failed;
    job.response.message = error.what();
  } catch (const std::bad_alloc&) {
    job.response.status = Status::out_of_memory;
  } catch (const std::exception& error) {
    job.response.status = Status::failed;
    job.response.message = error.what();
  }
  return nullptr;
}

}  // namespace

WorkerResponse run_nvrtc(const WorkerRequest& request, WorkingDirectory whose) noexcept {
  WorkerResponse response;
  response.worker_pid = ::getpid();
  Job job{request, response, whose};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  // A limit on the threads of the user or of the container may be reached for a moment.
  int error = 0;
  const auto deadline = base::Deadline::after(std::chrono::seconds(5));
  base::poll_until(deadline, [&] {
    error = pthread_create(&thread, &attributes, thread_main, &job);
    return error != EAGAIN;
  });
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    response.message =
        std::string("cannot start a compile thread with a 256 MiB stack: ") + std::strerror(error);
  } else {
    pthread_join(thread, nullptr);
  }
  return response;
}

}  // namespace kiln::compile
