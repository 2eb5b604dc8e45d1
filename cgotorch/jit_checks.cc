// jit_checks.cc: pickles are run here as libtorch's unpickler runs them, with nothing made: only
// what its own pickler writes is let through. Code is looked at for how deeply it is nested.
#include "jit_checks.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace cgotorch::jit {
namespace {

// libtorch takes some kilobytes of stack for each level, and a thread has 8 MB, or less.
constexpr int kMaxDepth = 500;
// Of values, each counted wherever it is: what looks at all of them takes no longer than that.
constexpr uint64_t kMaxValues = uint64_t{1} << 24;
constexpr int64_t kMaxExpanded = 1 << 20;
constexpr size_t kMaxTypeName = 1 << 16;

struct Problem {
  std::string text;
};

[[noreturn]] void fail(std::string text) { throw Problem{std::move(text)}; }
// For what Python writes and no libtorch can read. It leaves check_pickle.
[[noreturn]] void refuse(const std::string &text) { throw std::domain_error(text); }

enum class Kind {
  kOther,  // of which only the depth matters
  kInt,
  kString,
  kTuple,
  kList,
  kDict,
  kGlobal,    // a class or function
  kNew,       // an object without its attributes
  kStorage,   // number: its elements
  kExpanded,  // a tensor of more elements than its storage has; number: them
};

struct Node;
using NodePtr = std::shared_ptr<const Node>;

struct Node {
  Kind kind = Kind::kOther;
  int64_t number = 0;
  std::string text;
  std::vector<NodePtr> items;  // of a tuple
  int depth = 0;
  uint64_t values = 1;
};

NodePtr make(Kind kind, int64_t number = 0, std::string text = "") {
  auto n = std::make_shared<Node>();
  n->kind = kind;
  n->number = number;
  n->text = std::move(text);
  return n;
}

std::optional<uint64_t> item_size(std::string_view storage) {
  static const std::unordered_map<std::string_view, uint64_t> kSizes = {
      {"DoubleStorage", 8},
      {"FloatStorage", 4},
      {"HalfStorage", 2},
      {"BFloat16Storage", 2},
      {"LongStorage", 8},
      {"IntStorage", 4},
      {"ShortStorage", 2},
      {"CharStorage", 1},
      {"ByteStorage", 1},
      {"BoolStorage", 1},
      {"ComplexHalfStorage", 4},
      {"ComplexFloatStorage", 8},
      {"ComplexDoubleStorage", 16},
      {"QInt8Storage", 1},
      {"QUInt8Storage", 1},
      {"QInt32Storage", 4},
      {"Float8_e5m2Storage", 1},
      {"Float8_e4m3fnStorage", 1},
      {"Float8_e5m2fnuzStorage", 1},
      {"Float8_e4m3fnuzStorage", 1},
      {"Float8_e8m0fnuStorage", 1},
      {"UInt16Storage", 2},
      {"UInt32Storage", 4},
      {"UInt64Storage", 8},
  };
  const auto it = kSizes.find(storage);
  if (it == kSizes.end()) return std::nullopt;
  return it->second;
}

class Pickle {
 public:
  Pickle(std::string_view bytes,
         const std::function<std::optional<uint64_t>(const std::string &)> &record_size)
      : bytes_(bytes), record_size_(record_size) {}

  void run() {
    if (byte() != 0x80) fail("does not begin as a pickle does");
    if (byte() != 2) fail("is a pickle of another protocol than 2");
    while (step()) {
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("leaves more than one value");
  }

 private:
  struct Item {
    NodePtr node;
    std::shared_ptr<Node> open;  // the node, where it may still grow
  };

  unsigned char byte() {
    if (at_ == bytes_.size()) fail("is truncated");
    return static_cast<unsigned char>(bytes_[at_++]);
  }
  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) fail("is truncated");
    const std::string_view out = bytes_.substr(at_, n);
    at_ += n;
    return out;
  }
  uint64_t number(size_t n) {
    uint64_t v = 0;
    const std::string_view b = take(n);
    for (size_t i = n; i-- > 0;) v = v << 8 | static_cast<unsigned char>(b[i]);
    return v;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("is truncated");
    const std::string_view out = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }

  void push(NodePtr n) { stack_.push_back({std::move(n), nullptr}); }
  void push_open(Kind kind) {
    auto n = std::make_shared<Node>();
    n->kind = kind;
    stack_.push_back({n, n});
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Item pop() {
    if (stack_.size() <= floor()) fail("takes a value where there is none");
    Item item = std::move(stack_.back());
    stack_.pop_back();
    return item;
  }
  NodePtr pop_value() {
    NodePtr n = pop().node;
    refuse_class(*n);
    return n;
  }
  size_t pop_mark() {
    if (marks_.empty()) fail("ends a list that has not begun");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  void grow(Node &into, const Node &part) {
    into.depth = std::max(into.depth, part.depth + 1);
    if (into.depth > kMaxDepth) fail("is nested too deeply");
    into.values += part.values;
    if (into.values > kMaxValues + bytes_.size()) fail("has the same values in too many places");
  }

  // Those above a mark are a part of what is below it.
  void add_all(Kind kind) {
    const size_t mark = pop_mark();
    if (mark == floor() || !stack_[mark - 1].open || stack_[mark - 1].open->kind != kind)
      fail("adds to what is no list or dict, or to one that is used already");
    if (kind == Kind::kDict && (stack_.size() - mark) % 2 != 0) fail("has a key without a value");
    Node &into = *stack_[mark - 1].open;
    for (size_t i = mark; i < stack_.size(); i++) {
      refuse_class(*stack_[i].node);
      grow(into, *stack_[i].node);
    }
    stack_.resize(mark);
  }
  static void refuse_class(const Node &n) {
    if (n.kind == Kind::kGlobal || n.kind == Kind::kNew)
      fail("has a class where a value is expected");
  }

  void tuple(size_t from) {
    auto n = std::make_shared<Node>();
    n->kind = Kind::kTuple;
    for (size_t i = from; i < stack_.size(); i++) {
      grow(*n, *stack_[i].node);
      n->items.push_back(stack_[i].node);
    }
    stack_.resize(from);
    push(n);
  }
  void tuple_of(size_t n) {
    if (stack_.size() - floor() < n) fail("takes a value where there is none");
    tuple(stack_.size() - n);
  }

  void put(uint64_t id) {
    if (id > bytes_.size()) fail("remembers a value under a number beyond its length");
    if (stack_.size() <= floor()) fail("takes a value where there is none");
    Item &top = stack_.back();
    if (top.node->kind == Kind::kNew) fail("remembers an object before its attributes");
    top.open = nullptr;
    memo_[id] = top.node;
  }
  void get(uint64_t id) {
    const auto it = memo_.find(id);
    if (it == memo_.end()) fail("uses a value that it has not remembered");
    push(it->second);
  }

  static const Node &part(const Node &tuple, size_t i, Kind kind) {
    if (tuple.kind != Kind::kTuple || i >= tuple.items.size() || tuple.items[i]->kind != kind)
      fail("has a tensor that is not described as one");
    return *tuple.items[i];
  }

  void storage() {
    const NodePtr id = pop_value();
    if (part(*id, 0, Kind::kString).text != "storage")
      fail("has a tensor that is not described as one");
    const std::string &type = part(*id, 1, Kind::kGlobal).text;
    const std::string &key = part(*id, 2, Kind::kString).text;
    if (part(*id, 3, Kind::kString).text == "meta")
      refuse(
          "has a tensor on the device meta, which has a shape and no elements: give the module its "
          "weights "
          "in Python before it is saved");
    if (type == "torch.QUInt4x2Storage" || type == "torch.QUInt2x4Storage")
      refuse(
          "has a quantised tensor of several elements in a byte (quint4x2 or quint2x4), which "
          "PyTorch writes and cannot read: "
          "dequantise it, or use qint8 or quint8");
    const int64_t n = part(*id, 4, Kind::kInt).number;
    const auto each = type.starts_with("torch.") ? item_size(type.substr(6)) : std::nullopt;
    if (!each) fail("has a storage of the unknown type " + type);
    const auto has = record_size_(key);
    if (!has) fail("names the storage '" + key + "', which the file does not have");
    if (n < 0 || static_cast<uint64_t>(n) > *has / *each)
      fail("has a storage '" + key + "' of " + std::to_string(n) + " elements, for which it has " +
           std::to_string(*has) + " bytes");
    push(make(Kind::kStorage, n));
  }

  // The elements of a tensor must lie in its storage.
  static void check_tensor(const Node &args, Node &result) {
    const int64_t elements = part(args, 0, Kind::kStorage).number;
    const int64_t offset = part(args, 1, Kind::kInt).number;
    const Node &sizes = part(args, 2, Kind::kTuple), &strides = part(args, 3, Kind::kTuple);
    if (sizes.items.size() != strides.items.size()) fail("has a tensor without strides");
    bool empty = false;
    __int128 last = offset, all = 1;
    for (size_t i = 0; i < sizes.items.size(); i++) {
      const int64_t size = part(sizes, i, Kind::kInt).number;
      const int64_t stride = part(strides, i, Kind::kInt).number;
      if (size < 0 || stride < 0) fail("has a tensor with a negative size or stride");
      empty = empty || size == 0;
      if (all <= INT64_MAX) all *= size;
      if (size > 1) last += static_cast<__int128>(size - 1) * stride;
      if (last > INT64_MAX) fail("has a tensor beyond its storage");
    }
    if (offset < 0 || (!empty && last >= elements)) fail("has a tensor beyond its storage");
    if (empty || all <= elements) return;
    result.kind = Kind::kExpanded;
    result.number = static_cast<int64_t>(std::min<__int128>(all, INT64_MAX));
  }

  // Indices and scales are all looked at, or copied. Values of a sparse tensor may be one number.
  static void refuse_expanded(const Node &tuple, int64_t most, bool deeper = true) {
    for (const NodePtr &part : tuple.items) {
      if (part->kind == Kind::kExpanded && part->number > most)
        fail("has a tensor of more elements than its storage where there are indices or scales");
      if (part->kind == Kind::kTuple && deeper) refuse_expanded(*part, most, false);
    }
  }

  void call() {
    const NodePtr args = pop_value();
    const NodePtr callable = pop().node;
    if (callable->kind != Kind::kGlobal) fail("calls what is no function");
    const std::string &name = callable->text;
    // An enum is called with the member's value.
    auto result = std::make_shared<Node>();
    const bool own = name.starts_with("__torch__.");
    if (!own && args->kind != Kind::kTuple) fail("calls a function without a tuple of arguments");
    if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_qtensor") {
      check_tensor(*args, *result);
      if (name == "torch._utils._rebuild_qtensor") refuse_expanded(*args, 0);
    } else if (name == "torch._utils._rebuild_sparse_tensor") {
      refuse_expanded(*args, kMaxExpanded);
    } else if (name == "torch.jit._pickle.restore_type_tag") {
      if (args->items.size() != 2) fail("has a type without its value");
      const std::string &type = part(*args, 1, Kind::kString).text;
      if (type.size() > kMaxTypeName ||
          std::count(type.begin(), type.end(), '[') + std::count(type.begin(), type.end(), '(') >
              kMaxDepth)
        fail("has a type that is nested too deeply");
    } else if (!own && std::find(std::begin(kFunctions), std::end(kFunctions), name) ==
                           std::end(kFunctions)) {
      fail("calls " + name + ", which no TorchScript file does");
    }
    grow(*result, *args);
    push(result);
  }

  void build() {
    const NodePtr state = pop_value();
    if (pop().node->kind != Kind::kNew) fail("sets the attributes of what is no object");
    auto result = std::make_shared<Node>();
    grow(*result, *state);
    push(result);
  }

  bool step() {
    switch (byte()) {
      case '.':
        return false;
      case ')':
        tuple(stack_.size());
        break;
      case ']':
        push_open(Kind::kList);
        break;
      case '}':
        push_open(Kind::kDict);
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case 'N':
      case 0x88:
      case 0x89:
        push(make(Kind::kOther));
        break;
      case 'K':
        push(make(Kind::kInt, static_cast<int64_t>(number(1))));
        break;
      case 'M':
        push(make(Kind::kInt, static_cast<int64_t>(number(2))));
        break;
      case 'J':
        push(make(Kind::kInt, static_cast<int32_t>(number(4))));
        break;
      case 0x8a:  // LONG1
        if (byte() != 8) fail("has an integer that does not fit into 64 bits");
        push(make(Kind::kInt, static_cast<int64_t>(number(8))));
        break;
      case 'G':
        take(8);
        push(make(Kind::kOther));
        break;
      case 'X':
        push(make(Kind::kString, 0, std::string(take(number(4)))));
        break;
      case 'q':
        put(number(1));
        break;
      case 'r':
        put(number(4));
        break;
      case 'h':
        get(number(1));
        break;
      case 'j':
        get(number(4));
        break;
      case 't':
        tuple(pop_mark());
        break;
      case 0x85:
        tuple_of(1);
        break;
      case 0x86:
        tuple_of(2);
        break;
      case 0x87:
        tuple_of(3);
        break;
      case 'e':
        add_all(Kind::kList);
        break;
      case 'u':
        add_all(Kind::kDict);
        break;
      case 'a': {
        const NodePtr v = pop_value();
        if (stack_.size() <= floor() || !stack_.back().open ||
            stack_.back().open->kind != Kind::kList)
          fail("adds to what is no list, or to one that is used already");
        grow(*stack_.back().open, *v);
        break;
      }
      case 'c': {
        std::string name(line());
        name += '.';
        name += line();
        push(make(Kind::kGlobal, 0, std::move(name)));
        break;
      }
      case 0x81: {  // NEWOBJ
        const NodePtr args = pop_value();
        const NodePtr of = pop().node;
        if (args->kind != Kind::kTuple || !args->items.empty() || of->kind != Kind::kGlobal ||
            !of->text.starts_with("__torch__."))
          fail("makes an object of what is no class of its own");
        push(make(Kind::kNew));
        break;
      }
      case 'b':
        build();
        break;
      case 'R':
        call();
        break;
      case 'Q':
        storage();
        break;
      default:
        fail("has an instruction that no TorchScript file has");
    }
    return true;
  }

  static constexpr std::string_view kFunctions[] = {
      "torch.jit._pickle.build_intlist",
      "torch.jit._pickle.build_tensorlist",
      "torch.jit._pickle.build_doublelist",
      "torch.jit._pickle.build_boollist",
      "collections.OrderedDict",
      "builtins.complex",
      "torch.device",
  };

  std::string_view bytes_;
  size_t at_ = 0;
  const std::function<std::optional<uint64_t>(const std::string &)> &record_size_;
  std::vector<Item> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, NodePtr> memo_;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Code as libtorch's parser sees it, as far as it nests: blocks, brackets, and operators that
// follow each other, which make a tree that is as deep as they are many.
class Code {
 public:
  explicit Code(std::string_view source) : s_(source) {}

  void run() {
    while (at_ < s_.size()) {
      const char c = s_[at_];
      if (c == '\n') {
        end_line();
      } else if (c == '#') {
        at_ = std::min(s_.find('\n', at_), s_.size());
      } else if (c == '\'' || c == '"') {
        skip_string(c);
      } else if (is_word(c)) {
        word();
      } else {
        sign(c);
        at_++;
      }
      if (c != '\n' && c != ' ' && c != '\t' && c != '\r' && c != '#') blank_ = 0;
    }
  }

 private:
  void end_line() {
    at_++;
    // Empty lines and comments are skipped by recursion.
    if (++blank_ > 2 * kMaxDepth) fail("has too many empty lines in a row");
    if (levels_.size() > 1) return;
    reset();
    size_t width = 0;
    while (at_ + width < s_.size() && (s_[at_ + width] == ' ' || s_[at_ + width] == '\t')) width++;
    if (at_ + width >= s_.size() || s_[at_ + width] == '\n' || s_[at_ + width] == '#') return;
    while (!indents_.empty() && indents_.back() >= width) indents_.pop_back();
    indents_.push_back(width);
    if (indents_.size() > kMaxDepth) fail("has blocks that are nested too deeply");
  }

  // libtorch has strings of one line, and such in three quotes.
  void skip_string(char quote) {
    const std::string_view triple =
        quote == '"' ? std::string_view("\"\"\"") : std::string_view("'''");
    const bool is_long = s_.substr(at_, 3) == triple;
    at_ += is_long ? 3 : 1;
    while (at_ < s_.size()) {
      if (s_[at_] == '\\') {
        at_ += 2;
      } else if (is_long ? s_.substr(at_, 3) == triple : s_[at_] == quote) {
        at_ += is_long ? 3 : 1;
        break;
      } else if (!is_long && s_[at_] == '\n') {
        fail("has a string without an end");
      } else {
        at_++;
      }
    }
    if (at_ > s_.size()) at_ = s_.size();
  }

  void word() {
    const size_t from = at_;
    while (at_ < s_.size() && is_word(s_[at_])) at_++;
    const std::string_view w = s_.substr(from, at_ - from);
    for (const std::string_view deeper : {"not", "and", "or", "if", "else", "in", "is", "lambda"})
      if (w == deeper) deepen();
    if (w == "elif" && ++elifs_ > kMaxDepth) fail("has blocks that are nested too deeply");
  }

  void sign(char c) {
    switch (c) {
      case '(':
      case '[':
      case '{':
        deepen();
        levels_.push_back(0);
        break;
      case ')':
      case ']':
      case '}':
        if (levels_.size() > 1) {
          depth_ -= levels_.back();
          levels_.pop_back();
        }
        break;
      case ',':
      case ';':
        reset();
        break;
      case ' ':
      case '\t':
      case '\r':
      case ':':
        break;
      case '\\':
        fail("has a line that goes on after a backslash");
      default:
        deepen();
    }
  }

  void deepen() {
    levels_.back()++;
    if (++depth_ > 2 * kMaxDepth) fail("has an expression that is nested too deeply");
  }
  void reset() {
    depth_ -= levels_.back();
    levels_.back() = 0;
  }

  std::string_view s_;
  size_t at_ = 0;
  std::vector<int> levels_{0};
  int depth_ = 0;
  int blank_ = 0, elifs_ = 0;
  std::vector<size_t> indents_;
};

template <class F>
std::string problem(F &&f) {
  try {
    f();
    return "";
  } catch (const Problem &p) {
    return p.text;
  }
}

constexpr int kMaxChain = 200;  // of definitions that name each other

}  // namespace

void Definitions::add(std::string_view record, std::string_view source) {
  constexpr std::string_view kFolder = "code/", kEnd = ".py", kRoot = "__torch__.";
  std::string prefix(record.substr(kFolder.size(), record.size() - kFolder.size() - kEnd.size()));
  std::replace(prefix.begin(), prefix.end(), '/', '.');
  std::vector<std::string> *current = nullptr;
  std::optional<size_t> base;  // of all lines: the first one may be indented
  for (size_t at = 0; at < source.size();) {
    const std::string_view line = source.substr(at, source.find('\n', at) - at);
    at += line.size() + 1;
    const size_t indent = line.find_first_not_of(" \t\r");
    if (indent == std::string_view::npos || line[indent] == '#') continue;
    if (!base) base = indent;
    for (const std::string_view keyword : {"class", "def"}) {
      if (line.substr(indent, keyword.size()) != keyword || (indent > *base && keyword == "def"))
        continue;
      const size_t from = line.find_first_not_of(" \t\r", indent + keyword.size());
      if (from == std::string_view::npos || from == indent + keyword.size()) continue;
      size_t end = from;
      while (end < line.size() && is_word(line[end])) end++;
      current = &names_[prefix + "." + std::string(line.substr(from, end - from))];
    }
    if (current == nullptr) continue;
    for (size_t from = line.find(kRoot); from != std::string_view::npos;) {
      size_t end = from;
      while (end < line.size() && (is_word(line[end]) || line[end] == '.')) end++;
      current->emplace_back(line.substr(from, end - from));
      from = line.find(kRoot, end);
    }
  }
}

bool Definitions::are_nested_too_deeply() const {
  // The longest way from each of them, by a walk that does not recurse itself. One that is on the
  // way already is not walked again.
  struct Step {
    const std::string *name;
    size_t next = 0;
    int longest = 0;
  };
  std::unordered_map<std::string_view, int> depth;  // 0 while it is on the way
  // A name may go on behind that of a class: with a method's.
  const auto known = [&](std::string name) {
    for (;;) {
      const auto it = names_.find(name);
      const size_t dot = name.rfind('.');
      if (it != names_.end() || dot == std::string::npos) return it;
      name.resize(dot);
    }
  };
  for (const auto &[root, unused] : names_) {
    if (depth.count(root) > 0) continue;
    std::vector<Step> way{{&root}};
    depth[root] = 0;
    while (!way.empty()) {
      if (way.size() > kMaxChain) return true;
      Step &step = way.back();
      const auto &list = names_.at(*step.name);
      if (step.next == list.size()) {
        const int longest = depth[*step.name] = step.longest + 1;
        if (longest > kMaxChain) return true;
        way.pop_back();
        if (!way.empty()) way.back().longest = std::max(way.back().longest, longest);
        continue;
      }
      const auto it = known(list[step.next++]);
      if (it == names_.end()) continue;
      const auto [place, fresh] = depth.emplace(it->first, 0);
      if (fresh)
        way.push_back({&it->first});
      else
        step.longest = std::max(step.longest, place->second);
    }
  }
  return false;
}

std::string check_pickle(
    std::string_view pickle,
    const std::function<std::optional<uint64_t>(const std::string &key)> &record_size) {
  return problem([&] { Pickle(pickle, record_size).run(); });
}

std::string check_source(std::string_view source) {
  return problem([&] { Code(source).run(); });
}

}  // namespace cgotorch::jit
