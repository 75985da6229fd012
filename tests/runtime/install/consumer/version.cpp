// Prints the version of the kiln that the program is linked to, after the first use of the C++ layer.
#include <cstdio>
#include <kiln/kiln.hpp>

int main() {
  const kiln::Service service;
  std::puts(kiln_version());
}
