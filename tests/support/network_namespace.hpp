// Hosts with a network of their own. Each host is a network namespace that is plugged into a switch. The
// machine's own network is not touched, and everything disappears with the test. Needs root and `ip`.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/fd.hpp"

namespace kiln::testing {

class NetworkNamespace {
 public:
  /// Makes a new namespace without links. Throws where this is not possible.
  NetworkNamespace() {
    std::thread([this] {  // unshare() moves the calling thread
      if (::unshare(CLONE_NEWNET) == 0) fd_ = of_this_thread();
    })
        .join();
    if (!fd_) throw std::runtime_error("no network namespace");
    run("ip link set lo up");
  }

  /// While this lives, the calling thread and the processes and threads that it starts are in the namespace.
  class Inside {
   public:
    explicit Inside(const NetworkNamespace& where) : before_(of_this_thread()) {
      if (::setns(where.fd_.get(), CLONE_NEWNET) != 0) throw std::runtime_error("setns");
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() {
      if (::setns(before_.get(), CLONE_NEWNET) != 0) std::abort();
    }

   private:
    const base::Fd before_;
  };

  /// Runs a shell command in the namespace. The command must succeed.
  void run(const std::string& command) const {
    const Inside inside(*this);
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  }
  /// A name of the namespace for `ip link set X netns NAME`. Valid in this process and its children.
  std::string name() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_.get());
  }

 private:
  static base::Fd of_this_thread() {
    return base::Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  }

  base::Fd fd_;
};

class Network {
 public:
  /// Null, or the reason why this machine cannot have a Network.
  static const char* unavailable() {
    if (::geteuid() != 0) return "needs root, for network namespaces";
    if (std::system("command -v ip > /dev/null 2>&1") != 0) return "iproute2 is not installed";
    try {
      const Network tried;
      const Host plugged(tried, 1);
    } catch (const std::exception&) {
      return "network namespaces, bridges or veth devices are not permitted here";
    }
    return nullptr;
  }

  Network() { switch_.run("ip link add switch type bridge && ip link set switch up"); }

  /// A host with address 10.1.0.`number`, plugged in.
  class Host {
   public:
    Host(const Network& network, int number) : network_(network), number_(number) {
      network.switch_.run("ip link add " + port() + " type veth peer name eth0 netns " + inner_.name() +
                          " && ip link set " + port() + " up");
      inner_.run("ip address add " + address() + "/24 dev eth0 && ip link set eth0 up");
      plug();
    }
    std::string address() const { return "10.1.0." + std::to_string(number_); }
    NetworkNamespace::Inside inside() const { return NetworkNamespace::Inside(inner_); }
    void run(const std::string& command) const { inner_.run(command); }

    /// From now on all packets from and to the host are lost silently: its link
    /// stays up, so neither side gets an error.
    void unplug() const { network_.switch_.run("ip link set " + port() + " nomaster"); }
    void plug() const { network_.switch_.run("ip link set " + port() + " master switch"); }
    /// Limits the rate at which the host receives, after the first packets. False: this kernel cannot do it.
    bool slow_down(int kbit_per_second) const {
      const NetworkNamespace::Inside inside(network_.switch_);
      return std::system(("tc qdisc replace dev " + port() + " root tbf burst 1600 latency 2s rate " +
                          std::to_string(kbit_per_second) + "kbit 2> /dev/null")
                             .c_str()) == 0;
    }

   private:
    std::string port() const { return "port" + std::to_string(number_); }

    const Network& network_;
    const int number_;
    const NetworkNamespace inner_;
  };

 private:
  const NetworkNamespace switch_;
};

/// Skips a test where a Network is not possible, and says why.
#define KILN_NEEDS_NETWORK() \
  if (const char* why = ::kiln::testing::Network::unavailable()) GTEST_SKIP() << why

}  // namespace kiln::testing
