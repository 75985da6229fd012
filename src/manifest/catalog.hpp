// Templates by name: from the directories of the template path, or registered from memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.hpp"
#include "kiln/digest.hpp"
#include "manifest/manifest.hpp"

namespace kiln::source {

/// A source text. When it lies in a file, every instantiation reads it again, so that an edit is noticed.
struct SourceText {
  std::string name;  ///< as in the manifest
  std::string path;  ///< absolute; empty for memory
  std::string memory;
  /// Throws Error(source) naming the template's file.
  std::string read() const;
};

/// A parsed manifest and where its sources are. Immutable.
struct Template {
  Manifest manifest;
  /// The catalog's directory in which the template was found. Its includes are searched there first.
  /// Absolute; empty for memory.
  std::string root;
  /// The manifest's directory: the root, or a folder in it. The manifest's `source` and
  /// `include_dirs` are relative to it.
  std::string directory;
  std::string text;          ///< the manifest's text, for a template from memory
  Digest digest;             ///< of the manifest's text
  WorkListKinds work_lists;  ///< the kinds that the manifest was read with
  SourceText kernel;
  SourceText reference;  ///< name empty when there is none
  /// The source with this name in the manifest: the kernel's, the reference's, or the source of another arch.
  SourceText text_of(const std::string& source) const;
};

struct MemoryTemplate {
  std::string manifest, source, reference;  ///< texts; the manifest's `source` entries are only names
};

/// Thread-safe. A forked child inherits the templates of the fork's moment, both from memory
/// and parsed from files.
class Catalog {
 public:
  /// `directories` are searched in order; missing ones are ignored. NAME.toml in a directory, or in a folder
  /// of it (a family), holds the template NAME. It is an error when the manifest has another name, or when
  /// two files have the same name. The place of a template is not part of a key. `advice` ends the error
  /// about a template that no directory has. A manifest may name only the kinds in `work_lists`.
  explicit Catalog(const std::vector<std::string>& directories, std::string advice = {},
                   WorkListKinds work_lists = {});
  ~Catalog();
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  /// Parses the manifest again when its file's stamp changed. Throws Error(unknown_template) that names the
  /// known templates except internal ones, or Error(manifest).
  std::shared_ptr<const Template> open(std::string_view name);
  /// Throws Error(manifest), also when the name is already used.
  std::shared_ptr<const Template> add(const MemoryTemplate& in);
  /// Adds what lies at `path` to the directories that are searched: a directory of templates, or the manifest of
  /// one template. Nothing changes when it was added before. Throws Error(io) when there is no such file or
  /// directory, and Error(manifest) or Error(invalid_argument) for a file that is no manifest.
  void add_path(const std::string& path);
  /// Sorted names, including templates from memory. Does not parse.
  std::vector<std::string> names() const;
  /// The directories that were given to the constructor.
  const std::vector<std::string>& directories() const noexcept { return directories_; }

 private:
  struct Loaded;
  struct Parsed;
  /// The index of one process: a child's copy of the mutex may be held by a thread that
  /// the child does not have.
  struct Index {
    std::mutex mutex;  // guards the members below
    bool begun = false;
    std::map<std::string, std::shared_ptr<const Loaded>, std::less<>> loaded;
  };
  struct File;
  std::vector<File> files_of(std::string_view name) const;
  std::unique_lock<std::mutex> lock(Index& index) const;
  void keep(Index& index, const std::string& name, std::shared_ptr<const Loaded> loaded);
  std::vector<std::string> names_in(const Index& index) const;
  /// Reads the manifest when the index does not have it. False for a manifest that cannot be parsed.
  bool is_internal(const Index& index, const std::string& name) const;

  /// A path that was added later. The list is never shortened, so that a forked child may read it.
  struct Added {
    std::string path;
    bool is_file = false;
    const Added* older;
  };
  std::vector<std::string> all_directories() const;

  std::vector<std::string> directories_;
  std::atomic<const Added*> added_{nullptr};
  const std::string advice_;
  const WorkListKinds work_lists_;
  /// Every template that was parsed, newest first: a forked child inherits this list. It grows by one pointer
  /// under the index's mutex and is never shortened. That costs little, because users of an edited template
  /// keep it alive anyway.
  std::atomic<const Parsed*> parsed_{nullptr};
  mutable base::PerProcess<Index> index_;
};

}  // namespace kiln::source
