// What libtorch makes of numbers that a type may not hold: see ../main.go.
#include <torch/headeronly/util/TypeCast.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

static std::string bits(double v) {
  if (v != v) return "nan";
  uint64_t b;
  char text[20];
  memcpy(&b, &v, sizeof b);
  snprintf(text, sizeof text, "%016" PRIx64, b);
  return text;
}
static std::string bits(c10::complex<double> z) { return bits(z.real()) + "," + bits(z.imag()); }
static std::string bits(int64_t v) { return std::to_string(v); }
static std::string bits(uint64_t v) { return std::to_string(v); }

template <typename To, typename Shown, typename From>
void show(const char *arg, const char *name, From from) {
  std::string result;
  try {
    result = bits(static_cast<Shown>(c10::checked_convert<To, From>(from, name)));
  } catch (const std::exception &) {
    result = "overflow";
  }
  printf("%s %s %s\n", arg, name, result.c_str());
}

template <typename From>
void all(const char *arg, From from) {
  show<bool, int64_t>(arg, "bool", from);
  show<uint8_t, uint64_t>(arg, "uint8", from);
  show<int8_t, int64_t>(arg, "int8", from);
  show<int16_t, int64_t>(arg, "int16", from);
  show<int32_t, int64_t>(arg, "int32", from);
  show<int64_t, int64_t>(arg, "int64", from);
  show<uint16_t, uint64_t>(arg, "uint16", from);
  show<uint32_t, uint64_t>(arg, "uint32", from);
  show<uint64_t, uint64_t>(arg, "uint64", from);
  show<float, double>(arg, "float32", from);
  show<double, double>(arg, "float64", from);
  show<c10::complex<float>, c10::complex<double>>(arg, "complex64", from);
  show<c10::complex<double>, c10::complex<double>>(arg, "complex128", from);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *text = argv[i] + 2;
    char *rest;
    switch (argv[i][0]) {
      case 'b':
        all(argv[i], text[0] == '1');
        break;
      case 'i':
        all(argv[i], (int64_t)strtoll(text, nullptr, 10));
        break;
      case 'u':
        all(argv[i], (uint64_t)strtoull(text, nullptr, 10));
        break;
      case 'f':
        all(argv[i], strtod(text, nullptr));
        break;
      default: {
        double re = strtod(text, &rest);
        all(argv[i], c10::complex<double>(re, strtod(rest + 1, nullptr)));
      }
    }
  }
}
