/* facts.h: what the test programs share. A program prints a line a fact and exits with 1 if one is
 * wrong. */
#ifndef CGOTORCH_TEST_FACTS_H
#define CGOTORCH_TEST_FACTS_H

#include <cgotorch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void fact(bool holds, const char *what) {
  printf("%s %s\n", holds ? "ok  " : "FAIL", what);
  failures += !holds;
}

static __attribute__((unused)) void must(const char *err) {
  if (err != NULL) {
    printf("FAIL unexpected error: %s\n", err);
    exit(1);
  }
}

/* Whether err holds this text; frees it. */
static __attribute__((unused)) bool fails_like(const char *err, const char *part) {
  bool has = err != NULL && strstr(err, part) != NULL;
  if (!has) printf("     got: %s\n", err ? err : "(success)");
  FreeString(err);
  return has;
}

/* Handles that live. */
static __attribute__((unused)) int64_t live(void) {
  int64_t made, freed;
  cgotorch_handles(&made, &freed);
  return made - freed;
}

#endif
