/* The C ABI from C99, without torch's headers: rows D3, D4, D5 and D9, results of every form, and
 * that failure writes nothing and leaks nothing. Prints a line a fact; exits 1 if one is wrong. */
#include "facts.h"

static int64_t uses(Tensor t, bool storage) {
  TensorInfo info;
  must(GetTensorInfo(t, &info));
  return storage ? info.storage_uses : info.uses;
}

static const ScalarType kFloat = 6;

static Tensor filled(int64_t rows, int64_t columns) {
  int64_t sizes[] = {rows, columns};
  float data[64];
  for (int i = 0; i < rows * columns; i++) data[i] = (float)(i + 1);
  Tensor t;
  must(TensorFromData(data, rows * columns * 4, sizes, 2, kFloat, &t));
  return t;
}

static void results(void) {
  Tensor a = filled(2, 3), t, c;
  must(Transpose2D(a, &t));
  must(MM(a, t, &c));
  float out[4];
  must(TensorCopyOut(c, out, sizeof out));
  fact(out[0] == 14 && out[1] == 32 && out[3] == 77, "D3: MM multiplies");
  fact(uses(a, true) == 2, "D4: a view is one more reference to the same storage");
  int64_t before = uses(a, false);
  Tensor again = RetainTensor(a);
  fact(again == a && uses(a, false) == before + 1,
       "D4: a second handle is one more reference, no copy");
  FreeTensor(again);
  FreeTensor(t);
  fact(uses(a, true) == 1 && uses(a, false) == 1, "D4: freeing gives the references back");
  FreeTensor(c);

  Tensor values, indices;
  must(MaxDim(a, 1, false, &values, &indices));
  Scalar item;
  Tensor first;
  must(Select(indices, 0, 0, &first));
  must(TensorItem(first, &item));
  fact(item.kind == ScalarInt && item.v.i == 2, "two results");
  FreeTensor(first);
  FreeTensor(values);
  FreeTensor(indices);

  Tensor *parts;
  int64_t n;
  must(Unbind(a, 0, &parts, &n));
  fact(n == 2 && uses(a, true) == 3, "a list of results");
  FreeTensors(parts, n);
  FreeArray(parts);

  Tensor same;
  Scalar one = {ScalarInt, {1}};
  must(AddScalar_(a, one, one, &same));
  fact(same == a, "an in-place function gives its argument back");
  FreeTensor(same);
  must(AddScalar_(a, one, one, NULL));
  fact(uses(a, false) == 1, "or nothing, where it is not wanted");

  bool is;
  must(IsFloatingPoint(a, &is));
  fact(is, "a bool result");
  FreeTensor(a);
}

static void sparse(void) {
  Tensor a = filled(3, 3), s, c, dense;
  must(ToSparse(a, NULL, NULL, 0, NULL, &s));
  TensorInfo info;
  must(GetTensorInfo(s, &info));
  must(MM(s, a, &c));
  must(ToDense(c, NULL, NULL, &dense));
  float out[9];
  must(TensorCopyOut(dense, out, sizeof out));
  fact(info.layout == 1 && out[0] == 30 && out[8] == 150, "D9: the same MM takes a sparse matrix");
  FreeTensor(a);
  FreeTensor(s);
  FreeTensor(c);
  FreeTensor(dense);
}

static void errors(void) {
  int64_t base = live();
  Tensor a = filled(2, 3), untouched = (Tensor)&failures, c = untouched;
  fact(fails_like(MM(a, a, &c), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
       "D5: PyTorch's own message");
  fact(c == untouched, "D5: failure writes no output");
  fact(fails_like(MM(a, NULL, &c), "'mat2'"), "a NULL argument is an error that names it");
  fact(fails_like(Select(a, 0, 7, &c), "IndexError: "), "the error's class comes first");
  const char *err = Select(a, 0, 7, &c);
  fact(strchr(err, '\n') == NULL && strstr(err, "Exception raised from") == NULL,
       "one line, without a C++ backtrace");
  FreeString(err);
  Tensor list[] = {a, NULL};
  fact(fails_like(Cat(list, 2, 0, &c), "'tensors'"), "a NULL in a list is an error");
  ScalarType no_such = 1000;
  int64_t size[] = {2};
  fact(fails_like(Ones(size, 1, &no_such, NULL, NULL, NULL, &c), "dtype"),
       "a dtype that does not exist is an error");
  Device nowhere = {77, 0};
  fact(fails_like(Ones(size, 1, NULL, NULL, &nowhere, NULL, &c), "device"),
       "a device that does not exist is an error");
  int64_t huge[] = {INT64_C(1) << 40, 1024};
  fact(fails_like(Ones(huge, 2, NULL, NULL, NULL, NULL, &c), "you tried to allocate"),
       "memory that cannot be had is an error");
  Scalar five = {ScalarInt, {5}};
  fact(fails_like(GetItem(a, NULL, 1, &c), "terms is NULL"), "index terms that are not there");
  fact(fails_like(SetItemScalar(a, NULL, 1, five, false), "terms is NULL"),
       "index terms that are not there, to be written");
  fact(fails_like(GetItem(a, NULL, -1, &c), "negative"), "a negative number of index terms");
  IndexTerm ints = {.kind = IndexInts, .start = -1};
  fact(fails_like(GetItem(a, &ints, 1, &c), "negative length"), "a list of a negative length");
  Tensor all;
  must(GetItem(a, NULL, 0, &all));
  fact(uses(all, true) == 2, "no index terms name the whole tensor");
  FreeTensor(all);
  fact(c == untouched, "none of them wrote an output");
  FreeString(NULL);
  FreeTensor(NULL);
  FreeTensor(a);
  fact(live() == base, "no handle is left");
}

/* A job of one rank. */
static void distributed(void) {
  int64_t base = live();
  must(DistSelfTest());
  must(DistSelfTest());
  must(DistSetDebugLevel(2));
  fact(DistDebugLevel() == 2, "the debug level is what was set");
  must(DistSetDebugLevel(0));
  fact(fails_like(DistSetDebugLevel(3), "ValueError: "), "there is no such debug level");
  DistStore store, under;
  must(DistHashStore(&store));
  must(DistPrefixStore("a", store, &under));
  must(DistStoreSet(under, "key", "value", 5));
  void *value;
  int64_t n, sum;
  must(DistStoreGet(store, "a/key", &value, &n));
  fact(n == 5 && memcmp(value, "value", 5) == 0, "a prefix and a slash stand before keys");
  FreeArray(value);
  must(DistStoreAdd(store, "n", 3, &sum));
  fact(sum == 3, "numbers in a store begin at 0");
  const char *keys[] = {"nothing"};
  fact(fails_like(DistStoreWait(store, keys, 1, 20), "DistStoreError: "),
       "a key that does not come is an error");
  fact(fails_like(DistStorePort(store, &n), "ValueError: "), "a store without a port has none");
  DistGroupOptions options = {.name = "0", .timeout_ms = 10000};
  DistGroup group;
  fact(fails_like(DistNewGroup(store, 1, 1, &options, &group), "ValueError: "),
       "a rank that cannot be");
  options.backend = "nccl";
  fact(fails_like(DistNewGroup(store, 0, 1, &options, &group), "NotImplementedError: "),
       "a backend that is not there");
  options.backend = NULL;
  must(DistNewGroup(store, 0, 1, &options, &group));
  DistStoreFree(under);
  DistStoreFree(store); /* the group has it */
  Tensor a = filled(2, 3), b;
  must(Clone(a, NULL, &b));
  DistWork work;
  must(DistAllReduce(group, b, NULL, &work));
  must(DistWorkWait(work, 0));
  bool same;
  must(Equal(a, b, &same));
  fact(same, "the sum over one rank");
  DistWorkFree(work);
  DistOptions bad = {.op = 99};
  fact(fails_like(DistAllReduce(group, b, &bad, &work), "ValueError: "), "no such reduction");
  fact(fails_like(DistAllReduce(group, NULL, NULL, &work), "TypeError: "), "no tensor");
  must(DistBroadcast(group, b, NULL, &work)); /* that nobody waits for */
  DistWorkFree(work);
  FreeTensor(a);
  FreeTensor(b);
  DistGroupFree(group);
  DistStoreFree(NULL);
  DistGroupFree(NULL);
  DistWorkFree(NULL);
  fact(live() == base, "nothing is left of a group");
}

int main(void) {
  int64_t base = live();
  results();
  sparse();
  errors();
  distributed();
  fact(live() == base, "every handle was freed");
  return failures != 0;
}
