/* The programs of C99 in one, for valgrind: libtorch takes twenty seconds to start there. */
#define main abi_test
#include "abi_test.c"
#undef main
#define main callbacks_test
#include "callbacks_test.c"
#undef main

int main(int argc, char **argv) {
  const int failed = abi_test();
  return callbacks_test(argc, argv) || failed;
}
