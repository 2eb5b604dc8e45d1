/* The package of docs/aoti.md from C: aoti_test FOLDER, with model.pt2 and expected.safetensors. */
#include <cgotorch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *err) {
  if (err == NULL) return;
  fprintf(stderr, "%s\n", err);
  exit(1);
}

static void expect(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

static void expect_error(const char *err, const char *begin) {
  if (err == NULL || strncmp(err, begin, strlen(begin)) != 0) {
    fprintf(stderr, "error: %s\nwant:  %s\n", err == NULL ? "none" : err, begin);
    exit(1);
  }
  FreeString(err);
}

static TensorFile file;

static Tensor expected(const char *name) {
  for (int64_t i = 0; i < file.n; i++)
    if (strcmp(file.names[i], name) == 0) return file.tensors[i];
  expect(0, name);
  return NULL;
}

static void *run(void *model) {
  for (int i = 0; i < 100; i++) {
    const Tensor inputs[] = {expected("3.x"), expected("3.kind"), expected("3.temperature")};
    Tensor *results;
    int64_t n;
    bool same;
    check(AOTIRun(model, inputs, 3, &results, &n));
    expect(n == 2, "there are two results");
    check(Equal(results[0], expected("3.p"), &same));
    expect(same, "p is what Python gets");
    check(Equal(results[1], expected("3.hidden"), &same));
    expect(same, "hidden is what Python gets");
    FreeTensors(results, n);
    FreeArray(results);
  }
  return NULL;
}

int main(int argc, char **argv) {
  char path[4096];
  expect(argc == 2, "there is one argument");
  snprintf(path, sizeof path, "%s/expected.safetensors", argv[1]);
  check(LoadTensors(path, false, &file));
  snprintf(path, sizeof path, "%s/model.pt2", argv[1]);

  AOTIModel m = NULL;
  expect_error(AOTILoad(NULL, NULL, &m), "TypeError: ");
  expect_error(AOTILoad("missing.pt2", NULL, &m), "FileNotFoundError: ");
  AOTIOptions options = {.model_name = "other", .device_index = -1};
  expect_error(AOTILoad(path, &options, &m), "KeyError: ");
  options.model_name = NULL;
  options.num_runners = -1;
  expect_error(AOTILoad(path, &options, &m), "ValueError: ");
  expect(m == NULL, "a failed load writes nothing");

  options.num_runners = 2;
  check(AOTILoad(path, &options, &m));
  AOTIInfo info;
  AOTIGetInfo(m, &info);
  expect(
      info.n_inputs == 3 && info.n_outputs == 2 && info.n_constants == 4 && info.num_runners == 2,
      "the numbers");
  expect(info.inputs[0].dtype == 6 && info.inputs[0].ndim == 2, "input 0");
  expect(info.inputs[0].sizes[0] == -1 && info.inputs[0].min[0] == 1 &&
             info.inputs[0].max[0] == 64 && info.inputs[0].sizes[1] == 8,
         "sizes of input 0");
  expect(info.inputs[2].ndim == 0, "input 2");
  expect(info.device.type == 0 && strcmp(info.model_name, "model") == 0, "the device and name");

  pthread_t threads[4]; /* more than there are runners */
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run, m);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);

  Tensor *results = NULL;
  int64_t n = 0;
  const Tensor none[3] = {NULL, NULL, NULL};
  expect_error(AOTIRun(m, none, 3, &results, &n), "TypeError: ");
  expect_error(AOTIRun(m, NULL, 0, &results, &n), "TypeError: ");
  expect_error(AOTIRun(NULL, NULL, 0, &results, &n), "TypeError: ");
  expect(results == NULL, "a failed run writes nothing");

  check(AOTIConstants(m, &results, &n));
  expect(n == info.n_constants, "the number of constants");
  const char *names[4];
  for (int i = 0; i < 4; i++) names[i] = info.constants[i].name;
  check(AOTISetConstants(m, names, results, n, true));
  FreeTensors(results, n);
  FreeArray(results);
  run(m);

  /* Results outlive the model. */
  const Tensor inputs[] = {expected("1.x"), expected("1.kind"), expected("1.temperature")};
  check(AOTIRun(m, inputs, 3, &results, &n));
  AOTIFree(m);
  AOTIFree(NULL);
  bool same;
  check(Equal(results[0], expected("1.p"), &same));
  expect(same, "p is what Python gets, after the model is freed");
  FreeTensors(results, n);
  FreeArray(results);
  FreeTensorFile(&file, true);

  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    expect(strstr(line, "python3.so") == NULL && strstr(line, "libpython") == NULL &&
               strstr(line, "libtorch_cuda.so") == NULL && strstr(line, ".wrapper.so") == NULL,
           "neither Python nor CUDA nor the model is in memory");
  if (maps != NULL) fclose(maps);
  return 0;
}
