#include "runtime/state/recorder.hpp"
#include "runtime/state/template_dump.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/file_size_signal.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "cache/lock/gate.hpp"
#include "instantiate/trace_text.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;  // `kiln prewarm` reads no more
constexpr std::size_t kMaxPending = 10'000;
constexpr std::int64_t kLockOffset = std::int64_t{1} << 62;  // after every byte that will ever be written

std::string normal_file(const std::string& file) {
  const auto path = base::absolute(file);
  return path ? base::normalized(*path) : file;
}

[[noreturn]] void fail(const std::string& what) { throw Error(Errc::io, what + ": " + std::strerror(errno)); }

struct stat stat_of(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) fail("stat");
  return st;
}

/// True while `file` names the file that was opened: somebody may have moved the trace away.
bool still_there(const std::string& file, const struct stat& opened) noexcept {
  struct stat st {};
  return ::stat(file.c_str(), &st) == 0 && st.st_dev == opened.st_dev && st.st_ino == opened.st_ino;
}

std::string read_range(int fd, std::int64_t from, std::int64_t to) {
  std::string out(static_cast<std::size_t>(to - from), '\0');
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd, out.data() + done, out.size() - done,
                              static_cast<off_t>(from) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read");
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  out.resize(done);
  return out;
}

/// Writes all of `text`, or none of it.
void write_whole(int fd, std::string_view text) {
  const base::NoFileSizeSignal no_signal;
  const off_t before = ::lseek(fd, 0, SEEK_END);
  ssize_t n = -1;
  do n = ::write(fd, text.data(), text.size());
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(text.size())) return;
  const int error = n < 0 ? errno : ENOSPC;
  // If the truncation fails, the row lacks its end mark.
  if (n > 0 && before >= 0) static_cast<void>(::ftruncate(fd, before) == 0);
  errno = error;
  fail("write");
}

/// True for a tail that no editor leaves: without its newline, or with zeros.
bool is_torn(std::string_view tail) noexcept {
  return !tail.empty() && (tail.back() != '\n' || tail.find('\0') != std::string_view::npos);
}

}  // namespace

std::string templates_beside(const std::string& record) { return record + ".templates"; }

Recorder::Recorder(const std::string& file) : file_(normal_file(file)) {}

Recorder::~Recorder() {
  if (file_.empty()) return;
  try {
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    state.patient = true;
    if (!state.pending.empty()) drain(state);
    if (!state.pending.empty())
      base::warn(file_ + ": " + std::to_string(state.pending.size()) + " rows could not be recorded");
  } catch (...) {  // what is lost was warned about
  }
}

void Recorder::record(const source::Template& origin, const source::Resolved& resolved, When when) noexcept {
  if (file_.empty()) return;
  try {
    Row row;
    row.text = source::trace_row(resolved);
    row.digest = base::digest_of(row.text);
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    if (!state.asked.insert(row.digest).second) return;
    row.template_name = origin.manifest.name;
    row.work_lists = origin.work_lists;
    if (origin.directory.empty()) row.dump = {origin.text, origin.kernel.memory, origin.reference.memory};
    if (state.pending.size() < kMaxPending) state.pending.push_back(std::move(row));
    if (when == When::now) drain(state);
  } catch (const std::exception& error) {
    warn(error.what());
  } catch (...) {
  }
}

void Recorder::warn(const char* what) const noexcept try {
  base::warn_once("record " + file_, "some specialisations that were asked for are not recorded: '" + file_ +
                                         "': " + what + " (KILN_RECORD)");
} catch (...) {  // out of memory
}

/// Writes the pending rows. Rows that stay pending are tried again with the next row.
void Recorder::drain(State& state) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    // A child that is forked meanwhile must not keep the descriptor, because the descriptor keeps the lock.
    const base::ClosedAtFork fd(
        ::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644));
    if (!fd) fail("open");
    const struct stat st = stat_of(fd.get());
    if (!S_ISREG(st.st_mode)) {
      state.pending.clear();
      throw Error(Errc::io, "is no regular file");
    }
    const auto lock =
        cache::RangeLock::acquire(fd.get(), kLockOffset, cache::RangeLock::Mode::exclusive,
                                  base::Deadline::after(state.patient ? kPatience : base::Clock::duration{}));
    state.patient = lock.has_value();
    if (!lock) throw Error(Errc::io, "another process keeps it locked");
    if (!still_there(file_, st)) continue;
    if (!catch_up(state, fd.get())) {
      state.pending.clear();
      throw Error(Errc::io, "is no trace of this version of kiln, and is left as it is");
    }
    while (!state.pending.empty()) {
      if (!append(state, fd.get(), state.pending.front())) {
        state.pending.clear();
        throw Error(Errc::io, "has reached " + std::to_string(kMaxBytes >> 20) +
                                  " MiB: move it away, and kiln begins a new one");
      }
      state.pending.pop_front();
    }
    return;
  }
  throw Error(Errc::io, "is replaced again and again");
}

/// Reads what others have appended, and removes a torn end. False when the file is no trace. Under the lock.
bool Recorder::catch_up(State& state, int fd) {
  const struct stat st = stat_of(fd);
  std::int64_t size = st.st_size;
  if (state.device != st.st_dev || state.inode != st.st_ino || size < state.read) {
    state.device = st.st_dev, state.inode = st.st_ino, state.read = 0;
    state.in_file.clear();
  }
  if (size == state.read && size > 0) return true;
  const std::string text = read_range(fd, state.read, std::min(size, kMaxBytes));
  std::size_t sound = 0;
  if (state.read == 0) {
    if (text.starts_with(source::kTraceHeader))
      sound = source::kTraceHeader.size();
    else if (source::is_trace(text))
      sound = 0;  // the first line is lost; it is written again unless finished rows follow
    else if (!source::kTraceHeader.starts_with(text))  // the file may have been torn inside its first line
      return false;
  }
  const std::size_t rows_end = source::each_finished_row(
      text, [&](std::string_view row) { state.in_file.insert(base::digest_of(row)); });
  sound = std::max(sound, rows_end);
  if (size <= kMaxBytes && is_torn(std::string_view(text).substr(sound))) {
    size = state.read + static_cast<std::int64_t>(sound);
    if (::ftruncate(fd, size) != 0) fail("truncate");
  }
  state.read = size;
  return true;
}

/// False when the file is full. Under the lock.
bool Recorder::append(State& state, int fd, const Row& row) {
  if (state.in_file.contains(row.digest) || !is_ours(state, row)) return true;
  std::string text;
  if (state.read == 0) text = std::string(source::kTraceHeader) + std::string(source::kTracePreamble);
  text += row.text;
  if (state.read + static_cast<std::int64_t>(text.size()) > kMaxBytes) return false;
  write_whole(fd, text);
  state.read += static_cast<std::int64_t>(text.size());
  state.in_file.insert(row.digest);
  return true;
}

/// True when the row and the trace mean the same template by its name. Under the lock.
bool Recorder::is_ours(State& state, const Row& row) {
  if (row.dump.manifest.empty()) return true;
  const auto known = state.dumped.find(row.template_name);
  if (known != state.dumped.end()) return known->second;
  const std::string directory = templates_beside(file_);
  const bool ours = dump_template(directory, row.template_name, row.dump, row.work_lists);
  state.dumped.emplace(row.template_name, ours);
  if (!ours) {
    base::warn_once("record " + directory + row.template_name,
                    "the template '" + row.template_name + "' from memory differs from the one in '" +
                        directory + "': its specialisations are not recorded. Remove '" + file_ +
                        "' and that directory to begin a new trace");
  }
  return ours;
}

}  // namespace kiln::runtime
