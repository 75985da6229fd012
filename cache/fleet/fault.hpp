// The classes of what can go wrong with a server. Each class is counted apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kiln::fleet {

enum class Fault : std::uint8_t {
  none,
  off,           ///< no server is configured
  unresolved,    ///< the server's name has no address yet, or none at all
  connect,       ///< refused, unreachable, or not connected in time
  tls,           ///< the handshake, a certificate, or a file that TLS needs
  auth,          ///< user or password refused, or none given where one is wanted
  timeout,       ///< connected, and not answered in time
  closed,        ///< the server ended the connection in the middle of an exchange
  protocol,      ///< an answer that breaks the protocol
  too_large,     ///< an answer beyond the command's limit, or a command beyond what a server takes
  breaker_open,  ///< not tried: the server failed too often just now
  refused,       ///< the server answered with an error, whose text is the answer's detail
  no_memory,
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::no_memory) + 1;

/// "breaker_open".
constexpr const char* name_of(Fault fault) noexcept {
  constexpr const char* kNames[kFaults] = {"none",         "off",     "unresolved", "connect",  "tls",
                                           "auth",         "timeout", "closed",     "protocol", "too_large",
                                           "breaker_open", "refused", "no_memory"};
  return kNames[static_cast<std::size_t>(fault)];
}

/// "timeout: no answer in 150 ms", for people.
inline std::string text_of(Fault fault, const std::string& detail) {
  return name_of(fault) + (detail.empty() ? "" : ": " + detail);
}

/// Returns whether the server itself failed, so that its breaker counts the fault. A server that refuses
/// is alive. An answer that is too large proves neither: it may be somebody's value, or a lie that must
/// not clear the count.
constexpr bool is_failure_of_server(Fault fault) noexcept {
  switch (fault) {
    case Fault::connect:
    case Fault::tls:
    case Fault::auth:
    case Fault::timeout:
    case Fault::closed:
    case Fault::protocol:
      return true;
    default:
      return false;
  }
}

}  // namespace kiln::fleet
