/* The C ABI for `make bench`, called from C: reads "CASE ITERATIONS" lines, answers
 * "WALL_NS CPU_NS". Only inference: training from C is the same calls as from Go. */
#define _POSIX_C_SOURCE 200809L
#include <cgotorch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(const char *err) {
  if (err != NULL) {
    fprintf(stderr, "%s\n", err);
    exit(1);
  }
}

static Tensor randn(int64_t rows, int64_t columns) {
  Tensor t;
  int64_t size[] = {rows, columns};
  check(Randn(size, columns ? 2 : 1, NULL, NULL, NULL, NULL, &t));
  return t;
}

static Tensor forward(Tensor x, Tensor w1, Tensor b1, Tensor w2, Tensor b2) {
  Tensor h, r, y;
  check(Linear(x, w1, b1, &h));
  check(ReLU(h, &r));
  FreeTensor(h);
  check(Linear(r, w2, b2, &y));
  FreeTensor(r);
  return y;
}

static int64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int main(void) {
  char name[64];
  int64_t n;
  Scalar one = {ScalarInt, {1}};
  check(SetNumThreads(1));
  Tensor a = randn(2, 2), b = randn(2, 2), x1 = randn(1, 784), x64 = randn(64, 784);
  Tensor w1 = randn(128, 784), b1 = randn(128, 0), w2 = randn(10, 128), b2 = randn(10, 0);
  while (scanf("%63s %" SCNd64, name, &n) == 2) {
    int64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    Tensor t = NULL;
    if (strcmp(name, "add") == 0) {
      for (; n > 0; n--, FreeTensor(t)) check(Add(a, b, one, &t));
    } else if (strcmp(name, "mm") == 0) {
      for (; n > 0; n--, FreeTensor(t)) check(MM(a, b, &t));
    } else if (strcmp(name, "relu") == 0) {
      for (; n > 0; n--, FreeTensor(t)) check(ReLU(a, &t));
    } else if (strcmp(name, "transpose") == 0) {
      for (; n > 0; n--, FreeTensor(t)) check(Transpose(a, 0, 1, &t));
    } else if (strcmp(name, "mlp_forward_1") == 0) {
      for (; n > 0; n--) FreeTensor(forward(x1, w1, b1, w2, b2));
    } else if (strcmp(name, "mlp_forward_64") == 0) {
      for (; n > 0; n--) FreeTensor(forward(x64, w1, b1, w2, b2));
    } else {
      printf("none\n");
      fflush(stdout);
      continue;
    }
    printf("%" PRId64 " %" PRId64 "\n", now(CLOCK_MONOTONIC) - wall,
           now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    fflush(stdout);
  }
  return 0;
}
