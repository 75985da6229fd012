// kiln-worker: the process that runs NVRTC for a host. Started by kiln, not by hand.
#include <cstdio>
#include <cstdlib>

#include "compile/worker_main.hpp"

int main(int argc, char** argv) {
  const int host = argc == 2 ? std::atoi(argv[1]) : 0;
  if (host <= 0) {
    std::fputs("kiln-worker is started by kiln: it compiles for a host process over a socket\n", stderr);
    return 2;
  }
  return kiln::compile::worker_main(host);
}
