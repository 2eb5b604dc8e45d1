// cgroup.cc: what the container of the process may use, of cgroup v1 and v2.
#include "cgroup.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

bool has(const std::string &list, const std::string &name) {
  const auto names = split(list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A path of mountinfo, where spaces and the like are written as \040.
std::string unescaped(const std::string &text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// A mounted hierarchy of groups, and the folder of the group of the process in it.
struct Group {
  bool v2;
  std::string top, own;
};

// The path of the process's group in the hierarchy of a controller; of v2 the controller is "".
bool own_path(const std::string &root, const std::string &controller, std::string &path) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : has(names, controller)) {
      path = line.substr(second + 1);
      return true;
    }
  }
  return false;
}

// The groups of the process that a controller may be in: that of v1, and that of v2.
std::vector<Group> groups(const std::string &root, const std::string &controller) {
  std::vector<Group> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (!v2 && !(dash[1] == "cgroup" && has(dash[3], controller))) continue;
    std::string path;
    if (!own_path(root, v2 ? "" : controller, path)) continue;
    const std::string mounted = unescaped(words[3]), top = root + unescaped(words[4]);
    // The mounted group may be the container's, or one around it. Of a path that is not below it,
    // only the mounted group can be seen.
    if (mounted != "/") {
      if (path.compare(0, mounted.size(), mounted) == 0 &&
          (path.size() == mounted.size() || path[mounted.size()] == '/'))
        path = path.substr(mounted.size());
      else
        path = "";
    }
    if (path == "/" || path.find("/..") != std::string::npos) path = "";
    found.push_back({v2, top, top + path});
  }
  return found;
}

// The words of a file's first line.
std::vector<std::string> words_of(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return split(line, ' ');
}

// Calls visit with the folder of the process's group and with those around it, whose limits hold
// for it, too.
template <class Visit>
void each_group(const std::string &root, const std::string &controller, Visit visit) {
  for (const Group &g : groups(root, controller)) {
    for (std::string at = g.own;; at = at.substr(0, at.rfind('/'))) {
      visit(g.v2, at);
      if (at.size() <= g.top.size()) break;
    }
  }
}

double number(const std::vector<std::string> &words, size_t i) {
  return i < words.size() ? std::strtod(words[i].c_str(), nullptr) : 0;  // 0 for "max"
}

}  // namespace

double cgotorch_cpu_quota(const char *root) {
  double least = 0;
  try {
    each_group(root, "cpu", [&](bool v2, const std::string &at) {
      double quota, period;
      if (v2) {
        const auto words = words_of(at + "/cpu.max");
        quota = number(words, 0);
        period = number(words, 1);
      } else {
        quota = number(words_of(at + "/cpu.cfs_quota_us"), 0);  // -1: none
        period = number(words_of(at + "/cpu.cfs_period_us"), 0);
      }
      if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
    });
  } catch (const std::exception &) {
    return 0;  // there is no memory for names
  }
  return least;
}

int64_t cgotorch_memory_limit(const char *root) {
  double least = 0;
  try {
    each_group(root, "memory", [&](bool v2, const std::string &at) {
      const double limit =
          number(words_of(at + (v2 ? "/memory.max" : "/memory.limit_in_bytes")), 0);
      constexpr double kNone = 1LL << 60;  // v1 writes the largest number of pages
      if (limit > 0 && limit < kNone && (least == 0 || limit < least)) least = limit;
    });
  } catch (const std::exception &) {
    return 0;
  }
  return static_cast<int64_t>(least);
}
