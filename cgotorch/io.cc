// io.cc: tensors in safetensors files. safetensors.cc knows the header; this file moves the data.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_ops.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <unordered_set>

#include "files.h"
#include "internal.h"
#include "safetensors.h"

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace cgotorch {

void throw_errno(const std::string &path, const char *what) {
  const int e = errno;
  const char *kind = e == ENOENT   ? "FileNotFoundError"
                     : e == EACCES ? "PermissionError"
                     : e == EISDIR ? "IsADirectoryError"
                                   : "OSError";
  throw Failure{kind, std::string(what) + " " + path + ": " + std::strerror(e)};
}

uint64_t regular_size(int fd, const std::string &path) {
  struct stat s;
  if (fstat(fd, &s) != 0) throw_errno(path, "stat");
  if (S_ISDIR(s.st_mode)) {
    errno = EISDIR;
    throw_errno(path, "read");
  }
  if (!S_ISREG(s.st_mode)) throw Failure{"OSError", "read " + path + ": not a regular file"};
  return static_cast<uint64_t>(s.st_size);
}

RegularFile open_regular(const std::string &path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) throw_errno(path, "open");
  try {
    return {fd, regular_size(fd, path)};
  } catch (...) {
    close(fd);
    throw;
  }
}

namespace {

using safetensors::Entry;
using safetensors::Header;

struct Format {
  const char *name;
  at::ScalarType dtype;
};
constexpr Format kFormats[] = {
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"F4", at::kFloat4_e2m1fn_x2},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"F32", at::kFloat},
    {"C64", at::kComplexFloat},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
    {"F64", at::kDouble},
};

// One element of this dtype is two of the format's.
bool packed(at::ScalarType t) { return t == at::kFloat4_e2m1fn_x2; }

class File {
 public:
  File(std::string path, int flags)
      : path_(std::move(path)), fd_(open(path_.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0) throw_errno(path_, "create");
  }
  // To read.
  explicit File(std::string path) : path_(std::move(path)), fd_(open_regular(path_).fd) {}
  // Another descriptor of a file that is open already.
  File(int fd, std::string path) : path_(std::move(path)), fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {
    if (fd_ < 0) throw_errno(path_, "open");
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  const std::string &path() const { return path_; }

  uint64_t size() const { return regular_size(fd_, path_); }
  void write(const void *data, size_t n) {
    for (const char *p = static_cast<const char *>(data); n > 0;) {
      const ssize_t done = ::write(fd_, p, std::min<size_t>(n, SSIZE_MAX));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) throw_errno(path_, "write");
      p += done;
      n -= static_cast<size_t>(done);
    }
  }
  void read(void *data, size_t n, uint64_t offset) const {
    for (char *p = static_cast<char *>(data); n > 0;) {
      const ssize_t done =
          pread(fd_, p, std::min<size_t>(n, SSIZE_MAX), static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) throw_errno(path_, "read");
      if (done == 0)
        throw Failure{"ValueError", path_ + ": the file became shorter while it was read"};
      p += done;
      offset += static_cast<uint64_t>(done);
      n -= static_cast<size_t>(done);
    }
  }
  void sync() {
    if (fsync(fd_) != 0) throw_errno(path_, "sync");
  }
  // Some file systems report a full disk only here.
  void finish() {
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0) throw_errno(path_, "close");
  }

 private:
  std::string path_;
  int fd_;
};

// Saving ---------------------------------------------------------------------------------------

void check_plain(const at::Tensor &t, const std::string &name) {
  if (t.layout() != at::kStrided || t.is_quantized() || t.is_meta() || t.is_nested())
    throw Failure{"NotImplementedError", "tensor '" + name + "' is " +
                                             (t.is_quantized() ? "quantised"
                                              : t.is_meta()    ? "on the meta device"
                                              : t.is_nested()  ? "nested"
                                                               : "sparse") +
                                             ", which a safetensors file cannot hold"};
}

Entry describe(const std::string &name, const at::Tensor &t) {
  const auto *format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                    [&](const Format &f) { return f.dtype == t.scalar_type(); });
  if (format == std::end(kFormats))
    throw Failure{"NotImplementedError", "tensor '" + name + "' has dtype " +
                                             c10::toString(t.scalar_type()) +
                                             ", which a safetensors file cannot hold"};
  Entry e;
  e.name = name;
  e.dtype = format->name;
  e.shape = t.sizes().vec();
  if (e.shape.size() > safetensors::kMaxDims)
    throw Failure{"NotImplementedError", "tensor '" + name + "' has " +
                                             std::to_string(e.shape.size()) + " dimensions, and " +
                                             std::to_string(safetensors::kMaxDims) +
                                             " are the most that is loaded"};
  if (packed(t.scalar_type())) {
    if (e.shape.empty())
      throw Failure{"NotImplementedError", "tensor '" + name + "' is a packed scalar"};
    e.shape.back() *= 2;
  }
  return e;
}

// Nobody could read a file with another string.
std::string in_utf8(std::string_view s) {
  if (!safetensors::is_utf8(s))
    throw Failure{"ValueError",
                  "a name or metadata is not UTF-8, which a safetensors file must be"};
  return std::string(s);
}

// The header of a file, and the numbers of the tensors in the order in which they follow it.
struct Plan {
  std::string head;
  std::vector<int64_t> order;
};

Plan plan(const char *const *names, const Tensor *tensors, int64_t n, const char *const *metadata,
          int64_t n_metadata) {
  struct Item {
    Entry entry;
    size_t itemsize, nbytes;
    int64_t number;
  };
  std::vector<Item> items;
  std::unordered_set<std::string> seen{"__metadata__"};
  for (int64_t i = 0; i < n; i++) {
    const std::string name = in_utf8(str(names[i], "names"));
    if (!seen.insert(name).second)
      throw Failure{"ValueError", name == "__metadata__" ? "a tensor cannot be named '__metadata__'"
                                                         : "two tensors are named '" + name + "'"};
    const at::Tensor &t = in(tensors[i], names[i]);
    check_plain(t, name);
    items.push_back({describe(name, t), t.itemsize(), t.nbytes(), i});
  }
  // Wide elements first, so that each tensor is aligned without padding.
  std::sort(items.begin(), items.end(), [](const Item &a, const Item &b) {
    if (a.itemsize != b.itemsize) return a.itemsize > b.itemsize;
    return a.entry.name < b.entry.name;
  });
  Header header;
  for (int64_t i = 0; i < n_metadata; i++)
    header.metadata.emplace_back(in_utf8(str(metadata[2 * i], "metadata")),
                                 in_utf8(str(metadata[2 * i + 1], "metadata")));
  Plan result;
  uint64_t at = 0;
  for (Item &item : items) {
    item.entry.begin = at;
    at += item.nbytes;
    item.entry.end = at;
    header.entries.push_back(item.entry);
    result.order.push_back(item.number);
  }
  result.head = safetensors::format(header);
  if (result.head.size() - 8 > safetensors::kMaxHeader)
    throw Failure{"ValueError", "names and metadata take more than the format's 100 MB"};
  return result;
}

// What is not in one piece in the computer's memory is copied when its turn comes, one tensor at a
// time.
void write_tensors(File &file, const Plan &plan, const Tensor *tensors) {
  file.write(plan.head.data(), plan.head.size());
  for (const int64_t i : plan.order) {
    const at::Tensor data =
        in(tensors[i], "tensors").detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    file.write(data.const_data_ptr(), data.nbytes());
  }
}

// A file that is written beside its place until it is complete. Its saver keeps it locked, so that
// others know that it lives. gotorch/internal/replace says more, does the same, and removes what is
// left here, as this removes what is left there.
class PartFile {
 public:
  explicit PartFile(const std::string &folder) {
    for (int tries = 0; tries < 100; tries++) {
      std::random_device random;
      char name[64];
      std::snprintf(name, sizeof name, "gotorch-%s-%08x%08x.part", machine().c_str(), random(),
                    random());
      path_ = folder + name;
      fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno == EEXIST) continue;
      if (fd_ < 0) return;
      if (lock()) return;
      close(fd_);
      unlink(path_.c_str());
    }
    fd_ = -1;
    errno = EBUSY;
  }
  PartFile(const PartFile &) = delete;
  PartFile &operator=(const PartFile &) = delete;
  // The lock goes last.
  ~PartFile() {
    const int before = errno;
    if (fd_ >= 0 && !moved_) unlink(path_.c_str());
    if (fd_ >= 0) close(fd_);
    errno = before;
  }

  int fd() const { return fd_; }  // negative, with errno set, where it could not be made
  bool move_to(const std::string &path) {
    moved_ = rename(path_.c_str(), path.c_str()) == 0;
    return moved_;
  }

  // Removes the part files in a folder whose savers have died.
  static void remove_dead(const std::string &folder) {
    DIR *dir = opendir(folder.c_str());
    if (dir == nullptr) return;
    while (const dirent *entry = readdir(dir)) {
      const std::string_view name = entry->d_name;
      if (is_part(name)) remove_if_dead(folder + std::string(name), name.substr(8, 8) == machine());
    }
    closedir(dir);
  }

 private:
  static bool is_hex(std::string_view s) {
    return s.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  }
  // gotorch-01234567-0123456789abcdef.part
  static bool is_part(std::string_view name) {
    return name.size() == 38 && name.substr(0, 8) == "gotorch-" && is_hex(name.substr(8, 8)) &&
           name[16] == '-' && is_hex(name.substr(17, 16)) && name.substr(33) == ".part";
  }

  // Tells machines apart, and the times between two starts of one: the locks of another may not be
  // seen here.
  static const std::string &machine() {
    static const std::string mark = [] {
      std::string id(8, '\0');
      std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), 8);
      return is_hex(id) ? id : "00000000";
    }();
    return mark;
  }

  static int try_lock(int fd) {
    int result;
    do result = flock(fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    return result;
  }

  // False where another has taken the file for dead before it was locked.
  bool lock() const {
    // A file system without locks is one where nobody can take it for dead.
    if (try_lock(fd_) != 0) return errno != EWOULDBLOCK;
    struct stat here, named;
    return fstat(fd_, &here) == 0 && lstat(path_.c_str(), &named) == 0 &&
           here.st_ino == named.st_ino && here.st_dev == named.st_dev;
  }

  static void remove_if_dead(const std::string &path, bool ours) {
    constexpr time_t kDay = 24 * 60 * 60;
    // Not through a link, and without waiting for what is no file.
    const int fd = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat s;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && (ours || time(nullptr) - s.st_mtime >= kDay) &&
        try_lock(fd) == 0)
      unlink(path.c_str());
    close(fd);
  }

  std::string path_;
  int fd_ = -1;
  bool moved_ = false;
};

// Writes a file under another name beside path and moves it there when it is complete.
void replace_file(std::string path, const std::function<void(File &)> &fill) {
  // A link is kept, and the file that it points to replaced.
  if (char *real = realpath(path.c_str(), nullptr)) {
    path = real;
    std::free(real);
  }
  struct stat old;
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) {
    errno = EISDIR;
    throw_errno(path, "create");
  }
  if (exists && !S_ISREG(old.st_mode)) {  // a device or a pipe
    File file(path, O_WRONLY);
    fill(file);
    return file.finish();
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "./" : path.substr(0, slash + 1);
  PartFile::remove_dead(folder);
  PartFile part(folder);
  if (part.fd() < 0) throw_errno(path, "create");
  File file(part.fd(), path);  // another descriptor: the lock outlives it
  // Only who may read and write it: what was written here does not run as another.
  if (exists && fchmod(file.fd(), old.st_mode & 0777) != 0) throw_errno(path, "chmod");
  fill(file);
  file.sync();
  file.finish();
  if (!part.move_to(path)) throw_errno(path, "create");
  const int fd = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {  // so that the new name survives a crash; not every file system can
    fsync(fd);
    close(fd);
  }
}

// Loading --------------------------------------------------------------------------------------

// A window on a file. Pages that are written to become private copies.
class Mapping {
 public:
  Mapping(const File &file, uint64_t offset, uint64_t n) : size_(n) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    skip_ = offset % page;
    // Without a reserve, or a file larger than the computer's memory could not be mapped.
    base_ = mmap(nullptr, n + skip_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd(),
                 static_cast<off_t>(offset - skip_));
    if (base_ == MAP_FAILED) throw_errno(file.path(), "map");
  }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  ~Mapping() { munmap(base_, size_ + skip_); }

  char *data() const { return static_cast<char *>(base_) + skip_; }

 private:
  void *base_;
  uint64_t size_;
  uint64_t skip_;
};

using MappingPtr = std::shared_ptr<Mapping>;

// n bytes of a mapping, which lives as long as the storage.
at::Storage window(const MappingPtr &mapping, uint64_t offset, uint64_t n) {
  char *data = mapping->data() + offset;
  at::DataPtr ptr(
      data, new MappingPtr(mapping), [](void *p) { delete static_cast<MappingPtr *>(p); },
      at::kCPU);
  return at::Storage(at::Storage::use_byte_size_t(), n, std::move(ptr), /*allocator=*/nullptr,
                     /*resizable=*/false);
}

// at::empty; its own header takes longer to compile than the rest of this file.
at::Tensor empty(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::_ops::empty_memory_format::call(c10::fromIntArrayRefSlow(shape), dtype, at::kStrided,
                                             at::Device(at::kCPU), false, std::nullopt);
}

// The dtype and shape of an entry, checked against the bytes that it has.
std::pair<at::ScalarType, std::vector<int64_t>> type_of(const Entry &e) {
  const auto fail = [&](const std::string &what) {
    throw safetensors::Malformed{"tensor '" + e.name + "' " + what};
  };
  const auto *format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                    [&](const Format &f) { return e.dtype == f.name; });
  if (format == std::end(kFormats))
    throw Failure{"NotImplementedError",
                  "tensor '" + e.name + "' has dtype '" + e.dtype + "', which this torch lacks"};
  std::vector<int64_t> shape = e.shape;
  if (packed(format->dtype)) {
    if (shape.empty() || shape.back() % 2 != 0) fail("has an odd number of half-byte elements");
    shape.back() /= 2;
  }
  // As for strides, a size of zero counts as one, so that nothing can overflow later.
  int64_t numel = 1, nbytes = static_cast<int64_t>(c10::elementSize(format->dtype));
  for (const int64_t d : shape) {
    if (__builtin_mul_overflow(numel, d, &numel) ||
        __builtin_mul_overflow(nbytes, std::max<int64_t>(d, 1), &nbytes))
      fail("is too large");
  }
  if (numel == 0) nbytes = 0;
  if (static_cast<uint64_t>(nbytes) != e.end - e.begin)
    fail("has a size that does not fit its shape");
  return {format->dtype, std::move(shape)};
}

// The arrays that a caller gets; frees what is there when building them fails.
class Builder {
 public:
  explicit Builder(const Header &h) {
    file_.names = array<const char *>(h.entries.size());
    file_.tensors = array<Tensor>(h.entries.size());
    file_.metadata = array<const char *>(2 * h.metadata.size());
    for (const auto &[key, value] : h.metadata) {
      const auto i = 2 * file_.n_metadata++;
      file_.metadata[i] = copy(key);
      file_.metadata[i + 1] = copy(value);
    }
  }
  Builder(const Builder &) = delete;
  Builder &operator=(const Builder &) = delete;
  ~Builder() { FreeTensorFile(&file_, true); }

  void add(const std::string &name, at::Tensor &&t) {
    const auto i = file_.n++;
    file_.names[i] = copy(name);
    file_.tensors[i] = release(std::move(t));
  }
  void finish(TensorFile *result) {
    *result = file_;
    file_ = TensorFile{};
  }

 private:
  template <class T>
  static T *array(size_t n) {
    void *p = std::calloc(std::max<size_t>(n, 1), sizeof(T));
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<T *>(p);
  }
  static const char *copy(const std::string &s) {
    char *p = strdup(s.c_str());
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }
  TensorFile file_{};
};

// Builds each tensor with read(entry, dtype, shape).
template <class F>
void build(const Header &header, TensorFile *result, F &&read) {
  Builder builder(header);
  for (const Entry &e : header.entries) {
    const auto [dtype, shape] = type_of(e);
    builder.add(e.name, read(e, dtype, shape));
  }
  builder.finish(result);
}

template <class F>
const char *guard_file(const std::string &prefix, F &&f) noexcept {
  return guard([&] {
    try {
      f();
    } catch (const safetensors::Malformed &e) {
      throw Failure{"ValueError", prefix + e.what};
    }
  });
}

struct Opened {
  Header header;
  uint64_t start;  // of the data
  uint64_t size;   // of the file
};

Opened read_header(const File &file) {
  const uint64_t size = file.size();
  if (size < 8) throw safetensors::Malformed{"the file is too short for a safetensors file"};
  unsigned char length[8];
  file.read(length, sizeof length, 0);
  std::string json(safetensors::header_length(length, size), '\0');
  file.read(json.data(), json.size(), 8);
  const uint64_t start = 8 + json.size();
  return {safetensors::parse(json, size - start), start, size};
}

// The arrays that a caller gets, in one piece of memory, which cgotorch_free_tensor_index frees.
void index_tensors(const File &file, TensorIndex *result) {
  const auto [header, start, size] = read_header(file);
  const auto known = [](const Entry &e) {
    return std::any_of(std::begin(kFormats), std::end(kFormats),
                       [&](const Format &f) { return e.dtype == f.name; });
  };
  size_t sizes = 0, letters = 0;
  for (const Entry &e : header.entries) {
    sizes += e.shape.size();
    letters += e.name.size() + e.dtype.size() + 2;
  }
  for (const auto &[key, value] : header.metadata) letters += key.size() + value.size() + 2;
  const size_t n = header.entries.size(), n_metadata = header.metadata.size();
  void *memory = std::malloc(1 + n * sizeof(TensorEntry) + 2 * n_metadata * sizeof(char *) +
                             sizes * sizeof(int64_t) + letters);
  if (memory == nullptr) throw std::bad_alloc();
  std::unique_ptr<void, decltype(&std::free)> owner(memory, &std::free);
  auto *entries = static_cast<TensorEntry *>(memory);
  auto **metadata = reinterpret_cast<const char **>(entries + n);
  auto *size_at = reinterpret_cast<int64_t *>(metadata + 2 * n_metadata);
  auto *letter_at = reinterpret_cast<char *>(size_at + sizes);
  const auto copy = [&](const std::string &s) {
    const char *begin = letter_at;
    letter_at = std::copy_n(s.c_str(), s.size() + 1, letter_at);
    return begin;
  };
  for (size_t i = 0; i < n; i++) {
    const Entry &e = header.entries[i];
    TensorEntry &t = entries[i];
    t = {};
    t.name = copy(e.name);
    t.format = copy(e.dtype);
    t.known = known(e);
    std::vector<int64_t> shape = e.shape;
    if (t.known) {
      const auto [dtype, sized] = type_of(e);
      t.dtype = static_cast<ScalarType>(dtype);
      shape = sized;
    }
    t.ndim = static_cast<int64_t>(shape.size());
    t.sizes = size_at;
    size_at = std::copy(shape.begin(), shape.end(), size_at);
    t.offset = static_cast<int64_t>(start + e.begin);
    t.nbytes = static_cast<int64_t>(e.end - e.begin);
  }
  for (size_t i = 0; i < n_metadata; i++) {
    metadata[2 * i] = copy(header.metadata[i].first);
    metadata[2 * i + 1] = copy(header.metadata[i].second);
  }
  *result = {static_cast<int64_t>(n), entries, static_cast<int64_t>(n_metadata), metadata};
  (void)owner.release();
}

void load_tensors(const File &file, bool map, TensorFile *result) {
  const auto [header, start, size] = read_header(file);
  MappingPtr mapping;
  if (map && size > start) mapping = std::make_shared<Mapping>(file, start, size - start);
  build(header, result, [&](const Entry &e, at::ScalarType dtype, at::IntArrayRef shape) {
    // Kernels want elements where their type puts them.
    if (mapping && e.end > e.begin &&
        reinterpret_cast<uintptr_t>(mapping->data() + e.begin) % c10::elementSize(dtype) == 0) {
      at::Tensor t = empty({0}, dtype);
      return t.set_(window(mapping, e.begin, e.end - e.begin), 0, shape);
    }
    at::Tensor t = empty(shape, dtype);
    file.read(t.mutable_data_ptr(), e.end - e.begin, start + e.begin);
    return t;
  });
}

void map_file(const File &file, int64_t offset, int64_t n, Storage *result) {
  const auto size = static_cast<int64_t>(file.size());
  if (offset < 0 || n < 0 || offset > size || n > size - offset)
    throw Failure{"ValueError", file.path() + ": the file is truncated"};
  at::Storage storage;
  if (n == 0) {
    storage = at::Storage(at::Storage::use_byte_size_t(), 0, c10::GetCPUAllocator(), true);
  } else {
    storage = window(
        std::make_shared<Mapping>(file, static_cast<uint64_t>(offset), static_cast<uint64_t>(n)), 0,
        static_cast<uint64_t>(n));
  }
  *result = reinterpret_cast<Storage>(storage.unsafeReleaseStorageImpl());
}

std::string file_prefix(const char *path) {
  return path == nullptr ? "" : std::string(path) + ": ";
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *SaveTensors(const char *path, const char *const *names, const Tensor *tensors,
                        int64_t n, const char *const *metadata, int64_t n_metadata) {
  return guard([&] {
    const Plan made = plan(names, tensors, n, metadata, n_metadata);
    replace_file(std::string(str(path, "path")),
                 [&](File &file) { write_tensors(file, made, tensors); });
  });
}

const char *cgotorch_tensors_header(const char *const *names, const Tensor *tensors, int64_t n,
                                    const char *const *metadata, int64_t n_metadata, char **head,
                                    int64_t *head_size, int64_t *order) {
  return guard([&] {
    const Plan made = plan(names, tensors, n, metadata, n_metadata);
    char *copy = static_cast<char *>(std::malloc(made.head.size()));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, made.head.data(), made.head.size());
    std::copy(made.order.begin(), made.order.end(), order);
    *head = copy;
    *head_size = static_cast<int64_t>(made.head.size());
  });
}

const char *LoadTensors(const char *path, bool map, TensorFile *result) {
  return guard_file(file_prefix(path),
                    [&] { load_tensors(File(std::string(str(path, "path"))), map, result); });
}

const char *cgotorch_load_open_tensors(int fd, const char *path, bool map, TensorFile *result) {
  return guard_file(file_prefix(path),
                    [&] { load_tensors(File(fd, std::string(str(path, "path"))), map, result); });
}

const char *cgotorch_index_open_tensors(int fd, const char *path, TensorIndex *result) {
  return guard_file(file_prefix(path),
                    [&] { index_tensors(File(fd, std::string(str(path, "path"))), result); });
}

void cgotorch_free_tensor_index(TensorIndex *index) {
  std::free(index->entries);
  *index = TensorIndex{};
}

const char *ParseTensors(const void *data, int64_t n, TensorFile *result) {
  return guard_file("", [&] {
    if (n < 8) throw safetensors::Malformed{"the data is too short for a safetensors file"};
    const auto *bytes = static_cast<const unsigned char *>(data);
    const auto size = static_cast<uint64_t>(n);
    const uint64_t length = safetensors::header_length(bytes, size);
    const auto *base = reinterpret_cast<const char *>(bytes) + 8;
    const Header header = safetensors::parse(std::string_view(base, length), size - 8 - length);
    build(header, result, [&](const Entry &e, at::ScalarType dtype, at::IntArrayRef shape) {
      at::Tensor t = empty(shape, dtype);
      if (e.end > e.begin)
        std::memcpy(t.mutable_data_ptr(), base + length + e.begin, e.end - e.begin);
      return t;
    });
  });
}

void FreeTensorFile(TensorFile *file, bool handles) {
  if (handles) FreeTensors(file->tensors, file->n);
  for (int64_t i = 0; i < file->n; i++) std::free(const_cast<char *>(file->names[i]));
  for (int64_t i = 0; i < 2 * file->n_metadata; i++)
    std::free(const_cast<char *>(file->metadata[i]));
  std::free(file->names);
  std::free(file->tensors);
  std::free(file->metadata);
  *file = TensorFile{};
}

const char *MapFile(const char *path, int64_t offset, int64_t n, Storage *result) {
  return guard([&] { map_file(File(std::string(str(path, "path"))), offset, n, result); });
}

const char *cgotorch_map_open_file(int fd, const char *path, int64_t offset, int64_t n,
                                   Storage *result) {
  return guard([&] { map_file(File(fd, std::string(str(path, "path"))), offset, n, result); });
}

const char *TensorFromStorage(Storage s, ScalarType type, int64_t offset, const int64_t *sizes,
                              const int64_t *strides, int64_t ndim, Tensor *result) {
  return guard([&] {
    const at::Storage &on = storage(s, "s");
    const at::ScalarType t = dtype(type);
    const auto fail = [](const char *what) { throw Failure{"ValueError", what}; };
    if (ndim < 0 || ndim > static_cast<int64_t>(safetensors::kMaxDims)) fail("too many dimensions");
    if (offset < 0) fail("a negative storage offset");
    // The last element's place, and the number of elements, neither of which may overflow.
    int64_t last = offset, count = 1;
    bool empty_shape = false;
    for (int64_t i = 0; i < ndim; i++) {
      int64_t step;
      if (sizes[i] < 0 || strides[i] < 0) fail("a negative size or stride");
      if (sizes[i] == 0) empty_shape = true;
      if (__builtin_mul_overflow(std::max<int64_t>(sizes[i], 1) - 1, strides[i], &step) ||
          __builtin_add_overflow(last, step, &last) ||
          __builtin_mul_overflow(count, std::max<int64_t>(sizes[i], 1), &count))
        fail("a shape that is too large");
    }
    const auto room = static_cast<int64_t>(on.nbytes() / c10::elementSize(t));
    if (empty_shape ? offset > room : last >= room)
      fail("a tensor that reaches outside its storage");
    at::Tensor made = at::_ops::empty_memory_format::call({c10::SymInt(0)}, t, at::kStrided,
                                                          on.device(), false, std::nullopt);
    made.set_(on, offset, ints(sizes, ndim), ints(strides, ndim));
    out(result, std::move(made));
  });
}

}  // extern "C"
