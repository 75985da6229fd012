#include "runtime/state/open_tier.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cache/trust/key_file.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

/// Quotes a path for a message. A user may give a secret key by mistake, which must not appear in a log.
std::string shown(const std::string& path) {
  constexpr std::size_t kLongPath = 128;  // a secret key is longer
  return path.size() <= kLongPath && path.find('\n') == std::string::npos
             ? '\'' + path + '\''
             : "(the text is not shown: it may be a secret key)";
}

trust::PublicKey public_key(const std::string& text) {
  std::string file = text;
  if (!trust::looks_like_public_key(text)) {
    auto content = base::read_file(text, trust::kMaxKeyFile);
    if (!content)
      throw Error(Errc::io,
                  "cannot read the public key " + shown(text) + ": " +
                      (errno == EFBIG ? "it is larger than a public key may be" : std::strerror(errno)));
    file = std::move(content->bytes);
  }
  const trust::PublicKey key = trust::parse_public_key(file);
  return {key.id, key.key};
}

std::shared_ptr<const trust::SigningKey> signing_key(const Config& config) {
  const std::string &path = config.get("remote_sign"), &password = config.get("remote_sign_password");
  if (path.empty()) return nullptr;
  const trust::SecretKey key =
      trust::read_secret_key(path, "whose file KILN_REMOTE_SIGN names (its text is not shown)", [&] {
        if (password.empty())
          throw Error(
              Errc::invalid_argument,
              "the secret key '" + path + "' has a password: name its file in KILN_REMOTE_SIGN_PASSWORD");
        return trust::read_password(password, "that KILN_REMOTE_SIGN_PASSWORD names (its text is not shown)");
      });
  return std::make_shared<const trust::SigningKey>(key.public_key().id, key.bytes());
}

std::string who() {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return std::string(host) + ':' + std::to_string(::getpid());
}

}  // namespace

std::shared_ptr<fleet::Tier> open_tier(const Config& config, std::shared_ptr<fleet::Counts> counts) try {
  if (!config.has_remote()) return nullptr;
  fleet::TierOptions options;
  options.url = fleet::TierUrl::parse(config.get("remote"));
  options.fleet = config.remote_writes();
  for (const std::string& text : base::split(config.get("remote_key"), ','))
    if (!text.empty()) options.trusted.push_back(public_key(text));
  options.signer = signing_key(config);
  if (options.trusted.empty() && !options.signer)
    throw Error(
        Errc::invalid_argument,
        "no key is set to verify entries with: set KILN_REMOTE_KEY to the public key that 'kiln bundle "
        "keygen' made, or KILN_REMOTE_SIGN to the secret key");
  if (options.fleet && !options.signer)
    base::warn_once(
        "remote_sign",
        "KILN_REMOTE_MODE=fleet needs KILN_REMOTE_SIGN to sign entries, and it is not set: this node "
        "reads the fleet's tier and writes nothing to it");
  options.budget = std::chrono::duration_cast<base::Clock::duration>(
      std::chrono::duration<double>(config.remote_budget_s()));
  options.who = who();
  return std::make_shared<fleet::Tier>(std::move(options), std::move(counts));
} catch (const Error& error) {
  base::warn_once("remote", std::string("the fleet's tier (KILN_REMOTE) is not used: ") + error.what());
  return nullptr;
}

TierLabels labels_of(const compile::Facts& facts) {
  return {facts.arch,
          "NVRTC " + facts.compiler_version,
          {facts.created_s, !facts.project_header_through_toolkit, facts.compiler_version}};
}

fleet::PublishedRecord envelope_of(cache::Record&& record, const TierLabels& labels) {
  return {std::move(record), labels.arch, labels.toolchain};
}

}  // namespace kiln::runtime
