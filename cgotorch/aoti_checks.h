// What a compiled model expects of its inputs.
//
// The compiler bakes dtypes, sizes and strides into the code, which does not look at what it gets:
// a smaller tensor is read past its end. Beside the code a package has its C++ source, and in that
// are the checks that PyTorch makes when it is debugged, one function per input, and an assertion
// of each input's sizes and strides in terms of the model's symbols. This reads them. They cannot
// be switched on instead: they take an environment variable, trust that the number of dimensions is
// right, and refuse a batch of one, which the code can do.
//
// No part of libtorch is used here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgotorch::aoti {

// The symbols of a model, and what they stand for in one run.
using Symbols = std::vector<std::string>;
using Values = std::vector<std::optional<int64_t>>;

// A size or stride: a number, a symbol "s0", or a computation with them.
class Expr {
 public:
  Expr() = default;  // unknown
  explicit Expr(int64_t value) : steps_{{Step::kNumber, value}} {}
  // Unknown where the text has anything that this does not understand.
  static Expr parse(std::string_view text, Symbols &symbols);

  bool known() const { return !steps_.empty(); }
  // The number, if it is nothing else.
  std::optional<int64_t> number() const;
  // The symbol's place, if it is nothing else.
  std::optional<size_t> symbol() const;
  // Nothing where a symbol has no value, or a step is impossible.
  std::optional<int64_t> value(const Values &values) const;
  // Whether this can be result, given what is known. A symbol that alone has no value gets the one
  // that makes it so.
  bool solve(int64_t result, Values &values) const;

 private:
  struct Step {
    enum Kind { kNumber, kSymbol, kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo };
    Kind kind;
    int64_t value = 0;
  };
  friend class ExprParser;
  std::vector<Step> steps_;  // in postfix order
};

struct Dim {
  Expr size;
  Expr stride;
  int64_t min = 0;
  int64_t max = INT64_MAX;
};

struct Input {
  std::string name;          // of the variable in the source
  std::string dtype;         // "float32"; "" if not known
  int device_type = -1;      // -1 if not known
  bool is_complete = false;  // dims are all that there are
  std::vector<Dim> dims;
};

struct Constant {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct Checks {
  Symbols symbols;
  std::vector<Input> inputs;
  std::map<std::string, Constant> constants;  // by the name of the variable
};

// Reads the source of a model. What is not there, or not understood, is left unknown.
Checks read_checks(std::string_view source);

// A tensor's sizes and strides.
struct Shape {
  const int64_t *sizes;
  const int64_t *strides;
  size_t ndim;
};

// "" if sizes fit, else what is wrong with which: "input 0 has ...".
std::string check_sizes(const Checks &checks, const std::vector<Shape> &shapes, Values &values);

// The strides that the code expects, if the tensor has others and the difference can matter.
std::optional<std::vector<int64_t>> other_strides(const Input &input, const Shape &shape,
                                                  const Values &values);

}  // namespace cgotorch::aoti
