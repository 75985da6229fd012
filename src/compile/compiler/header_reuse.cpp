#include "compile/compiler/header_reuse.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "base/hash.hpp"
#include "base/wire.hpp"
#include "compile/backend/backend.hpp"

namespace kiln::compile {
namespace {

using Answer = WorkerProcess::Answer;
using End = HeaderOutcome::End;
using Fate = Answer::Fate;
using Status = WorkerResponse::Status;

bool succeeded(const Answer& answer) {
  return answer.fate == Fate::answered && answer.response.status == Status::ok;
}

/// The way of one compile through the states of a header's name. When it ends unsettled, by an exception or a
/// kill, the header is `off`.
class HeaderCompile {
 public:
  HeaderCompile(const WorkerRequest& request, const HeaderUnit& unit, PrecompiledHeaders& headers,
                const Ask& ask, const Digest& name)
      : request_(request), unit_(unit), headers_(headers), ask_(ask), name_(name) {}
  HeaderCompile(const HeaderCompile&) = delete;
  HeaderCompile& operator=(const HeaderCompile&) = delete;
  ~HeaderCompile() {
    if (!settled_) headers_.off(name_, "its compile did not end");
  }

  Answer run() {
    PrecompiledHeaders::Turn turn = headers_.take(name_, unit_.more_to_come ? 2 : 1);
    if (turn.step == PrecompiledHeaders::Step::create) return create();
    if (turn.header && !turn.header->intact()) {
      off("its file was changed");
      return ask_(request_);
    }
    if (turn.step == PrecompiledHeaders::Step::prove && !prove(turn)) return ask_(request_);
    if (turn.header) return use(turn);
    return ask_(request_);
  }

 private:
  Answer ask(const WorkerRequest& request, HeaderOrder::Step step, const PrecompiledHeaders::Turn& turn) {
    WorkerRequest ordered = request;
    ordered.header = {step, turn.header ? turn.header->path() : std::string(), headers_.settings().heap_bytes,
                      turn.only_in};
    return ask_(ordered);
  }

  void off(const std::string& why) {
    settled_ = true;
    headers_.off(name_, why);
  }

  /// Compiles without the header when the header may have caused the failure. A deadline and the end of the
  /// service have other causes.
  Answer without_after(Answer failed) {
    const bool headers_fault = failed.fate == Fate::died || failed.fate == Fate::out_of_memory;
    return headers_fault ? ask_(request_) : std::move(failed);
  }

  Answer create() {
    settled_ = false;
    Answer answer = ask(request_, HeaderOrder::Step::create, {});
    if (answer.fate != Fate::answered) {
      off("the worker ended while it created the header: " + answer.how);
      return without_after(std::move(answer));
    }
    const WorkerResponse& r = answer.response;
    if (r.header.end == End::created && r.status == Status::ok) {
      take_over(r);
    } else if (r.status == Status::compile_failed) {
      settled_ = true;
      headers_.undecided(name_);
    } else {
      off(r.header.why);
    }
    return answer;
  }

  void take_over(const WorkerResponse& r) {
    if (const auto& watch = headers_.settings().on_created) watch(r.header.file);
    auto made = std::make_shared<PrecompiledHeader>();
    made->file = base::Fd(::open(r.header.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    ::unlink(r.header.file.c_str());
    base::close_at_fork(made->file.get());
    const auto stamp =
        made->file ? base::FileStamp::of("/proc/self/fd/" + std::to_string(made->file.get())) : std::nullopt;
    if (!stamp || stamp->size == 0) return off("its file cannot be opened");
    // A proof repeats everything but the front end, so there is little to gain when that
    // is most of a compile.
    if (r.frontend_ms < headers_.settings().min_front_end * r.total_ms)
      return off("the front end is a small part of its compile");
    if (r.image.find(r.private_directory) != std::string::npos)
      return off("its image names the directory that it was compiled in");
    // This check comes after everything was read, so that the compiler read what was hashed. Where no include
    // is computed, the scan has found all files; publishing relies on that, too.
    if (request_.trace_headers && r.headers_read.empty())
      return off("the compiler did not report which files it read");
    if (const auto read = read_but_not_hashed(unit_.closure, r.headers_read))
      return off("the compiler read '" + *read + "', which the header's name does not cover");
    if (const auto changed = unit_.closure.changed())
      return off("'" + *changed + "' changed during the compile");
    if (!unit_.same_closure()) return off("its include closure changed during the compile");
    made->stamp = *stamp;
    made->creator = r.worker_pid;
    made->headers_read = r.headers_read;
    made->proof = {request_, r.image, backend().diagnostics(r.log), r.lowered_names};
    settled_ = true;
    headers_.created(name_, std::move(made));
  }

  /// Repeats the creator's compile with the header. True when the result is equal, so that this
  /// compile may use the header.
  bool prove(PrecompiledHeaders::Turn& turn) {
    settled_ = false;
    const HeaderProof& proof = turn.header->proof;
    const Answer answer = ask(proof.request, HeaderOrder::Step::use, turn);
    if (answer.fate != Fate::answered) {
      off("the worker ended while it proved the header: " + answer.how);
      return false;
    }
    const WorkerResponse& r = answer.response;
    if (r.header.end != End::used || r.status != Status::ok) {
      off(r.header.why);
      return false;
    }
    settled_ = true;
    if (r.image != proof.image || r.lowered_names != proof.lowered_names) {
      headers_.off_for_all("a precompiled header of " + request_.program_name +
                           " gave a different image than the headers themselves");
      return false;
    }
    // Warnings about the headers: a use does not show them.
    if (backend().diagnostics(r.log) != proof.diagnostics) {
      off("it hides diagnostics of its headers");
      return false;
    }
    headers_.proven(name_, turn, r.worker_pid);
    turn.only_in = r.worker_pid == turn.header->creator ? r.worker_pid : 0;
    return true;
  }

  Answer use(const PrecompiledHeaders::Turn& turn) {
    Answer answer = ask(request_, HeaderOrder::Step::use, turn);
    if (answer.fate != Fate::answered) {
      off("the worker ended while it used the header: " + answer.how);
      return without_after(std::move(answer));
    }
    WorkerResponse& r = answer.response;
    if (r.header.end == End::used) {
      headers_.count_use();
      // Headers that the precompiled header contains come first, then headers that were read besides.
      r.headers_read.insert(r.headers_read.begin(), turn.header->headers_read.begin(),
                            turn.header->headers_read.end());
    } else if (r.header.end == End::not_here) {
      headers_.unproven(name_);
    } else if (succeeded(answer)) {
      off(r.header.why);
    }
    return answer;
  }

  const WorkerRequest& request_;
  const HeaderUnit& unit_;
  PrecompiledHeaders& headers_;
  const Ask& ask_;
  const Digest& name_;
  bool settled_ = true;
};

}  // namespace

Answer ask_with_headers(const WorkerRequest& request, const HeaderUnit& unit, PrecompiledHeaders& headers,
                        const Ask& ask) {
  const auto name = header_name(request, unit.closure, unit.toolkit, headers.settings());
  return name ? HeaderCompile(request, unit, headers, ask, *name).run() : ask(request);
}

Answer ask_without_trace(WorkerRequest request, const Ask& ask) {
  request.trace_headers = false;
  Answer answer = ask(request);
  if (answer.fate == Fate::died && answer.signal == 0)
    answer = ask(request);  // the worker that refused has left
  if (answer.fate != Fate::answered || answer.response.status != Status::ok) return answer;
  request.trace_headers = request.only_headers = true;
  request.name_expressions.clear();
  const Answer read = ask(request);
  if (read.fate == Fate::answered) answer.response.headers_read = read.response.headers_read;
  return answer;  // without a list of headers it is not published
}

std::optional<Digest> header_name(const WorkerRequest& request, const source::Closure& closure,
                                  const toolchain::Toolkit& toolkit, const HeaderSettings& settings) {
  if (!settings.enabled || closure.files.size() < settings.min_files) return std::nullopt;
  // It is not known whether a precompiled header keeps headers in memory.
  if (!request.replace.empty()) return std::nullopt;
  if (toolkit.compiler_identity.empty() || toolkit.builtins_identity.empty()) return std::nullopt;
  // Digests from a memo are not digests of the content. Dates and computed probes are in no digest at all.
  if (closure.memoised || !closure.date_time.empty() || !closure.computed_probes.empty()) return std::nullopt;
  base::Writer text;
  const auto put = [](base::Writer& w, const std::string& value) { w.bytes(value); };
  text.bytes("kiln-header 2").bytes(toolkit.compiler_identity).bytes(toolkit.builtins_identity);
  text.bytes(request.arch).bytes(request.program_name).bytes(request.source).number(settings.heap_bytes);
  text.list(request.options, put);
  text.list(request.roots, [](base::Writer& w, const auto& root) { w.bytes(root.first); });
  text.list(request.overlay,
            [](base::Writer& w, const auto& file) { w.bytes(file.first).bytes(file.second); });
  text.list(closure.files, [](base::Writer& w, const source::ClosureFile& file) {
    w.bytes(file.symbolic)
        .bytes({reinterpret_cast<const char*>(file.digest.bytes.data()), file.digest.bytes.size()});
  });
  return base::digest_of(text.str());
}

std::optional<std::string> read_but_not_hashed(const source::Closure& closure,
                                               const std::vector<std::string>& headers_read) {
  std::set<std::string, std::less<>> hashed;
  for (const source::ClosureFile& file : closure.files) hashed.insert(base::normalized(file.symbolic));
  for (const std::string& read : headers_read) {
    if (!hashed.contains(base::normalized(read))) return read;
  }
  return std::nullopt;
}

}  // namespace kiln::compile
