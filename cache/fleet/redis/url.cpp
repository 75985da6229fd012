#include "cache/fleet/redis/url.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "kiln/error.hpp"

namespace kiln::fleet {
namespace {

constexpr std::uint16_t kPort = 6379;
constexpr std::size_t kLongestUnixPath = 107;  // sockaddr_un
constexpr int kLongestTimeoutMs = 600'000;

/// One server's piece of the text. Values that were not given stay empty.
/// Reads a number that is the whole text. Returns false when the text is none, or the number is out of range.
template <class Number>
bool read_number(std::string_view text, Number least, Number most, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= least && out <= most;
}

struct Piece {
  std::optional<std::string> scheme, user, password, database, ca, cert, key, cluster, timeout;
  bool names_user = false, password_option = false;  // "user@", "?password="
  Endpoint endpoint;
};

class Parser {
 public:
  Parser(std::string_view text, std::size_t number) : text_(text), number_(number) {}

  Piece parse(const std::optional<std::string>& inherited) {
    Piece piece;
    if (const auto at = text_.find("://"); at != std::string_view::npos) {
      piece.scheme = text_.substr(0, at);
      if (*piece.scheme != "redis" && *piece.scheme != "rediss" && *piece.scheme != "redis+unix")
        fail("the scheme must be redis, rediss or redis+unix");
      text_.remove_prefix(at + 3);
    } else if (!inherited) {
      fail("it must begin with redis://, rediss:// or redis+unix://");
    }
    if (const auto at = text_.find('?'); at != std::string_view::npos) {
      options(text_.substr(at + 1), piece);
      text_ = text_.substr(0, at);
    }
    if ((piece.scheme ? *piece.scheme : *inherited) == "redis+unix")
      unix_socket(piece);
    else
      address(piece);
    return piece;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Errc::invalid_argument, "remote URL, server " + std::to_string(number_) + ": " + what +
                                            " (the text is not shown: it may hold a password)");
  }

  std::string decoded(std::string_view text, const char* what) const {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      char c = text[i];
      if (c == '%') {
        const int high = i + 2 < text.size() + 0 ? digit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() + 0 ? digit(text[i + 2]) : -1;
        if (high < 0 || low < 0) fail(std::string("'%' in ") + what + " must be followed by two hex digits");
        c = static_cast<char>(high * 16 + low);
        i += 2;
      }
      if (c == '\0') fail(std::string(what) + " has a zero byte");
      out += c;
    }
    return out;
  }

  void options(std::string_view text, Piece& piece) const {
    while (!text.empty()) {
      const auto end = std::min(text.find('&'), text.size());
      const std::string_view option = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const auto equals = option.find('=');
      const std::string_view name = option.substr(0, equals);
      std::optional<std::string>* const field = name == "ca"         ? &piece.ca
                                                : name == "cert"     ? &piece.cert
                                                : name == "key"      ? &piece.key
                                                : name == "cluster"  ? &piece.cluster
                                                : name == "db"       ? &piece.database
                                                : name == "user"     ? &piece.user
                                                : name == "password" ? &piece.password
                                                : name == "timeout"  ? &piece.timeout
                                                                     : nullptr;
      if (!field || equals == std::string_view::npos)
        fail("the options are ca=, cert=, key=, cluster=, db=, user=, password= and timeout=");
      *field = decoded(option.substr(equals + 1), "an option");
      piece.password_option = piece.password_option || field == &piece.password;
    }
  }

  void unix_socket(Piece& piece) const {
    piece.endpoint.path = decoded(text_, "the path");
    if (!piece.endpoint.path.starts_with('/')) fail("the socket's path must be absolute: redis+unix:///path");
    if (piece.endpoint.path.size() > kLongestUnixPath) fail("the socket's path is longer than 107 bytes");
    piece.endpoint.name = piece.endpoint.path;
  }

  void address(Piece& piece) {
    if (const auto slash = text_.find('/'); slash != std::string_view::npos) {
      if (slash + 1 < text_.size()) piece.database = std::string(text_.substr(slash + 1));
      text_ = text_.substr(0, slash);
    }
    if (const auto at = text_.rfind('@'); at != std::string_view::npos) {
      piece.names_user = true;
      const std::string_view who = text_.substr(0, at);
      const auto colon = who.find(':');
      piece.user = decoded(who.substr(0, colon), "the user");
      if (colon != std::string_view::npos) piece.password = decoded(who.substr(colon + 1), "the password");
      text_.remove_prefix(at + 1);
    }
    Endpoint& endpoint = piece.endpoint;
    const bool bracketed = text_.starts_with('[');
    if (bracketed) {
      const auto close = text_.find(']');
      if (close == std::string_view::npos) fail("the IPv6 address has '[' and no ']'");
      endpoint.host = text_.substr(1, close - 1);
      text_.remove_prefix(close + 1);
    } else {
      const auto colon = text_.find(':');
      endpoint.host = text_.substr(0, colon);
      text_.remove_prefix(std::min(colon, text_.size()));
    }
    const auto in_host = [bracketed](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
             c == '-' || c == '_' || (bracketed && (c == ':' || c == '%'));
    };
    if (endpoint.host.empty() || endpoint.host.size() > 253 ||
        !std::all_of(endpoint.host.begin(), endpoint.host.end(), in_host))
      fail(
          "the host is missing or has a character that no host name has (percent-encode '@', '/', ',' and "
          "':' in a password)");
    endpoint.port = kPort;
    if (!text_.empty()) {
      if (text_[0] != ':' || !read_number<std::uint16_t>(text_.substr(1), 1, 65535, endpoint.port))
        fail("the port must be a number from 1 to 65535");
    }
    endpoint.name =
        (bracketed ? '[' + endpoint.host + ']' : endpoint.host) + ':' + std::to_string(endpoint.port);
  }

  std::string_view text_;
  std::size_t number_;
};

/// Sets `into` to `value`. Throws when another server had said otherwise.
void agree(std::optional<std::string>& into, const std::optional<std::string>& value, const char* what) {
  if (!value) return;
  if (into && *into != *value)
    throw Error(Errc::invalid_argument,
                std::string("remote URL: all servers must have the same value of ") + what);
  into = value;
}

}  // namespace

Url Url::parse(std::string_view text) {
  Url url;
  Piece all;
  bool before_had_password_option = false;
  for (std::size_t number = 1;; ++number) {
    const auto comma = std::min(text.find(','), text.size());
    Piece piece = Parser(text.substr(0, comma), number).parse(all.scheme);
    // In "redis://me:12,34@host" a server "me:12" must not be told "34", and no status may show it.
    if (!piece.scheme && (before_had_password_option || (piece.names_user && !all.user)))
      throw Error(Errc::invalid_argument,
                  "remote URL: the text before server " + std::to_string(number) +
                      " may be the beginning of a password: encode ',' in a password as %2C, give user and "
                      "password with the first server, and write the scheme before a server that follows "
                      "?password=");
    before_had_password_option = piece.password_option;
    agree(all.scheme, piece.scheme, "the scheme");
    agree(all.user, piece.user, "the user");
    agree(all.password, piece.password, "the password");
    agree(all.database, piece.database, "the database");
    agree(all.ca, piece.ca, "ca=");
    agree(all.cert, piece.cert, "cert=");
    agree(all.key, piece.key, "key=");
    agree(all.cluster, piece.cluster, "cluster=");
    agree(all.timeout, piece.timeout, "timeout=");
    const auto same = [&](const Endpoint& other) { return other.name == piece.endpoint.name; };
    if (std::none_of(url.servers.begin(), url.servers.end(), same))
      url.servers.push_back(std::move(piece.endpoint));
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  url.user = all.user.value_or("");
  url.password = all.password.value_or("");
  url.authenticate = !url.user.empty() || !url.password.empty();
  url.tls = *all.scheme == "rediss";
  url.ca = all.ca.value_or("");
  url.cert = all.cert.value_or("");
  url.key = all.key.value_or("");
  const auto refuse = [](const char* why) {
    throw Error(Errc::invalid_argument, std::string("remote URL: ") + why);
  };
  if (!url.tls && !(url.ca + url.cert + url.key).empty()) refuse("ca=, cert= and key= need rediss://");
  if (url.cert.empty() != url.key.empty()) refuse("cert= and key= must be given together");
  if (all.cluster && *all.cluster != "true" && *all.cluster != "false")
    refuse("cluster= must be true or false");
  url.cluster = all.cluster == "true";
  if (const std::string digits = all.database.value_or("0");
      !digits.empty() && !read_number(digits, 0, 0xffff, url.database))
    refuse("the database must be a number from 0 to 65535");
  if (url.cluster && url.database != 0) refuse("a cluster has only database 0");
  if (int ms = 0; all.timeout) {
    if (!read_number(*all.timeout, 1, kLongestTimeoutMs, ms))
      refuse("timeout= must be a number of milliseconds from 1 to 600000");
    url.timeout = std::chrono::milliseconds(ms);
  }
  return url;
}

std::string Url::safe() const {
  std::string out = servers.front().path.empty() ? tls ? "rediss://" : "redis://" : "redis+unix://";
  for (const Endpoint& endpoint : servers) out += (&endpoint == &servers.front() ? "" : ",") + endpoint.name;
  if (database != 0)
    out += servers.front().path.empty() ? '/' + std::to_string(database) : "?db=" + std::to_string(database);
  return out;
}

}  // namespace kiln::fleet
