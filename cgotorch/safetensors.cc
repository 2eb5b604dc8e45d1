// safetensors.cc: see safetensors.h.
#include "safetensors.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace cgotorch::safetensors {
namespace {

// As much of JSON as a header may hold: objects, arrays, strings and unsigned integers, at depths
// that the format fixes, so that nothing here recurses.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string &expected) const {
    throw Malformed{"the header is no safetensors header: expected " + expected + " at byte " +
                    std::to_string(at_)};
  }

  bool eat(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!eat(c)) fail(std::string("'") + c + "'");
  }
  // Only padding may follow the closing brace.
  void finish() {
    space();
    if (at_ != text_.size()) fail("the end");
  }

  // Calls item() for each element of the array or object that has been opened.
  template <class F>
  void items(char close, F &&item) {
    if (eat(close)) return;
    do {
      item();
    } while (eat(','));
    expect(close);
  }

  uint64_t number() {
    space();
    const size_t start = at_;
    uint64_t v = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (v > (UINT64_MAX - digit) / 10) fail("a smaller number");
      v = v * 10 + digit;
      at_++;
    }
    if (at_ == start || (text_[start] == '0' && at_ - start > 1)) fail("an unsigned integer");
    return v;
  }

  std::string string() {
    expect('"');
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("the end of a string");
      const char c = text_[at_++];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) fail("no control character");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
    check_utf8(out);
    if (out.find('\0') != std::string::npos) fail("a string without NUL");
    return out;
  }

 private:
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      at_++;
  }

  unsigned hex4() {
    if (text_.size() - at_ < 4) fail("four hexadecimal digits");
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("four hexadecimal digits");
      v = v * 16 + static_cast<unsigned>(digit);
    }
    return v;
  }

  void escape(std::string &out) {
    if (at_ >= text_.size()) fail("an escape");
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
      return;
    }
    if (c != 'u') fail("an escape");
    unsigned code = hex4();
    if (code >= 0xd800 && code < 0xdc00) {
      if (text_.substr(at_, 2) != "\\u") fail("the second half of a surrogate pair");
      at_ += 2;
      const unsigned low = hex4();
      if (low < 0xdc00 || low > 0xdfff) fail("the second half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
      fail("the first half of a surrogate pair");
    }
    append_utf8(out, code);
  }

  static void append_utf8(std::string &out, unsigned code) {
    const auto byte = [&out](unsigned b) { out += static_cast<char>(b); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xc0 | code >> 6);
      byte(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      byte(0xe0 | code >> 12);
      byte(0x80 | (code >> 6 & 0x3f));
      byte(0x80 | (code & 0x3f));
    } else {
      byte(0xf0 | code >> 18);
      byte(0x80 | (code >> 12 & 0x3f));
      byte(0x80 | (code >> 6 & 0x3f));
      byte(0x80 | (code & 0x3f));
    }
  }

  void check_utf8(const std::string &s) const {
    if (!is_utf8(s)) fail("UTF-8");
  }

  std::string_view text_;
  size_t at_ = 0;
};

Entry parse_entry(Parser &p, std::string name) {
  Entry e;
  e.name = std::move(name);
  bool dtype = false, shape = false, offsets = false;
  const auto once = [&p](bool &seen) {
    if (seen) p.fail("each key once");
    seen = true;
  };
  p.expect('{');
  p.items('}', [&] {
    const std::string key = p.string();
    p.expect(':');
    if (key == "dtype") {
      once(dtype);
      e.dtype = p.string();
    } else if (key == "shape") {
      once(shape);
      p.expect('[');
      p.items(']', [&] {
        const uint64_t n = p.number();
        if (n > INT64_MAX || e.shape.size() == kMaxDims) p.fail("a shape");
        e.shape.push_back(static_cast<int64_t>(n));
      });
    } else if (key == "data_offsets") {
      once(offsets);
      p.expect('[');
      e.begin = p.number();
      p.expect(',');
      e.end = p.number();
      p.expect(']');
    } else {
      p.fail("dtype, shape or data_offsets");
    }
  });
  if (!dtype || !shape || !offsets) p.fail("dtype, shape and data_offsets before");
  return e;
}

std::string quote(const std::string &s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
      out += buffer;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

bool is_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto b = static_cast<unsigned char>(s[i++]);
    if (b < 0x80) continue;
    const int more = b >= 0xf0 && b < 0xf5 ? 3 : b >= 0xe0 ? 2 : b >= 0xc2 && b < 0xe0 ? 1 : 0;
    if (more == 0 || b >= 0xf5) return false;
    unsigned code = b & (0x3fu >> more);
    for (int k = 0; k < more; k++) {
      if (i >= s.size() || (static_cast<unsigned char>(s[i]) & 0xc0) != 0x80) return false;
      code = code << 6 | (static_cast<unsigned char>(s[i++]) & 0x3fu);
    }
    const bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    if (overlong || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
  }
  return true;
}

uint64_t header_length(const unsigned char bytes[8], uint64_t file_size) {
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
  if (n > kMaxHeader) throw Malformed{"this is no safetensors file: its header would be too large"};
  if (file_size < 8 || n > file_size - 8) throw Malformed{"the file is truncated in its header"};
  return n;
}

Header parse(std::string_view json, uint64_t data_size) {
  Header h;
  bool metadata = false;
  Parser p(json);
  // The format has no space before the brace, so that the ninth byte tells it.
  if (json.empty() || json[0] != '{') p.fail("'{'");
  p.expect('{');
  p.items('}', [&] {
    std::string name = p.string();
    p.expect(':');
    if (name != "__metadata__") {
      h.entries.push_back(parse_entry(p, std::move(name)));
      return;
    }
    if (metadata) p.fail("each name once");
    metadata = true;
    p.expect('{');
    p.items('}', [&] {
      std::string key = p.string();
      p.expect(':');
      h.metadata.emplace_back(std::move(key), p.string());
    });
  });
  p.finish();
  // Sorted, because whoever writes the names could make all of them collide in a hash table.
  const auto by_name = [](const Entry &a, const Entry &b) { return a.name < b.name; };
  const auto same_name = [](const Entry &a, const Entry &b) { return a.name == b.name; };
  std::sort(h.entries.begin(), h.entries.end(), by_name);
  if (std::adjacent_find(h.entries.begin(), h.entries.end(), same_name) != h.entries.end())
    p.fail("each name once");
  std::sort(h.entries.begin(), h.entries.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t used = 0;
  for (const Entry &e : h.entries) {
    if (e.begin != used || e.end < e.begin)
      throw Malformed{"tensor '" + e.name + "' does not start where the one before it ends"};
    used = e.end;
  }
  if (used > data_size) throw Malformed{"the file is truncated in its data"};
  if (used < data_size) throw Malformed{"the file holds data that belongs to no tensor"};
  return h;
}

std::string format(const Header &header) {
  std::string json = "{";
  const auto comma = [&json] {
    if (json.size() > 1) json += ',';
  };
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    for (size_t i = 0; i < header.metadata.size(); i++) {
      if (i > 0) json += ',';
      json += quote(header.metadata[i].first) + ':' + quote(header.metadata[i].second);
    }
    json += '}';
  }
  for (const Entry &e : header.entries) {
    comma();
    json += quote(e.name) + ":{\"dtype\":" + quote(e.dtype) + ",\"shape\":[";
    for (size_t i = 0; i < e.shape.size(); i++)
      json += (i > 0 ? "," : "") + std::to_string(e.shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(e.begin) + ',' + std::to_string(e.end) + "]}";
  }
  json += '}';
  // Padding keeps the data aligned.
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string out;
  for (uint64_t n = json.size(), i = 0; i < 8; i++) out += static_cast<char>(n >> (8 * i));
  return out + json;
}

}  // namespace cgotorch::safetensors
