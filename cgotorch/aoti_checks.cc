// aoti_checks.cc: see aoti_checks.h.
#include "aoti_checks.h"

#include <algorithm>
#include <charconv>

namespace cgotorch::aoti {

// Expressions -------------------------------------------------------------------------------------

class ExprParser {
 public:
  ExprParser(std::string_view text, Symbols &symbols) : text_(text), symbols_(symbols) {}

  Expr parse() {
    if (sum() && (space(), at_ == text_.size())) return std::move(out_);
    return Expr();
  }

 private:
  using Step = Expr::Step;
  static constexpr int kMaxDepth = 64;

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
  }
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') at_++;
  }
  bool eat(std::string_view token) {
    space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void push(Step::Kind kind, int64_t value = 0) { out_.steps_.push_back({kind, value}); }

  bool sum() {
    if (!product()) return false;
    for (;;) {
      if (eat("+")) {
        if (!product()) return false;
        push(Step::kAdd);
      } else if (eat("-")) {
        if (!product()) return false;
        push(Step::kSubtract);
      } else {
        return true;
      }
    }
  }
  bool product() {
    if (!atom()) return false;
    for (;;) {
      if (eat("*")) {
        if (!atom()) return false;
        push(Step::kMultiply);
      } else if (eat("/")) {
        if (!atom()) return false;
        push(Step::kDivide);
      } else if (eat("%")) {
        if (!atom()) return false;
        push(Step::kModulo);
      } else {
        return true;
      }
    }
  }
  bool atom() {
    if (++depth_ > kMaxDepth) return false;
    const bool ok = atom_within();
    depth_--;
    return ok;
  }
  bool atom_within() {
    if (eat("(")) return sum() && eat(")");
    if (eat("-")) {
      push(Step::kNumber, 0);
      if (!atom()) return false;
      push(Step::kSubtract);
      return true;
    }
    if (eat("static_cast<int64_t>(")) return sum() && eat(")");
    if (eat("c10::div_floor_integer(")) {
      if (!sum() || !eat(",") || !sum() || !eat(")")) return false;
      push(Step::kFloorDivide);
      return true;
    }
    const size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) at_++;
    std::string_view word = text_.substr(start, at_ - start);
    if (word.empty()) return false;
    if (word[0] >= '0' && word[0] <= '9') {
      while (word.back() == 'L') word.remove_suffix(1);
      int64_t number;
      const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), number);
      if (failed != std::errc() || end != word.data() + word.size()) return false;
      push(Step::kNumber, number);
      return true;
    }
    // Symbols are s0, u3 ...; anything else is a call or a variable that is computed elsewhere.
    if ((word[0] != 's' && word[0] != 'u') || word.size() < 2 || word.size() > 20 ||
        !std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return false;
    auto found = std::find(symbols_.begin(), symbols_.end(), word);
    const auto place = found - symbols_.begin();
    if (found == symbols_.end()) symbols_.emplace_back(word);
    push(Step::kSymbol, place);
    return true;
  }

  std::string_view text_;
  Symbols &symbols_;
  size_t at_ = 0;
  int depth_ = 0;
  Expr out_;
};

Expr Expr::parse(std::string_view text, Symbols &symbols) {
  return ExprParser(text, symbols).parse();
}

std::optional<int64_t> Expr::number() const {
  if (steps_.size() == 1 && steps_[0].kind == Step::kNumber) return steps_[0].value;
  return std::nullopt;
}

std::optional<size_t> Expr::symbol() const {
  if (steps_.size() == 1 && steps_[0].kind == Step::kSymbol)
    return static_cast<size_t>(steps_[0].value);
  return std::nullopt;
}

std::optional<int64_t> Expr::value(const Values &values) const {
  if (const auto n = number()) return n;
  std::vector<int64_t> stack;
  for (const Step &step : steps_) {
    if (step.kind == Step::kNumber) {
      stack.push_back(step.value);
      continue;
    }
    if (step.kind == Step::kSymbol) {
      const auto &v = values[static_cast<size_t>(step.value)];
      if (!v) return std::nullopt;
      stack.push_back(*v);
      continue;
    }
    const int64_t b = stack.back();
    stack.pop_back();
    int64_t &a = stack.back();
    const bool divides = step.kind >= Step::kDivide;
    if (divides && (b == 0 || b == -1)) return std::nullopt;
    bool overflow = false;
    switch (step.kind) {
      case Step::kAdd:
        overflow = __builtin_add_overflow(a, b, &a);
        break;
      case Step::kSubtract:
        overflow = __builtin_sub_overflow(a, b, &a);
        break;
      case Step::kMultiply:
        overflow = __builtin_mul_overflow(a, b, &a);
        break;
      case Step::kDivide:
        a /= b;
        break;
      case Step::kFloorDivide:
        a = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
        break;
      case Step::kModulo:
        a %= b;
        break;
      default:
        return std::nullopt;
    }
    if (overflow) return std::nullopt;
  }
  if (stack.size() != 1) return std::nullopt;
  return stack[0];
}

bool Expr::solve(int64_t result, Values &values) const {
  if (const auto v = value(values)) return *v == result;
  std::optional<size_t> open;
  for (const Step &step : steps_) {
    if (step.kind != Step::kSymbol) continue;
    const auto place = static_cast<size_t>(step.value);
    if (values[place]) continue;
    if (open && *open != place) return true;  // two of them: nothing can be said
    open = place;
  }
  if (!open) return true;
  if (symbol()) {
    values[*open] = result;
    return true;
  }
  // Sizes are linear in a symbol, as good as always.
  const auto at = [&](int64_t x) {
    values[*open] = x;
    const auto v = value(values);
    values[*open].reset();
    return v;
  };
  const auto f1 = at(1), f2 = at(2), f3 = at(3);
  if (!f1 || !f2 || !f3 || *f3 - *f2 != *f2 - *f1 || *f2 == *f1) return true;
  const int64_t slope = *f2 - *f1, offset = *f1 - slope;
  if ((result - offset) % slope != 0) return false;
  values[*open] = (result - offset) / slope;
  return true;
}

// The source --------------------------------------------------------------------------------------

namespace {

// What is between the first `before` in s and the next `after`; nothing where they are not there.
std::optional<std::string_view> between(std::string_view s, std::string_view before,
                                        std::string_view after) {
  const size_t start = s.find(before);
  if (start == std::string_view::npos) return std::nullopt;
  s.remove_prefix(start + before.size());
  const size_t end = s.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  return s.substr(0, end);
}

std::optional<int64_t> to_int(std::optional<std::string_view> s) {
  if (!s) return std::nullopt;
  int64_t v;
  const auto [end, failed] = std::from_chars(s->data(), s->data() + s->size(), v);
  if (failed != std::errc() || end != s->data() + s->size()) return std::nullopt;
  return v;
}

// The parts of "a, f(b, c), " that commas at the top level separate.
std::vector<std::string_view> split(std::string_view s) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= s.size(); i++) {
    if (i < s.size() && s[i] != ',') {
      depth += s[i] == '(' ? 1 : s[i] == ')' ? -1 : 0;
      continue;
    }
    if (i < s.size() && depth != 0) continue;
    std::string_view part = s.substr(start, i - start);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.push_back(part);
    start = i + 1;
  }
  return parts;
}

// A number in an index that a hostile package may have chosen.
constexpr int64_t kMaxInputs = 1'000'000;
constexpr int64_t kMaxDims = 64;

class SourceReader {
 public:
  explicit SourceReader(std::string_view source) : rest_(source) {}

  Checks read() {
    while (next()) {
      if (line_.starts_with("inputs_info_[")) {
        name_input();
      } else if (line_.starts_with("constants_info_[")) {
        constant();
      } else if (const auto index = to_int(between(line_, "static void check_input_", "("))) {
        if (Input *in = input(*index)) check(*in);
      } else if (const auto call = between(line_, "assert_size_stride(", ");")) {
        assertion(*call);
      }
    }
    return std::move(out_);
  }

 private:
  // Goes to the next line, without what it is indented by.
  bool next() {
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    at_margin_ = !line_.empty() && line_[0] != ' ';
    line_.remove_prefix(std::min(line_.find_first_not_of(' '), line_.size()));
    return true;
  }

  Input *input(int64_t index) {
    if (index < 0 || index >= kMaxInputs) return nullptr;
    if (out_.inputs.size() <= static_cast<size_t>(index))
      out_.inputs.resize(static_cast<size_t>(index) + 1);
    return &out_.inputs[static_cast<size_t>(index)];
  }

  static Dim *dim(Input &in, std::optional<int64_t> index) {
    if (!index || *index < 0 || *index >= kMaxDims) return nullptr;
    if (in.dims.size() <= static_cast<size_t>(*index)) {
      if (in.is_complete) return nullptr;
      in.dims.resize(static_cast<size_t>(*index) + 1);
    }
    return &in.dims[static_cast<size_t>(*index)];
  }

  //   inputs_info_[0].name = "arg4_1";
  void name_input() {
    const auto index = to_int(between(line_, "[", "]"));
    const auto name = between(line_, ".name = \"", "\"");
    if (!index || !name) return;
    if (Input *in = input(*index)) in->name = *name;
  }

  //   constants_info_[0].name = "constant_0_weight";
  //   constants_info_[0].shape = {16, 8};
  void constant() {
    if (const auto name = between(line_, ".name = \"", "\"")) {
      constant_ = &out_.constants[std::string(*name)];
      return;
    }
    if (constant_ == nullptr) return;
    const auto numbers = [&](std::string_view member, std::vector<int64_t> &out) {
      const auto list = between(line_, member, "}");
      if (!list) return;
      out.clear();
      for (std::string_view part : split(*list)) {
        while (!part.empty() && part.back() == 'L') part.remove_suffix(1);
        out.push_back(to_int(part).value_or(-1));
      }
    };
    numbers(".shape = {", constant_->sizes);
    numbers(".stride = {", constant_->strides);
  }

  //   static void check_input_0(
  //       ...
  //       int32_t arg4_1_expected_dtype = aoti_torch_dtype_float32();
  //       if (arg4_1_size[0] < 2) {
  //       if (arg4_1_size[0] > 64) {
  //       if (8 != arg4_1_size[1]) {
  //       if (8 != arg4_1_stride[0]) {
  //       int32_t arg4_1_expected_device_type = 0;
  //   }
  void check(Input &in) {
    while (next() && !(at_margin_ && line_ == "}")) {
      if (const auto dtype = between(line_, "_expected_dtype = aoti_torch_dtype_", "()")) {
        in.dtype = *dtype;
      } else if (const auto type = to_int(between(line_, "_expected_device_type = ", ";"))) {
        in.device_type = static_cast<int>(*type);
      } else if (line_.starts_with("if (")) {
        if (const auto stride = to_int(between(line_, "_stride[", "])"))) {
          const auto wanted = to_int(between(line_, "if (", " != "));
          if (Dim *d = dim(in, stride); d != nullptr && wanted && !d->stride.known())
            d->stride = Expr(*wanted);
          continue;
        }
        Dim *d = dim(in, to_int(between(line_, "_size[", "]")));
        if (d == nullptr) continue;
        if (const auto size = to_int(between(line_, "if (", " != "))) {
          if (!d->size.known()) d->size = Expr(*size);
        } else if (const auto min = to_int(between(line_, "] < ", ")"))) {
          // PyTorch says 2 of every dynamic size, because it compiles as if it were neither 0 nor
          // 1; that 1 works is part of torch.export's contract.
          d->min = *min == 2 ? 1 : *min;
        } else if (const auto max = to_int(between(line_, "] > ", ")"))) {
          d->max = *max;
        }
      }
    }
  }

  //   assert_size_stride(arg4_1, {s31, 8L}, {8L, 1L}, "input");
  void assertion(std::string_view call) {
    const std::string_view name = call.substr(0, call.find(','));
    const auto in = std::find_if(out_.inputs.begin(), out_.inputs.end(),
                                 [&](const Input &i) { return i.name == name; });
    if (in == out_.inputs.end() || in->is_complete) return;
    const size_t middle = call.find("}, {");
    const auto sizes = between(call, "{", "}");
    if (!sizes || middle == std::string_view::npos) return;
    const auto strides = between(call.substr(middle + 3), "{", "}");
    if (!strides) return;
    const auto size_parts = split(*sizes), stride_parts = split(*strides);
    if (size_parts.size() != stride_parts.size() ||
        size_parts.size() > static_cast<size_t>(kMaxDims) || size_parts.size() < in->dims.size())
      return;
    in->dims.resize(size_parts.size());
    in->is_complete = true;
    for (size_t i = 0; i < size_parts.size(); i++) {
      in->dims[i].size = Expr::parse(size_parts[i], out_.symbols);
      in->dims[i].stride = Expr::parse(stride_parts[i], out_.symbols);
    }
  }

  std::string_view rest_;
  std::string_view line_;
  bool at_margin_ = false;
  Constant *constant_ = nullptr;
  Checks out_;
};

std::string list(const int64_t *p, size_t n) {
  std::string out = "[";
  for (size_t i = 0; i < n; i++) out += (i == 0 ? "" : ", ") + std::to_string(p[i]);
  return out + "]";
}

// "input 0 has shape [3, 9]: dimension 1 must be 8".
std::string wrong(size_t input, const Shape &shape, size_t dim, const std::string &what) {
  return "input " + std::to_string(input) + " has shape " + list(shape.sizes, shape.ndim) +
         ": dimension " + std::to_string(dim) + " must be " + what;
}

}  // namespace

Checks read_checks(std::string_view source) { return SourceReader(source).read(); }

std::string check_sizes(const Checks &checks, const std::vector<Shape> &shapes, Values &values) {
  values.assign(checks.symbols.size(), std::nullopt);
  // First those that are a number or a symbol, and then what is computed from them.
  for (const bool computed : {false, true}) {
    for (size_t i = 0; i < shapes.size() && i < checks.inputs.size(); i++) {
      const Input &in = checks.inputs[i];
      const Shape &shape = shapes[i];
      if (in.is_complete ? shape.ndim != in.dims.size() : shape.ndim < in.dims.size())
        return "input " + std::to_string(i) + " has shape " + list(shape.sizes, shape.ndim) +
               ": it must have " + std::to_string(in.dims.size()) + " dimensions";
      for (size_t d = 0; d < in.dims.size(); d++) {
        const Dim &dim = in.dims[d];
        const int64_t got = shape.sizes[d];
        const auto number = dim.size.number();
        const auto symbol = dim.size.symbol();
        if (computed != (!number && !symbol)) continue;
        if (number) {
          if (got != *number) return wrong(i, shape, d, std::to_string(*number));
          continue;
        }
        if (got < dim.min) return wrong(i, shape, d, "at least " + std::to_string(dim.min));
        if (got > dim.max) return wrong(i, shape, d, "at most " + std::to_string(dim.max));
        if (!dim.size.known()) continue;
        if (!dim.size.solve(got, values)) {
          const auto wanted = dim.size.value(values);
          return wrong(i, shape, d,
                       wanted ? std::to_string(*wanted) + " to go with the other inputs"
                              : "a size that the model's dimensions can add up to");
        }
      }
    }
  }
  return "";
}

std::optional<std::vector<int64_t>> other_strides(const Input &input, const Shape &shape,
                                                  const Values &values) {
  bool differs = false, known = input.is_complete || input.dims.size() == shape.ndim;
  std::vector<int64_t> strides(shape.ndim);
  for (size_t d = 0; d < input.dims.size(); d++) {
    if (shape.sizes[d] == 0) return std::nullopt;
    const auto wanted = input.dims[d].stride.value(values);
    strides[d] = wanted.value_or(shape.strides[d]);
    // Where there is one element, the step to the next does not matter.
    if (shape.sizes[d] > 1 && strides[d] != shape.strides[d]) differs = true;
    if (!wanted) known = false;
  }
  if (!differs || !known) return std::nullopt;
  return strides;
}

}  // namespace cgotorch::aoti
