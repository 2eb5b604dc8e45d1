/* What calls back and what travels boxed, from C99: hooks, functions, operators by name,
 * generators, modes, warnings and files. Prints a line a fact; exits 1 if one is wrong. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>

#include "facts.h"

static char *text(const char *s) { return strcpy(malloc(strlen(s) + 1), s); }

static Tensor vector(float a, float b) {
  const float data[] = {a, b};
  const int64_t size = 2;
  Tensor t;
  must(TensorFromData(data, sizeof data, &size, 1, 6, &t));
  return t;
}

static Tensor leaf(float a, float b) {
  Tensor t = vector(a, b);
  must(TensorSetRequiresGrad(t, true));
  return t;
}

static bool holds(Tensor t, float a, float b) {
  float got[2] = {0, 0};
  if (t != NULL) must(TensorCopyOut(t, got, sizeof got));
  if (t == NULL || got[0] != a || got[1] != b) {
    printf("     got: %g %g\n", got[0], got[1]);
    return false;
  }
  return true;
}

static Tensor times(Tensor t, double by) {
  Scalar s = {ScalarFloat, {0}};
  s.v.f = by;
  Tensor r;
  must(MulScalar(t, s, &r));
  return r;
}

/* Runs the sum of t backward; returns the error. */
static const char *run_back(Tensor t) {
  Tensor sum;
  must(Sum(t, NULL, &sum));
  const char *err = Backward(&sum, 1, NULL, NULL, false, NULL, 0);
  FreeTensor(sum);
  return err;
}

static bool grad_holds(Tensor t, float a, float b) {
  Tensor g;
  must(TensorGrad(t, &g));
  bool ok = holds(g, a, b);
  FreeTensor(g);
  return ok;
}

/* Hooks -------------------------------------------------------------------------------------- */

static int released;
static void release(void *data) {
  (void)data;
  released++;
}

static const char *triple(void *data, Tensor grad, Tensor *result) {
  ++*(int *)data;
  *result = times(grad, 3);
  return NULL;
}
static const char *refuse(void *data, Tensor grad, Tensor *result) {
  (void)data, (void)grad, (void)result;
  return text("KeyError: no such gradient");
}
static const char *count(void *data, Tensor t) {
  (void)t;
  ++*(int *)data;
  return NULL;
}

static void hooks(void) {
  int calls = 0, posts = 0;
  released = 0;
  Hook hook, post;
  Tensor x = leaf(1, 2);
  must(RegisterHook(x, triple, &calls, release, &hook));
  must(RegisterPostAccumulateGradHook(x, count, &posts, release, &post));
  Tensor y = times(x, 2);
  must(run_back(y));
  fact(grad_holds(x, 6, 6) && calls == 1 && posts == 1, "hooks see and replace the gradient");
  RemoveHook(hook);
  fact(released == 1, "removing a hook releases its data");
  RemoveHook(hook);
  FreeHook(hook);
  FreeTensor(y);

  must(RegisterHook(x, refuse, NULL, release, NULL));
  y = times(x, 2);
  fact(fails_like(run_back(y), "KeyError: no such gradient"), "an error in a hook comes out");
  fact(posts == 1, "what comes after the error does not happen");
  FreeTensor(y);
  FreeTensor(x);
  fact(released == 3, "hooks go with their tensor");
  RemoveHook(post);
  FreeHook(post);
  fact(released == 3, "removing a hook after its tensor does nothing");

  Tensor plain = vector(1, 2);
  fact(fails_like(RegisterHook(plain, triple, &calls, release, &hook),
                  "RuntimeError: cannot register a hook on a tensor that doesn't require gradient"),
       "a tensor without gradient takes no hook");
  fact(released == 3, "a hook that is refused is not released");
  FreeTensor(plain);
}

/* Functions ---------------------------------------------------------------------------------- */

static const char *square_back(void *data, FunctionContext context, const Tensor *grads, int64_t n,
                               Tensor *results, int64_t n_results) {
  Tensor saved, product;
  if (n != 1 || n_results != 2 || FunctionSavedCount(context) != 1)
    return text("ValueError: wrong counts");
  if (FunctionNeedsInputGrad(context, 0) || !FunctionNeedsInputGrad(context, 1))
    return text("ValueError: wrong needs");
  ++*(int *)data;
  const char *err = FunctionSavedTensors(context, &saved);
  if (err != NULL) return err;
  err = Mul(saved, grads[0], &product);
  FreeTensor(saved);
  if (err != NULL) return err;
  results[1] = times(product, 2);
  FreeTensor(product);
  return NULL;
}

static Tensor square(Tensor x, int *calls) {
  const Function f = {"SquareBackward", square_back, calls, release, true};
  const Tensor inputs[] = {NULL, x};
  Tensor raw, y;
  const bool grad_mode = SetGradMode(false);
  must(Mul(x, x, &raw));
  SetGradMode(grad_mode);
  must(ApplyFunction(&f, inputs, 2, &raw, 1, &x, 1, NULL, 0, NULL, 0, &y));
  FreeTensor(raw);
  return y;
}

static void functions(void) {
  int calls = 0;
  released = 0;
  Tensor x = leaf(1, 2);
  Tensor y = square(x, &calls);
  const char *name;
  must(GradFnName(y, &name));
  fact(strcmp(name, "SquareBackward") == 0, "the node has the function's name");
  FreeString(name);
  must(run_back(y));
  fact(grad_holds(x, 2, 4) && calls == 1, "the backward of a function is called");
  fact(fails_like(run_back(y), "RuntimeError: Trying to backward through the graph a second time"),
       "what a function saved is freed with the graph");
  FreeTensor(y);
  fact(released == 1, "a function is released with its graph");

  Scalar one = {ScalarInt, {1}};
  Tensor same;
  y = square(x, &calls);
  const bool grad_mode = SetGradMode(false);
  must(AddScalar_(x, one, one, &same));
  SetGradMode(grad_mode);
  fact(same == x, "in place, the result is another handle to the same tensor");
  FreeTensor(same);
  fact(fails_like(run_back(y), "has been modified by an inplace operation"),
       "a saved tensor that was changed is noticed");
  FreeTensor(y);
  Tensor plain = vector(1, 2);
  y = square(plain, &calls);
  fact(released == 3, "where nothing requires grad a function is released at once");
  FreeTensor(y);
  FreeTensor(plain);
  FreeTensor(x);
}

/* Gradients ---------------------------------------------------------------------------------- */

static void gradients(void) {
  Tensor x = leaf(1, 2), unused = leaf(0, 0), y = times(x, 5), results[2];
  const Tensor inputs[] = {x, unused}, weights = vector(1, 10);
  const bool keep = true;
  must(Grad(&y, 1, inputs, 1, &weights, &keep, false, false, false, results));
  fact(holds(results[0], 5, 50), "Grad multiplies with the outputs' gradients");
  FreeTensor(results[0]);
  results[0] = NULL;
  fact(fails_like(Grad(&y, 1, inputs, 2, &weights, &keep, false, false, false, results),
                  "not have been used in the graph") &&
           results[0] == NULL,
       "an unused input is an error that writes nothing");
  must(Grad(&y, 1, inputs, 2, &weights, &keep, false, true, false, results));
  fact(results[1] == NULL, "allow_unused gives NULL");
  FreeTensors(results, 2);
  must(Grad(&y, 1, inputs, 2, &weights, NULL, false, false, true, results));
  fact(holds(results[1], 0, 0), "materialize_grads gives zeros");
  FreeTensors(results, 2);
  must(TensorSetGrad(x, weights));
  fact(grad_holds(x, 1, 10), "a gradient can be set");
  must(TensorSetGrad(x, NULL));
  Tensor g;
  must(TensorGrad(x, &g));
  fact(g == NULL, "and cleared");
  FreeTensor(weights);
  FreeTensor(y);
  FreeTensor(x);
  FreeTensor(unused);
}

/* Operators ---------------------------------------------------------------------------------- */

static Value tensor_value(Tensor t) {
  Value v = {ValueTensor, 0, {0}};
  v.v.tensor = t;
  return v;
}

static void operators(void) {
  Operator add, cat;
  must(FindOperator("aten::add", "Tensor", &add));
  must(FindOperator("aten::cat", "", &cat));
  fact(OperatorArity(add) == 3 && OperatorArgument(add, "alpha") == 2 &&
           OperatorArgument(add, "beta") == -1,
       "an operator knows its arguments");
  const char *schema;
  must(OperatorSchema(cat, &schema));
  fact(strcmp(schema, "aten::cat(Tensor[] tensors, int dim=0) -> Tensor") == 0, "and its schema");
  FreeString(schema);

  Tensor a = vector(1, 2);
  const char *names[] = {NULL, NULL, "alpha"};
  Value args[3] = {tensor_value(a), tensor_value(a), {ValueInt, 0, {3}}}, *results;
  int64_t n;
  must(CallOperator(add, args, 3, names, 3, &results, &n));
  fact(n == 1 && results[0].kind == ValueTensor && holds(results[0].v.tensor, 4, 8),
       "an operator takes arguments by name");
  FreeValues(results, n, true);

  Value list[3] = {{ValueList, 2, {0}}, tensor_value(a), tensor_value(a)};
  must(CallOperator(cat, list, 3, NULL, 1, &results, &n));
  int64_t numel = 0;
  TensorInfo info;
  must(GetTensorInfo(results[0].v.tensor, &info));
  numel = info.numel;
  fact(numel == 4, "a list lies flat behind its head");
  FreeValues(results, n, true);
  list[0].len = 3;
  fact(fails_like(CallOperator(cat, list, 3, NULL, 1, &results, &n),
                  "ValueError: the array of values ends too early"),
       "a list that claims too much is refused");
  list[0].len = INT64_MAX;
  fact(fails_like(CallOperator(cat, list, 3, NULL, 1, &results, &n), "ends too early"),
       "also one that claims everything");
  list[0].kind = 77;
  fact(fails_like(CallOperator(cat, list, 3, NULL, 1, &results, &n),
                  "must be Tensor[], not an unknown kind of value"),
       "a kind that there is none of is refused");
  fact(fails_like(CallOperator(cat, list, 0, NULL, 1, &results, &n), "ends too early"),
       "an argument without a value is refused");
  fact(fails_like(FindOperator("aten::nope", "", &add), "AttributeError: there is no operator"),
       "an unknown operator is refused");
  FreeTensor(a);
}

/* The rest ----------------------------------------------------------------------------------- */

static void modes(void) {
  InferenceMode state;
  Autocast cast = {0, -1, true, true}, before, now;
  fact(GradModeEnabled() && SetGradMode(false) && !SetGradMode(true), "grad mode");
  must(EnterInferenceMode(true, &state));
  fact(InferenceModeEnabled() && !GradModeEnabled(), "inference mode");
  LeaveInferenceMode(state);
  fact(!InferenceModeEnabled() && GradModeEnabled(), "inference mode is left");
  must(EnterAutocast(&cast, &before));
  must(GetAutocast(0, &now));
  fact(now.enabled && now.dtype == 15, "autocast, in bfloat16 on the CPU");
  must(LeaveAutocast(&before));
  must(GetAutocast(0, &now));
  fact(!now.enabled, "autocast is left");
  int64_t value;
  fact(fails_like(GetSetting(0, &value), "ValueError: there is no setting 0") &&
           fails_like(GetSetting(SettingCount, &value), "there is no setting"),
       "settings that there are none of");
  must(SetSetting(SettingCuDNNBenchmark, 1));
  must(GetSetting(SettingCuDNNBenchmark, &value));
  must(SetSetting(SettingCuDNNBenchmark, 0));
  fact(value == 1, "settings");
}

static void generators(void) {
  const Device cpu = {0, -1};
  Generator g, twin;
  uint64_t seed;
  Tensor state;
  must(NewGenerator(cpu, &g));
  must(GeneratorManualSeed(g, UINT64_MAX));
  must(GeneratorInitialSeed(g, &seed));
  must(GeneratorState(g, &state));
  must(GeneratorClone(g, &twin));
  must(GeneratorSeed(g, &seed));
  must(GeneratorSetState(g, state));
  must(GeneratorInitialSeed(g, &seed));
  fact(seed == UINT64_MAX, "a generator's state is kept");
  fact(fails_like(GeneratorState(NULL, &state), "TypeError: argument 'g' must be a generator"),
       "no generator is a TypeError");
  FreeTensor(state);
  FreeGenerator(g);
  FreeGenerator(RetainGenerator(twin));
  FreeGenerator(twin);
}

static void files(const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/test.safetensors", folder);
  const char *names[] = {"a", "b"}, *metadata[] = {"key", "value"}, *twice[] = {"a", "a"};
  const Tensor tensors[] = {vector(1, 2), vector(3, 4)};
  must(SaveTensors(path, names, tensors, 2, metadata, 1));
  for (int map = 0; map < 2; map++) {
    TensorFile file;
    must(LoadTensors(path, map == 1, &file));
    fact(file.n == 2 && strcmp(file.names[1], "b") == 0 && holds(file.tensors[1], 3, 4) &&
             file.n_metadata == 1 && strcmp(file.metadata[1], "value") == 0,
         map == 1 ? "a file is mapped" : "a file is read");
    FreeTensorFile(&file, true);
  }
  TensorFile none;
  fact(fails_like(SaveTensors(path, twice, tensors, 2, NULL, 0), "two tensors are named 'a'"),
       "equal names are refused");
  remove(path);
  fact(fails_like(LoadTensors("/no/such/file", false, &none), "FileNotFoundError: open /no/such/"),
       "a file that is not there");
  snprintf(path, sizeof path, "%s/pipe", folder);
  Storage bytes;
  fact(mkfifo(path, 0600) == 0 && fails_like(LoadTensors(path, false, &none), "OSError: read ") &&
           fails_like(MapFile(path, 0, 0, &bytes), "OSError: read "),
       "nobody waits for who would write into a pipe");
  remove(path);
  fact(fails_like(LoadTensors(folder, false, &none), "IsADirectoryError: read ") &&
           fails_like(MapFile("/dev/zero", 0, 1, &bytes), "OSError: read ") &&
           fails_like(MapFile("/dev/full", 0, 1, &bytes), "not a regular file"),
       "nor reads a folder or a device");
  fact(fails_like(ParseTensors("12345678{", 9, &none), "ValueError: "), "a file that is none");
  FreeTensors(tensors, 2);
}

/* Warnings ----------------------------------------------------------------------------------- */

static const char *const kUint8 = "indexing with dtype torch.uint8 is now deprecated";

static void count_uint8(void *data, const char *kind, const char *message) {
  if (strcmp(kind, "UserWarning") == 0 && strstr(message, kUint8) == message) ++*(int *)data;
}

static Tensor masked(Tensor t, Tensor mask) {
  IndexTerm term = {IndexTensor, 0, 0, 0, {NULL}};
  term.of.tensor = mask;
  Tensor picked;
  must(GetItem(t, &term, 1, &picked));
  return picked;
}

static void warnings(void) {
  const uint8_t data[] = {0, 1};
  const int64_t size = 2;
  Tensor x = vector(1, 2), mask;
  must(TensorFromData(data, sizeof data, &size, 1, 0, &mask));
  int first = 0, second = 0;
  released = 0;
  must(SetWarningHandler(count_uint8, &first, release));
  FreeTensor(masked(x, mask));
  FreeTensor(masked(x, mask));
  fact(first == 2 && released == 0, "each warning comes to the handler");
  must(SetWarningHandler(count_uint8, &second, release));
  FreeTensor(masked(x, mask));
  fact(first == 2 && second == 1 && released == 1, "another handler takes its place");

  const int64_t before = live();
  const char *kind, *message;
  struct cgotorch_warnings *outer = cgotorch_gather_warnings(), *w = cgotorch_gather_warnings();
  FreeTensor(times(x, 2));
  fact(cgotorch_gathered_warnings(w) == NULL, "nothing is gathered where nothing warns");
  w = cgotorch_gather_warnings();
  masked(x, mask);
  w = cgotorch_gathered_warnings(w);
  message = cgotorch_warning(w, 0, &kind);
  fact(second == 1 && strstr(message, kUint8) == message && strcmp(kind, "UserWarning") == 0,
       "warnings can be gathered instead");
  fact(cgotorch_warning(w, 1, &kind) == NULL, "and are as many as there were");
  cgotorch_free_warnings(w, true);
  fact(live() == before, "results of a call that warned can be refused");
  w = cgotorch_gather_warnings();
  masked(x, mask);
  must(SetWarningHandler(count_uint8, &second, NULL)); /* a call that gives no results out */
  times(x, 2);
  cgotorch_free_warnings(cgotorch_gathered_warnings(w), true);
  fact(live() == before, "and those of calls after it");
  cgotorch_swap_warnings(cgotorch_swap_warnings(NULL));
  fact(cgotorch_gathered_warnings(outer) == NULL, "gathering nests");

  must(SetWarningHandler(PrintWarningOnce, "once:", NULL));
  fact(released == 2, "a handler that was replaced is released");
  for (int i = 0; i < 3; i++) FreeTensor(masked(x, mask));
  must(SetWarningHandler(NULL, NULL, NULL));
  FreeTensor(x);
  FreeTensor(mask);
}

int main(int argc, char **argv) {
  hooks(); /* and what is made once */
  const int64_t before = live();
  hooks();
  functions();
  gradients();
  operators();
  modes();
  generators();
  warnings();
  files(argc > 1 ? argv[1] : ".");
  fact(live() == before, "no handle is left");
  return failures > 0;
}
