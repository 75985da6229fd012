#include "runtime/tier.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "bundle/secret_key.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

constexpr std::size_t kMostPassword = 1024;

/// `shown` names the file in an error: who sets the secret itself where its file is wanted shall not read it
/// in a log.
std::string read(const std::string& what, const std::string& path, std::size_t limit,
                 const std::string& shown) {
  auto file = base::read_file(path, limit);
  if (!file)
    throw Error(Errc::io, "cannot read the " + what + " " + shown + ": " +
                              (errno == EFBIG ? "it is too large" : std::strerror(errno)));
  return std::move(file->bytes);
}

remote::PublicKey public_key(const std::string& text) {
  const bundle::PublicKey key =
      bundle::parse_public_key(bundle::looks_like_public_key(text)
                                   ? text
                                   : read("public key", text, bundle::kMaxKeyFile, '\'' + text + '\''));
  return {key.id, key.key};
}

std::shared_ptr<const remote::SigningKey> signing_key(const Config& config) {
  const std::string& path = config.get("remote_sign");
  if (path.empty()) return nullptr;
  const bundle::Secret text(read("secret key", path, bundle::kMaxKeyFile,
                                 "whose file KILN_REMOTE_SIGN names (its text is not shown)"));
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    base::warn_once("remote_sign mode",
                    "the secret key '" + path + "' can be read or written by others; chmod 600 it");
  const auto password = [&] {
    const std::string& file = config.get("remote_sign_password");
    if (file.empty())
      throw Error(Errc::invalid_argument,
                  "the secret key '" + path + "' has a password: name its file in KILN_REMOTE_SIGN_PASSWORD");
    const bundle::Secret held(read("password file", file, kMostPassword,
                                   "that KILN_REMOTE_SIGN_PASSWORD names (its text is not shown)"));
    std::string line = held.bytes().substr(0, held.bytes().find('\n'));
    if (line.ends_with('\r')) line.pop_back();
    return bundle::Secret(std::move(line));
  };
  const bundle::SecretKey key = bundle::SecretKey::parse(text.bytes(), password);
  return std::make_shared<const remote::SigningKey>(key.public_key().id, key.bytes());
}

std::string who() {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return std::string(host) + ':' + std::to_string(::getpid());
}

}  // namespace

std::shared_ptr<remote::Tier> open_tier(const Config& config, std::shared_ptr<remote::Counts> counts) try {
  if (!config.has_remote()) return nullptr;
  remote::TierOptions options;
  options.url = remote::Url::parse(config.get("remote"));
  options.fleet = config.remote_writes();
  for (const std::string& text : base::split(config.get("remote_key"), ','))
    if (!text.empty()) options.trusted.push_back(public_key(text));
  options.signer = signing_key(config);
  if (options.trusted.empty() && !options.signer)
    throw Error(
        Errc::invalid_argument,
        "nothing says whose entries to trust: set KILN_REMOTE_KEY to the public key that 'kiln bundle "
        "keygen' made, or KILN_REMOTE_SIGN to the secret one");
  if (options.fleet && !options.signer)
    base::warn_once("remote_sign",
                    "KILN_REMOTE_MODE=fleet, and no KILN_REMOTE_SIGN to sign with: this node "
                    "reads the fleet's tier and writes nothing to it");
  options.budget = std::chrono::duration_cast<base::Clock::duration>(
      std::chrono::duration<double>(config.remote_budget_s()));
  options.who = who();
  return std::make_shared<remote::Tier>(std::move(options), std::move(counts));
} catch (const Error& error) {
  base::warn_once("remote", std::string("the fleet's tier (KILN_REMOTE) is not used: ") + error.what());
  return nullptr;
}

TierLabels labels_of(const compile::Facts& facts) {
  return {facts.arch,
          "NVRTC " + facts.nvrtc_version,
          {facts.created_s, !facts.project_header_through_toolkit, facts.nvrtc_version}};
}

remote::Entry entry_of(const Key& key, cache::Record&& record, const TierLabels& labels) {
  remote::Entry out;
  out.key = key;
  out.key_text = std::move(record.key_text), out.facts = std::move(record.facts);
  out.image = std::move(record.image);
  out.arch = labels.arch, out.toolchain = labels.toolchain;
  return out;
}

}  // namespace kiln::runtime
