#!/bin/sh
# argument_rules_test.sh CXX INCLUDE_DIR: a value that can never be a kernel argument does not compile, and
# the compiler's error states the rule.
set -eu
cxx=$1 include=$2
failed=0

# compile EXPRESSION: compiles a launch with that argument.
compile() {
  printf '%s\n' '#include <kiln/kiln.hpp>' '#include <string>' '#include <vector>' 'struct S { int a[3]; int f(); };' \
    'enum class E : short { one };' 'struct Huge { char bytes[40000]; };' 'void host();' \
    "void launch(const kiln::Kernel& k, int (&array)[4], const S& s) { k(nullptr, $1); (void)array; (void)s; }" |
    "$cxx" -std=c++17 -fsyntax-only -I "$include" -x c++ - 2>&1
}
refused() {
  if out=$(compile "$1"); then echo "compiles: $1"; failed=1; return; fi
  case $out in *"$2"*) ;; *) printf '%s: does not say "%s":\n%s\n' "$1" "$2" "$out"; failed=1 ;; esac
}
accepted() { if ! out=$(compile "$1"); then printf 'refused: %s\n%s\n' "$1" "$out"; failed=1; fi; }

accepted 's, E::one, true, 1.0f, nullptr, (void*)nullptr, kiln::DevicePtr(4096)'
refused 'array' 'an array is no kernel argument'
refused '"text"' 'an array is no kernel argument'
refused 'std::string("text")' 'copied by their bytes'
refused 'std::vector<float>(3)' 'copied by their bytes'
refused 'host' 'mean nothing to a kernel'
refused '&host' 'mean nothing to a kernel'
refused '&S::f' 'mean nothing to a kernel'
refused 'Huge{}' 'at most 32764 bytes'
exit $failed
