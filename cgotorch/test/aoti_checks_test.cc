// What a model's source says of its inputs, and sources that are damaged. Built with sanitizers.
#include "../aoti_checks.h"

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace cgotorch::aoti;

namespace {

int failures = 0;

#define EXPECT(condition)                                                 \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      failures++;                                                         \
    }                                                                     \
  } while (0)

std::optional<int64_t> eval(const char *text, int64_t s0 = 5, int64_t u1 = 3) {
  Symbols symbols{"s0", "u1"};
  return Expr::parse(text, symbols).value({s0, u1});
}

void test_expressions() {
  EXPECT(eval("8L") == 8);
  EXPECT(eval("s0") == 5);
  EXPECT(eval("1L + 2L*s0") == 11);
  EXPECT(eval("(-1L) + s0") == 4);
  EXPECT(eval("2L*(s0 + u1) - s0*u1") == 1);
  EXPECT(eval("s0/2L") == 2);
  EXPECT(eval("s0 % 3L") == 2);
  EXPECT(eval("c10::div_floor_integer(static_cast<int64_t>((-1L)*s0), static_cast<int64_t>(2L))") ==
         -3);
  // What has no value.
  EXPECT(!eval("s0/0L"));
  EXPECT(!eval("s0/(-1L)"));
  EXPECT(!eval("9223372036854775807L + s0"));
  EXPECT(!eval("9223372036854775807L * s0"));
  // What is not understood.
  for (const char *text :
       {"", "s0 +", "(s0", "std::max(s0, 1L)", "buf0", "s", "sx", "99999999999999999999L", "s0 s0",
        "8L)", "1.5", "static_cast<int64_t>(s0"})
    EXPECT(!eval(text));
  std::string deep(100000, '(');
  EXPECT(!eval(deep.c_str()));
}

void test_solving() {
  Symbols symbols;
  const Expr odd = Expr::parse("1L + 2L*s0", symbols);
  Values values(1);
  EXPECT(odd.solve(9, values) && values[0] == 4);
  EXPECT(odd.solve(9, values) && !odd.solve(11, values));
  values[0].reset();
  EXPECT(!odd.solve(8, values) && !values[0]);
  const Expr both = Expr::parse("s0 + s1", symbols);
  values.assign(2, std::nullopt);
  EXPECT(both.solve(7, values) && !values[0] && !values[1]);
  values[0] = 3;
  EXPECT(both.solve(7, values) && values[1] == 4);
}

// As the compiler of torch 2.15 writes it, shortened.
const char *const kSource = R"(
    inputs_info_[0].name = "arg4_1";
    inputs_info_[1].name = "arg5_1";
    constants_info_[0].name = "weight";
    constants_info_[0].shape = {16, 8};
    constants_info_[0].stride = {8, 1};
    constants_info_[1].name = "one";
    constants_info_[1].shape = {};
    constants_info_[1].stride = {};
AOTI_NOINLINE static void check_input_0(
    AtenTensorHandle* input_handles
) {
    int32_t arg4_1_expected_dtype = aoti_torch_dtype_float32();
    if (arg4_1_expected_dtype != arg4_1_dtype) {
    }
    if (arg4_1_size[0] < 2) {
    }
    if (arg4_1_size[0] > 64) {
    }
    if (8 != arg4_1_size[1]) {
    }
    if (8 != arg4_1_stride[0]) {
    }
    int32_t arg4_1_expected_device_type = 0;
}
AOTI_NOINLINE static void check_input_1(
    AtenTensorHandle* input_handles
) {
    int32_t arg5_1_expected_dtype = aoti_torch_dtype_int64();
    if (arg5_1_size[1] < 5) {
    }
    if (2 != arg5_1_size[0]) {
    }
}
    if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(arg4_1, {s31, 8L}, {8L, 1L}, "input"); }
    if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(buf0, {1L}, {1L}, "mm"); }
)";

const char *const kRelation =
    R"({ assert_size_stride(arg5_1, {2L, 1L + 2L*s31}, {1L + 2L*s31, 1L}, "input"); })";

void test_source() {
  Checks checks = read_checks(kSource);
  EXPECT(checks.inputs.size() == 2 && checks.constants.size() == 2);
  const Input &a = checks.inputs[0], &b = checks.inputs[1];
  EXPECT(a.dtype == "float32" && a.device_type == 0 && a.is_complete && a.dims.size() == 2);
  EXPECT(a.dims[0].min == 1 && a.dims[0].max == 64 && a.dims[0].size.symbol() &&
         a.dims[0].stride.number() == 8);
  EXPECT(a.dims[1].size.number() == 8);
  EXPECT(b.dtype == "int64" && b.device_type == -1 && !b.is_complete && b.dims.size() == 2);
  EXPECT(b.dims[0].size.number() == 2 && b.dims[1].min == 5 && !b.dims[1].size.known());
  EXPECT((checks.constants["weight"].sizes == std::vector<int64_t>{16, 8}));
  EXPECT((checks.constants["weight"].strides == std::vector<int64_t>{8, 1}));
  EXPECT(checks.constants["one"].sizes.empty());
}

std::string check(const Checks &checks, std::vector<int64_t> a, std::vector<int64_t> b) {
  Values values;
  return check_sizes(checks, {{a.data(), a.data(), a.size()}, {b.data(), b.data(), b.size()}},
                     values);
}

void test_checks() {
  const Checks loose = read_checks(kSource);
  EXPECT(check(loose, {3, 8}, {2, 5}) == "");
  EXPECT(check(loose, {3, 8}, {2, 5, 7}) == "");
  EXPECT(check(loose, {3, 8}, {2, 4}) ==
         "input 1 has shape [2, 4]: dimension 1 must be at least 5");
  EXPECT(check(loose, {3, 8}, {2}) == "input 1 has shape [2]: it must have 2 dimensions");
  EXPECT(check(loose, {3, 8, 1}, {2, 5}) ==
         "input 0 has shape [3, 8, 1]: it must have 2 dimensions");
  EXPECT(check(loose, {65, 8}, {2, 5}) ==
         "input 0 has shape [65, 8]: dimension 0 must be at most 64");
  EXPECT(check(loose, {0, 8}, {2, 5}) ==
         "input 0 has shape [0, 8]: dimension 0 must be at least 1");

  const Checks tight = read_checks(std::string(kSource) + kRelation);
  EXPECT(check(tight, {3, 8}, {2, 7}) == "");
  EXPECT(check(tight, {3, 8}, {2, 5}) ==
         "input 1 has shape [2, 5]: dimension 1 must be 7 to go with the other inputs");

  Values values(1, 3);
  const int64_t sizes[] = {2, 7}, right[] = {7, 1}, wrong[] = {1, 2}, single[] = {1, 7};
  EXPECT(!other_strides(tight.inputs[1], {sizes, right, 2}, values));
  EXPECT((other_strides(tight.inputs[1], {sizes, wrong, 2}, values) == std::vector<int64_t>{7, 1}));
  EXPECT(!other_strides(tight.inputs[1], {single, single, 2}, values) == false);
}

// Whatever the source is, reading it ends, and within its bounds.
void test_damaged(int rounds) {
  std::mt19937 random(0);
  const std::string whole = std::string(kSource) + kRelation;
  for (int i = 0; i < rounds; i++) {
    std::string text = whole;
    for (unsigned n = random() % 8; n-- > 0;) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random() % 128);
      } else {
        text.erase(at, random() % 20);
      }
    }
    const Checks checks = read_checks(text);
    Values values;
    const int64_t sizes[] = {3, 8, 5, 7};
    const std::vector<Shape> shapes(checks.inputs.size() < 100 ? checks.inputs.size() : 100,
                                    {sizes, sizes, random() % 5});
    if (!check_sizes(checks, shapes, values).empty()) continue;
    for (size_t k = 0; k < shapes.size(); k++) other_strides(checks.inputs[k], shapes[k], values);
  }
}

}  // namespace

int main(int argc, char **argv) {
  test_expressions();
  test_solving();
  test_source();
  test_checks();
  test_damaged(argc > 1 ? std::atoi(argv[1]) : 1000);
  return failures == 0 ? 0 : 1;
}
