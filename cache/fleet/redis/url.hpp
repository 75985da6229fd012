// The text of KILN_REMOTE: where the fleet's servers are, and how a client logs in.
//
//     url     = server *("," server)
//     server  = [scheme "://"] [[user] [":" password] "@"] host [":" port] ["/" database] ["?" options]
//             | "redis+unix://" path ["?" options]
//     scheme  = "redis" | "rediss" (TLS)                 the first server's; later ones may leave it out
//     host    = name | IPv4 | "[" IPv6 "]"               port 6379 unless given
//     options = name "=" value *("&" name "=" value)     ca, cert, key (files of PEM; ca also a directory),
//                                                        cluster = true | false, db (Unix sockets),
//                                                        user, password (Unix sockets),
//                                                        timeout (milliseconds, 1 to 600000)
//
// timeout replaces the time to connect and the time for an answer.
// User, password, path and values are percent-decoded ("%2C" is a comma). Everything but the address holds
// for all servers, wherever it stands; two servers that differ in it are an error. User and password stand
// with the first server. After ?password= a further server begins with its scheme: otherwise it may be the
// rest of a password whose comma was not encoded.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::fleet {

class TierUrl;

struct Endpoint {
  std::string name;  ///< "host:port" or the path: for people, and for placing keys on servers
  std::string host;  ///< without brackets; empty for a Unix socket
  std::uint16_t port = 0;
  std::string path;  ///< of a Unix socket
};

struct Url {
  std::vector<Endpoint> servers;  ///< at least one, no name twice
  std::string user, password;
  bool authenticate = false;  ///< a user or a password was given
  int database = 0;
  bool tls = false, cluster = false;
  std::string ca, cert, key;
  std::chrono::milliseconds timeout{0};  ///< to connect, and for an answer; 0: the client's own

  /// Throws Error(invalid_argument) that says what is wrong, and with which server. The error never repeats
  /// the text: a URL that is written wrongly may hold a password in any place.
  static Url parse(std::string_view text);
  /// "rediss://host:port,host:port/2": for people, without user and password.
  std::string safe() const;
  /// Makes a tier's URL, which opens a RedisBackend (cache/fleet/redis/backend.hpp). Defined there.
  operator TierUrl() const;
};

}  // namespace kiln::fleet
