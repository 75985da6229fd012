// A bundle opened for reading. Its signature is required when a key is given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cache/bundle/chunks.hpp"
#include "cache/bundle/reader.hpp"
#include "cache/trust/minisign.hpp"
#include "tools/kiln/bundle/file.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

class Command;
class Context;

/// The flags that import and verify share.
struct BundleFlags {
  std::string file, key, signature, max_bytes;
  /// The limits that the flags set. Throws Error(invalid_argument).
  bundle::Limits limits() const;
};
void add_bundle_flags(Command sub, BundleFlags& flags);

struct SignatureState {
  enum class Checked { absent, not_checked, verified } checked = Checked::absent;
  std::string file, key_id, trusted_comment;  ///< file; and, only when verified, the key id and the file's
                                              ///< trusted comment
};
Json json_of(const SignatureState& state);
/// "signature by key 4AB3... verified", "signature not checked (...)"
std::string text_of(const SignatureState& state);

/// Reads a public key from its text or from a file of that name. Throws Error.
trust::PublicKey read_public_key(const std::string& text_or_path);

class OpenBundle {
 public:
  /// With `flags.key`, reads the whole bundle once to verify its signature; `next` then returns entries of
  /// the same bytes. Throws bundle::Refused, trust::BadSignature, Error.
  explicit OpenBundle(const BundleFlags& flags);
  std::optional<cache::Record> next() { return reader_->next(); }
  const bundle::Summary& summary() const noexcept { return reader_->summary(); }
  const SignatureState& signature() const noexcept { return signature_; }
  /// Part of the bundle that was read, 0 to 100; 0 when the size is not known.
  std::size_t percent() const noexcept;
  bool size_known() const noexcept { return input_.size() > 0; }

 private:
  base::Read verified_reader(const BundleFlags& flags, const bundle::Limits& limits);
  const BundleInput input_;
  SignatureState signature_;
  std::uint64_t read_ = 0;
  std::optional<bundle::SecondPass> second_;
  std::optional<bundle::Reader> reader_;
};

/// Exit status and message for the exception in flight about the bundle `name`. Tells damage from other
/// faults. An exception that is no Error is rethrown. REQUIRES: called inside a catch block.
struct BundleFault {
  bool damage = false;
  Errc code = Errc::io;
  std::string message;
};
BundleFault fault_of_current(const std::string& name);
int report(const Context& context, const BundleFault& fault);
std::string name_of_bundle(const std::string& path);

}  // namespace kiln::cli
