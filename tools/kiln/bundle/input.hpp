// A bundle that is opened for reading, with or without a signature that it must have.
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

/// The flags that import and verify have in common.
struct BundleFlags {
  std::string file, key, signature, max_bytes;
  /// Throws Error(invalid_argument).
  bundle::Limits limits() const;
};
void add_bundle_flags(Command sub, BundleFlags& flags);

struct SignatureState {
  enum class Checked { absent, not_checked, verified } checked = Checked::absent;
  std::string file, key_id, trusted_comment;  ///< the latter two only when verified; as the file says them
};
Json json_of(const SignatureState& state);
/// "signature by key 4AB3... verified", "signature not checked (...)".
std::string text_of(const SignatureState& state);

/// A key as text or the name of its file. Throws Error.
trust::PublicKey read_public_key(const std::string& text_or_path);

class OpenBundle {
 public:
  /// With `flags.key`, reads all of it once to verify the signature; what `next` reads then are the same
  /// bytes. Throws bundle::Refused, trust::BadSignature, Error.
  explicit OpenBundle(const BundleFlags& flags);
  std::optional<cache::Record> next() { return reader_->next(); }
  const bundle::Summary& summary() const noexcept { return reader_->summary(); }
  const SignatureState& signature() const noexcept { return signature_; }
  /// 0 to 100; 0 when its size is not known.
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

/// The exception in flight, about the bundle `name`: exit status and message, damage told from other faults.
/// Anything but an Error goes on. REQUIRES: called inside a catch block.
struct BundleFault {
  bool damage = false;
  Errc code = Errc::io;
  std::string message;
};
BundleFault fault_of_current(const std::string& name);
int report(const Context& context, const BundleFault& fault);
std::string name_of_bundle(const std::string& path);

}  // namespace kiln::cli
