#include "closure/trace.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "base/hash.hpp"
#include "base/wire.hpp"
#include "closure/include_search.hpp"

namespace kiln::source {
namespace {

// Changes whenever a scan asks or concludes something else: together with the magic in scan_memo.cpp, and
// after such changes in closure.cpp, macro_names.cpp, include_search.cpp and search_directories.cpp.
constexpr std::string_view kRules = "scan 5, search 1";

constexpr std::size_t kFileBytes = 100;  ///< bytes that a file takes in a trace, roughly

void write(base::Writer& out, const Digest& digest) {
  out.str().append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
}

Digest read_digest(base::Reader& in) {
  Digest out;
  std::memcpy(out.bytes.data(), in.take(out.bytes.size()).data(), out.bytes.size());
  return out;
}

void write(base::Writer& out, const base::FileStamp& stamp) {
  out.number(stamp.device).number(stamp.inode).number(stamp.size).number(stamp.mount);
  out.number(stamp.modified_ns).number(stamp.changed_ns);
}

base::FileStamp read_stamp(base::Reader& in) {
  base::FileStamp out;
  for (std::uint64_t* field : {&out.device, &out.inode, &out.size, &out.mount})
    *field = in.number<std::uint64_t>();
  out.modified_ns = in.number<std::int64_t>();
  out.changed_ns = in.number<std::int64_t>();
  return out;
}

void write(base::Writer& out, const std::vector<std::string>& texts) {
  out.list(texts, [](base::Writer& w, const std::string& text) { w.bytes(text); });
}

std::vector<std::string> read_texts(base::Reader& in) {
  std::vector<std::string> out;
  in.list([&](base::Reader& r) { out.push_back(r.string()); });
  return out;
}

/// The search directories as descriptors, so that the kernel does not walk their paths again for each name.
class OpenedDirectories {
 public:
  explicit OpenedDirectories(const IncludeSearch& search)
      : search_(search), fds_(search.directories().size()) {}

  /// Negative when the directory is no longer the one that the search found.
  int at(std::size_t directory) {
    base::Fd& fd = fds_.at(directory);
    if (fd) return fd.get();
    const SearchDirectory& known = search_.directories()[directory];
    struct stat st;
    fd = base::Fd(::open(known.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (fd && (::fstat(fd.get(), &st) != 0 || st.st_dev != known.device || st.st_ino != known.inode))
      fd.reset();
    return fd.get();
  }

 private:
  const IncludeSearch& search_;
  std::vector<base::Fd> fds_;
};

bool is_absent(int error) { return error == ENOENT || error == ENOTDIR || error == EISDIR; }

/// A name in a trace. It ends with a zero, so that it can be passed to the system without a copy.
std::string_view read_name(base::Reader& in) {
  const std::string_view out = in.bytes();
  if (out.size() < 2 || out.back() != '\0') throw base::Malformed("name");
  return out.substr(0, out.size() - 1);
}

/// Asks all questions again. False when an answer differs.
bool ask_again(base::Reader& in, IncludeSearch& search, Closure& out,
               std::vector<std::pair<std::size_t, std::string_view>>& found) {
  OpenedDirectories opened(search);
  bool same = true;
  in.list([&](base::Reader& r) {
    const auto what = r.number<Asked::What>();
    const std::size_t directory = r.number<std::uint16_t>();
    const bool there = r.number<std::uint8_t>() != 0;
    const std::string_view name = read_name(r);
    if (directory >= search.directories().size()) throw base::Malformed("directory");
    const SearchDirectory& in_directory = search.directories()[directory];
    ClosureFile file;
    if (there && what == Asked::What::file) {
      file.digest = read_digest(r);
      file.via_toolkit = r.number<std::uint8_t>() != 0;
      if (in_directory.toolkit) file.stamp = read_stamp(r);
    }
    const int at = same ? opened.at(directory) : -1;
    if (at < 0) {
      same = false;
    } else if (what == Asked::What::folder) {
      struct stat st;
      same = (::fstatat(at, name.data(), &st, 0) == 0) == there;
    } else if (!there) {
      same = !base::FileStamp::of(at, name.data()) && is_absent(errno);
    } else if (in_directory.toolkit) {
      same = base::FileStamp::of(at, name.data()) == file.stamp;
      file.toolkit = file.settled = true;  // only settled files are in a trace
    } else {
      const auto scanned = search.read_again(directory, std::string(name));
      same = scanned && scanned->digest == file.digest;
      if (same) file.stamp = scanned->stamp, file.settled = scanned->settled;
    }
    if (!same || !there || what != Asked::What::file) return;
    out.files.push_back(std::move(file));
    found.emplace_back(directory, name);
  });
  return same;
}

}  // namespace

Digest trace_key(std::string_view source, const std::vector<std::string>& extra,
                 const IncludeSearch& search) {
  base::Writer out;
  const Digest text = base::digest_of(source);  // hashed first, so that a source of megabytes is not copied
  out.bytes(kRules).bytes({reinterpret_cast<const char*>(text.bytes.data()), text.bytes.size()});
  write(out, extra);
  out.list(search.directories(), [](base::Writer& w, const SearchDirectory& d) {
    w.bytes(d.path).number<std::uint8_t>(d.toolkit).number(d.device).number(d.inode);
  });
  out.list(search.replacements(), [](base::Writer& w, const auto& r) { w.bytes(r.first).bytes(r.second); });
  return base::digest_of(out.str());
}

std::optional<std::string> encode_trace(const Closure& closure, const std::vector<Asked>& asked,
                                        const IncludeSearch& search) {
  bool toolkit = false;
  for (const ClosureFile& file : closure.files) {
    toolkit |= file.toolkit;
    if (file.toolkit && !file.settled) return std::nullopt;
  }
  if (!toolkit) return std::nullopt;
  base::Writer out;
  std::size_t next = 0;
  out.list(asked, [&](base::Writer& w, const Asked& a) {
    w.number(a.what).number(static_cast<std::uint16_t>(a.directory)).number<std::uint8_t>(a.there);
    w.bytes(std::string_view(a.name.c_str(), a.name.size() + 1));
    if (!a.there || a.what != Asked::What::file) return;
    const ClosureFile& file = closure.files.at(next++);
    write(w, file.digest);
    w.number<std::uint8_t>(file.via_toolkit);
    if (file.toolkit) write(w, file.stamp);
  });
  out.list(search.directories(), [](base::Writer& w, const SearchDirectory& d) { w.bytes(d.name); });
  out.list(closure.edges, [](base::Writer& w, const ProjectEdge& e) {
    w.bytes(e.includer).bytes(e.spelling).number(static_cast<std::uint32_t>(e.file));
  });
  write(out, closure.missing);
  write(out, closure.computed_probes);
  write(out, closure.date_time);
  out.number<std::uint8_t>(closure.computed).number<std::uint8_t>(closure.toolkit_computed);
  return std::move(out.str());
}

std::optional<Closure> replay(std::string_view trace, IncludeSearch& search) try {
  base::Reader in(trace);
  Closure out;
  out.files.reserve(trace.size() / kFileBytes);
  std::vector<std::pair<std::size_t, std::string_view>> found;  // for each file: directory and relative name
  if (!ask_again(in, search, out, found)) return std::nullopt;

  const std::vector<std::string> names = read_texts(in);
  if (names.size() != search.directories().size()) throw base::Malformed("directories");
  for (std::size_t d = 0; d < names.size(); ++d) {
    const SearchDirectory& directory = search.directories()[d];
    if (!names[d].empty()) out.roots.push_back({names[d], directory.path, directory.toolkit});
  }
  const auto joined = [](const std::string& directory, std::string_view name) {
    std::string path;
    path.reserve(directory.size() + 1 + name.size());
    return path.append(directory).append(1, '/').append(name);
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [directory, name] = found[i];
    out.files[i].path = joined(search.directories()[directory].path, name);
    out.files[i].symbolic = joined(names[directory], name);
  }
  in.list([&](base::Reader& r) {
    ProjectEdge& edge = out.edges.emplace_back();
    edge.includer = r.string();
    edge.spelling = r.string();
    edge.file = r.number<std::uint32_t>();
    if (edge.file >= out.files.size()) throw base::Malformed("edge");
  });
  out.missing = read_texts(in);
  out.computed_probes = read_texts(in);
  out.date_time = read_texts(in);
  out.computed = in.number<std::uint8_t>() != 0;
  out.toolkit_computed = in.number<std::uint8_t>() != 0;
  out.memoised = true;
  return in.empty() ? std::optional(std::move(out)) : std::nullopt;
} catch (const base::Malformed&) {
  return std::nullopt;
}

}  // namespace kiln::source
