// kiln-worker: the process that runs NVRTC for a host. Started by kiln, not by hand.
#include "compile/worker_main.hpp"

int main(int argc, char** argv) { return kiln::compile::worker_main(argc, argv); }
