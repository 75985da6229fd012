#include "manifest/catalog.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kMaxManifest = std::size_t{4} << 20, kMaxSource = std::size_t{64} << 20;

/// Names become file names, so they must not leave the directory.
bool may_be_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

/// "/a, /b (does not exist)".
std::string searched_text(const std::vector<std::string>& directories) {
  if (directories.empty()) return "no directory";
  std::vector<std::string> out;
  for (const std::string& directory : directories) {
    std::error_code error;
    const bool missing = fs::status(directory, error).type() == fs::file_type::not_found;
    out.push_back(directory + (missing ? " (does not exist)" : ""));
  }
  return base::join(out, ", ");
}

/// The entries of a directory of the template path, without names that begin with a dot.
struct Listing {
  bool complete = false;              ///< false: the directory cannot be read, or not to its end
  std::vector<std::string> families;  ///< sorted: folders, and entries that may be folders
  std::vector<std::string> others;    ///< entries that may be files; a link is in both lists
};

/// Uses the system call directly, because the first kernel of every process waits for this: std::filesystem
/// makes three more calls.
Listing list(const std::string& directory) {
  Listing out;
  const base::Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  alignas(dirent64) char entries[16384];
  long size = -1;  // glibc has a function for this call from 2.30 on
  while (fd && (size = ::syscall(SYS_getdents64, fd.get(), entries, sizeof entries)) > 0) {
    for (const char* at = entries; at < entries + size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.') continue;
      if (entry->d_type == DT_DIR || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN)
        out.families.emplace_back(entry->d_name);
      if (entry->d_type != DT_DIR) out.others.emplace_back(entry->d_name);
    }
  }
  out.complete = size == 0;
  std::sort(out.families.begin(), out.families.end());
  return out;
}

/// The path, absolute and without "." and "..".
std::string plain_path(const std::string& path) {
  const auto absolute = base::absolute(path);
  std::string out = absolute ? base::normalized(*absolute) : path;
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

Template from_file(const std::string& path, const std::string& root, std::string_view text,
                   WorkListKinds work_lists) {
  Template out;
  const std::string directory = base::directory_of(path);
  out.manifest = parse_manifest(text, path, work_lists);
  out.digest = base::digest_of(text), out.work_lists = work_lists;
  out.root = root, out.directory = directory;
  const auto source = [&](const std::string& name) { return SourceText{name, directory + '/' + name, {}}; };
  out.kernel = source(out.manifest.kernel.source);
  if (out.manifest.reference) out.reference = source(out.manifest.reference->source);
  return out;
}

Template from_memory(const MemoryTemplate& in, WorkListKinds work_lists) {
  Template out;
  out.manifest = parse_manifest(in.manifest, "<memory>", work_lists);
  out.text = in.manifest;
  out.digest = base::digest_of(in.manifest), out.work_lists = work_lists;
  out.kernel = {out.manifest.kernel.source, {}, in.source};
  for (const auto& [arch, variant] : out.manifest.variants) {
    if (variant->kernel.source != out.kernel.name) {
      throw Error(Errc::manifest,
                  "<memory>: template " + base::quote(out.manifest.name) + " has another source (" +
                      base::quote(variant->kernel.source) + ") for " + arch.name() +
                      ": a template from memory has only one source; use #if __CUDA_ARCH__ in it");
    }
  }
  if (!out.manifest.reference) return out;
  if (in.reference.empty()) {
    throw Error(Errc::manifest, "<memory>: template " + base::quote(out.manifest.name) +
                                    " has a [reference], but its source was not given");
  }
  out.reference = {out.manifest.reference->source, {}, in.reference};
  return out;
}

}  // namespace

struct Catalog::Loaded {
  std::string path;  ///< empty for memory
  std::string text;  ///< of the manifest, for files too young for their stamp to be trusted
  base::FileStamp stamp;
  bool settled = false;
  std::shared_ptr<const Template> parsed;
};

/// One parsed template in the list that a forked child inherits.
struct Catalog::Parsed {
  std::string name;
  std::shared_ptr<const Loaded> loaded;
  const Parsed* older;
};

SourceText Template::text_of(const std::string& source) const {
  if (source == kernel.name) return kernel;
  if (source == reference.name) return reference;
  return {source, directory + '/' + source, {}};
}

std::string SourceText::read() const {
  if (path.empty()) return memory;
  auto content = base::read_file(path, kMaxSource);
  if (!content)
    throw Error(Errc::source, "source file " + base::quote(path, 4096) +
                                  " of the template cannot be read: " + std::strerror(errno));
  return std::move(content->bytes);
}

Catalog::Catalog(const std::vector<std::string>& directories, std::string advice, WorkListKinds work_lists)
    : advice_(std::move(advice)), work_lists_(work_lists) {
  for (const std::string& directory : directories) {
    std::string path = plain_path(directory);
    if (std::find(directories_.begin(), directories_.end(), path) == directories_.end())
      directories_.push_back(std::move(path));
  }
}

Catalog::~Catalog() {
  // Runs in a child, too: the child's copies are complete, and consist of memory only.
  for (const Parsed* next = parsed_; next;) delete std::exchange(next, next->older);
  for (const Added* next = added_; next;) delete std::exchange(next, next->older);
}

/// Locks the index. The first call in a process adds the templates that a forked child inherited.
std::unique_lock<std::mutex> Catalog::lock(Index& index) const {
  std::unique_lock lock(index.mutex);
  if (!index.begun)
    for (const Parsed* at = parsed_; at; at = at->older) index.loaded.emplace(at->name, at->loaded);
  index.begun = true;
  return lock;
}

void Catalog::keep(Index& index, const std::string& name, std::shared_ptr<const Loaded> loaded) {
  auto parsed = std::make_unique<Parsed>(Parsed{name, loaded, parsed_});
  index.loaded.insert_or_assign(name, std::move(loaded));
  parsed_ = parsed.release();
}

/// The manifest file of a template.
struct Catalog::File {
  std::string path, root;
  base::FileStamp stamp;
};

std::vector<Catalog::File> Catalog::files_of(std::string_view name) const {
  std::vector<File> out;
  if (!may_be_file_name(name)) return out;
  const std::string file = std::string(name) + ".toml";
  for (const Added* at = added_; at; at = at->older) {
    if (!at->is_file || fs::path(at->path).filename() != file) continue;
    if (const auto stamp = base::FileStamp::of(at->path))
      out.push_back({at->path, base::directory_of(at->path), *stamp});
  }
  for (const std::string& root : all_directories()) {
    const auto look = [&](const std::string& directory) {
      std::string path = directory + '/' + file;
      if (const auto stamp = base::FileStamp::of(path)) out.push_back({std::move(path), root, *stamp});
    };
    const Listing listing = list(root);
    const auto& others = listing.others;
    if (!listing.complete || std::find(others.begin(), others.end(), file) != others.end()) look(root);
    for (const std::string& family : listing.families) look(root + '/' + family);
  }
  return out;
}

std::shared_ptr<const Template> Catalog::open(std::string_view name) {
  Index& index = index_.get();
  const auto held = lock(index);
  std::optional<base::FileStamp> stamp;
  std::string path, root;
  for (File& file : files_of(name)) {
    if (stamp && (stamp->device != file.stamp.device || stamp->inode != file.stamp.inode)) {
      throw Error(Errc::manifest, "two templates are called " + base::quote(name) + ": " +
                                      base::quote(path, 4096) + " and " + base::quote(file.path, 4096));
    }
    if (stamp) continue;  // one directory under two names
    stamp = file.stamp, path = std::move(file.path), root = std::move(file.root);
  }
  const auto known = index.loaded.find(name);
  if (known != index.loaded.end() && known->second->path.empty()) {
    if (stamp)
      throw Error(Errc::manifest, "two templates are called " + base::quote(name) + ": one from memory and " +
                                      base::quote(path, 4096));
    return known->second->parsed;
  }
  if (!stamp) {
    if (known != index.loaded.end()) index.loaded.erase(known);
    const std::vector<std::string> there = names_in(index);
    std::vector<std::string> shown;
    for (const std::string& other : there)
      if (!is_internal(index, other)) shown.push_back(other);
    throw Error(Errc::unknown_template,
                "no template is called " + base::quote(name) + base::did_you_mean(name, there) +
                    "; there are: " + (shown.empty() ? "none" : base::join(shown, " ")) + " (searched: " +
                    searched_text(all_directories()) + ')' + (advice_.empty() ? "" : "; " + advice_));
  }
  if (known != index.loaded.end() && known->second->path == path && known->second->stamp == *stamp &&
      known->second->settled) {
    return known->second->parsed;
  }
  auto content = base::read_file(path, kMaxManifest);
  if (!content) throw Error(Errc::manifest, path + ": cannot be read: " + std::strerror(errno));
  auto loaded = std::make_shared<Loaded>();
  loaded->path = path;
  loaded->stamp = content->stamp;
  loaded->settled = content->stamp.settled();
  loaded->text = std::move(content->bytes);
  if (known != index.loaded.end() && known->second->path == path && known->second->text == loaded->text) {
    loaded->parsed = known->second->parsed;
    known->second = loaded;
    return loaded->parsed;
  }
  loaded->parsed = std::make_shared<const Template>(from_file(path, root, loaded->text, work_lists_));
  if (loaded->parsed->manifest.name != name) {
    throw Error(Errc::manifest, path + ": [template] name is " + base::quote(loaded->parsed->manifest.name) +
                                    ", and the file must be called " + loaded->parsed->manifest.name +
                                    ".toml");
  }
  keep(index, std::string(name), loaded);
  return loaded->parsed;
}

std::shared_ptr<const Template> Catalog::add(const MemoryTemplate& in) {
  auto parsed = std::make_shared<const Template>(from_memory(in, work_lists_));
  const std::string& name = parsed->manifest.name;
  Index& index = index_.get();
  const auto held = lock(index);
  const auto known = index.loaded.find(name);
  if (known != index.loaded.end() && known->second->path.empty()) {
    throw Error(Errc::manifest, "two templates are called " + base::quote(name) + ": both from memory");
  }
  if (const std::vector<File> files = files_of(name); !files.empty())
    throw Error(Errc::manifest, "two templates are called " + base::quote(name) + ": one from memory and " +
                                    base::quote(files.front().path, 4096));
  auto loaded = std::make_shared<Loaded>();
  loaded->parsed = parsed;
  keep(index, name, std::move(loaded));
  return parsed;
}

void Catalog::add_path(const std::string& path) {
  const std::string plain = plain_path(path);
  std::error_code error;
  const fs::file_status status = fs::status(plain, error);
  const bool is_file = fs::is_regular_file(status);
  if (!is_file && !fs::is_directory(status)) {
    throw Error(Errc::io, "template path " + base::quote(plain, 4096) + ": " +
                              (error ? error.message() : "neither a file nor a directory") +
                              "; give a directory of templates, or the manifest NAME.toml of one");
  }
  if (is_file && fs::path(plain).extension() != ".toml")
    throw Error(Errc::invalid_argument,
                "template file " + base::quote(plain, 4096) + " must be a manifest, called NAME.toml");
  {
    Index& index = index_.get();
    const auto held = lock(index);
    for (const Added* at = added_; at; at = at->older)
      if (at->path == plain) return;
    added_ = new Added{plain, is_file, added_};
  }
  if (is_file) open(fs::path(plain).stem().string());  // a mistake in the manifest shows now
}

std::vector<std::string> Catalog::all_directories() const {
  std::vector<std::string> out = directories_;
  for (const Added* at = added_; at; at = at->older)
    if (!at->is_file && std::find(out.begin(), out.end(), at->path) == out.end()) out.push_back(at->path);
  return out;
}

std::vector<std::string> Catalog::names() const {
  Index& index = index_.get();
  const auto held = lock(index);
  return names_in(index);
}

bool Catalog::is_internal(const Index& index, const std::string& name) const try {
  const auto known = index.loaded.find(name);
  if (known != index.loaded.end()) return known->second->parsed->manifest.internal;
  for (const File& file : files_of(name))
    if (const auto content = base::read_file(file.path, kMaxManifest))
      return parse_manifest(content->bytes, file.path, work_lists_).internal;
  return false;
} catch (const Error&) {
  return false;  // a broken manifest: opening that template says why
}

std::vector<std::string> Catalog::names_in(const Index& index) const {
  std::vector<std::string> out;
  for (const Added* at = added_; at; at = at->older)
    if (at->is_file) out.push_back(fs::path(at->path).stem().string());
  for (const std::string& root : all_directories()) {
    std::vector<std::string> directories{root};
    for (const std::string& family : list(root).families) directories.push_back(root + '/' + family);
    for (const std::string& directory : directories) {
      std::error_code error;
      for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
        const fs::path& path = it->path();
        std::error_code ignored;
        if (path.extension() == ".toml" && path.filename().string()[0] != '.' && it->is_regular_file(ignored))
          out.push_back(path.stem().string());
      }
    }
  }
  for (const auto& [name, loaded] : index.loaded) {
    if (loaded->path.empty()) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace kiln::source
