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

/// Text that is read again at every instantiation when it lies in a file, so that an edit is noticed.
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
  /// The directory of the catalog that it was found in, which its includes are searched in first. Absolute;
  /// empty for memory.
  std::string root;
  /// That of the manifest, to which its `source` and `include_dirs` are relative: the root, or a folder of
  /// it.
  std::string directory;
  std::string text;          ///< the manifest's, of a template from memory
  Digest digest;             ///< of the manifest's text
  WorkListKinds work_lists;  ///< the kinds that the manifest was read with
  SourceText kernel;
  SourceText reference;  ///< name empty when there is none
  /// The source that the manifest names so: the kernel's, the reference's, or that of another arch.
  SourceText text_of(const std::string& source) const;
};

struct MemoryTemplate {
  std::string manifest, source, reference;  ///< texts; the manifest's `source` names are only names
};

/// Thread-safe. A forked child has what was there at the fork, templates from memory and parsed ones alike.
class Catalog {
 public:
  /// Directories in order; those that do not exist are ignored. NAME.toml in one of them, or in a folder of
  /// one (a family), holds the template NAME: another name inside is an error, and so are two files for one
  /// name. Where it lies is no part of a key. `advice` ends the error about a template that is in none of
  /// them. A manifest may name the kinds of `work_lists` and no others.
  explicit Catalog(std::vector<std::string> directories, std::string advice = {},
                   WorkListKinds work_lists = {});
  ~Catalog();
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  /// Parsed anew when the manifest file's stamp changed. Throws Error(unknown_template) naming what there is,
  /// or Error(manifest).
  std::shared_ptr<const Template> open(std::string_view name);
  /// Throws Error(manifest), also when the name is taken.
  std::shared_ptr<const Template> add(const MemoryTemplate& in);
  /// Names, sorted; memory templates included. Does not parse.
  std::vector<std::string> names() const;
  const std::vector<std::string>& directories() const noexcept { return directories_; }

 private:
  struct Loaded;
  struct Parsed;
  /// Of one process: a child's copy of the mutex may be held by a thread that it does not have.
  struct Index {
    std::mutex mutex;  // guards what follows
    bool begun = false;
    std::map<std::string, std::shared_ptr<const Loaded>, std::less<>> loaded;
  };
  struct File;
  std::vector<File> files_of(std::string_view name) const;
  std::unique_lock<std::mutex> lock(Index& index) const;
  void keep(Index& index, const std::string& name, std::shared_ptr<const Loaded> loaded);
  std::vector<std::string> names_in(const Index& index) const;

  std::vector<std::string> directories_;
  const std::string advice_;
  const WorkListKinds work_lists_;
  /// All that was ever parsed, the newest first: what a forked child inherits. Grown by one pointer under the
  /// index's mutex, and never shortened: an edited template is held by who has opened it anyway.
  std::atomic<const Parsed*> parsed_{nullptr};
  mutable base::PerProcess<Index> index_;
};

}  // namespace kiln::source
