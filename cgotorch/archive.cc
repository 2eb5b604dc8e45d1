// archive.cc: libtorch's reader of archives, with the checks that it leaves out.
#include <c10/util/Exception.h>
#include <caffe2/serialize/crc_alt.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "archive.h"

namespace cgotorch {
namespace {

using caffe2::serialize::ReadAdapterInterface;

// The checksums of a zip archive's files by their names, which libtorch's reader of archives does
// not look at. Nothing where the list of files, at the archive's end, is not there. A file in it
// that libtorch cannot unpack is a NotImplementedError.
std::optional<std::unordered_map<std::string, uint32_t>> read_checksums(
    const std::string &path, const ReadAdapterInterface &file) {
  const uint64_t size = file.size();
  const auto read = [&](uint64_t offset, uint64_t n) -> std::string {
    if (offset > size || n > size - offset) return "";
    std::string bytes(n, '\0');
    return file.read(offset, bytes.data(), n, "") == n ? bytes : "";
  };
  const auto number = [](const std::string &bytes, size_t at, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | static_cast<unsigned char>(bytes[at + i]);
    return v;
  };
  constexpr size_t kEnd = 22, kLocator = 20, kEnd64 = 56, kEntry = 46, kComment = 65535;
  const uint64_t tail_at = size - std::min<uint64_t>(size, kEnd + kComment);
  const std::string tail = read(tail_at, size - tail_at);
  const size_t end = tail.rfind("PK\5\6");
  if (end == std::string::npos || tail.size() - end < kEnd) return std::nullopt;
  uint64_t list_size = number(tail, end + 12, 4), list_at = number(tail, end + 16, 4);
  if (end >= kLocator && tail.compare(end - kLocator, 4, "PK\6\7") == 0) {
    const std::string end64 = read(number(tail, end - kLocator + 8, 8), kEnd64);
    if (end64.compare(0, 4, "PK\6\6") != 0) return std::nullopt;
    list_size = number(end64, 40, 8);
    list_at = number(end64, 48, 8);
  }
  const std::string list = read(list_at, list_size);
  if (list.size() != list_size) return std::nullopt;
  std::unordered_map<std::string, uint32_t> checksums;
  for (size_t at = 0; at < list.size();) {
    if (list.size() - at < kEntry || list.compare(at, 4, "PK\1\2") != 0) return std::nullopt;
    const size_t name = number(list, at + 28, 2), extra = number(list, at + 30, 2),
                 comment = number(list, at + 32, 2);
    if (list.size() - at - kEntry < name + extra + comment) return std::nullopt;
    const std::string of = list.substr(at + kEntry, name);
    constexpr uint64_t kEncrypted = 1, kStored = 0, kDeflated = 8;
    if ((number(list, at + 8, 2) & kEncrypted) != 0)
      throw Failure{"NotImplementedError", path + " is encrypted: " + of + " needs a password"};
    if (const uint64_t method = number(list, at + 10, 2); method != kStored && method != kDeflated)
      throw Failure{"NotImplementedError",
                    path + ": " + of + " is packed with method " + std::to_string(method) +
                        " of zip, and PyTorch reads what is stored (0) or deflated (8)"};
    checksums[of] = static_cast<uint32_t>(number(list, at + 16, 4));
    at += kEntry + name + extra + comment;
  }
  return checksums;
}

}  // namespace

OpenFile::~OpenFile() {
  if (owned_) close(file_.fd);
}

size_t OpenFile::read(uint64_t offset, void *to, size_t n, const char *) const {
  constexpr size_t kMaxRead = 1 << 30;
  size_t done = 0;
  while (done < n) {
    const ssize_t got = pread(file_.fd, static_cast<char *>(to) + done,
                              std::min(n - done, kMaxRead), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

size_t OpenBytes::read(uint64_t offset, void *to, size_t n, const char *) const {
  if (offset >= size_) return 0;
  n = std::min<uint64_t>(n, size_ - offset);
  std::memcpy(to, data_ + offset, n);
  return n;
}

Archive::Archive(const std::string &path, std::shared_ptr<ReadAdapterInterface> file,
                 const char *foreign, bool ignore_checksums)
    : path_(path) {
  auto checksums = read_checksums(path, *file);
  read(foreign, [&] {
    reader_.emplace(file);
    records_ = reader_->getAllRecords();
    // Records may be packed, or lie upon each other: a small file could ask for much room.
    uint64_t left = (uint64_t{16} << 20) + 256 * static_cast<uint64_t>(file->size());
    for (const std::string &record : records_) {
      const uint64_t n = reader_->getRecordSize(record);
      sizes_[record] = n;
      if (n > left)
        throw Failure{"ValueError",
                      path + " " + foreign + ": it unpacks to far more than it is long"};
      left -= n;
    }
  });
  if (ignore_checksums) return;
  checksums_ = std::move(checksums);
  if (!checksums_) throw Failure{"ValueError", path + " " + foreign};
}

std::string Archive::content(const std::string &record) {
  std::string out;
  chunks(record, [&](const char *data, size_t n) { out.append(data, n); });
  return out;
}

void Archive::extract(const std::string &record, const std::string &to) {
  std::filesystem::create_directories(std::filesystem::path(to).parent_path());
  std::ofstream file(to, std::ios::binary | std::ios::trunc);
  chunks(record,
         [&](const char *data, size_t n) { file.write(data, static_cast<std::streamsize>(n)); });
  file.close();
  if (!file) throw Failure{"OSError", "write " + to + ": " + std::strerror(errno)};
}

void Archive::check(const std::string &record) {
  if (checksums_) chunks(record, [](const char *, size_t) {});
}

// libtorch's errors for a broken archive do not name the file.
void Archive::read(const char *what, const std::function<void()> &f) {
  try {
    f();
  } catch (const c10::Error &e) {
    throw Failure{"ValueError", path_ + " " + what + ": " + e.what_without_backtrace()};
  }
}

void Archive::chunks(const std::string &record,
                     const std::function<void(const char *, size_t)> &use) {
  read("is damaged", [&] {
    constexpr size_t kChunk = 1 << 20;
    const size_t size = sizes_.at(record);
    std::vector<char> buffer(std::min(size, kChunk));
    uint32_t checksum = 0;
    auto it = reader_->createChunkReaderIter(record, size, buffer.size());
    for (size_t done = 0; done < size;) {
      const size_t n = it.next(buffer.data());
      if (n == 0) throw Failure{"ValueError", path_ + " is truncated in " + record};
      checksum = crc32_fast(buffer.data(), n, checksum);
      use(buffer.data(), n);
      done += n;
    }
    if (checksums_ && !has_checksum(record, checksum))
      throw Failure{"ValueError", path_ + " is damaged: the checksum of " + record + " is wrong"};
  });
}

// In the archive the record is in a folder, whose name libtorch's reader leaves out.
bool Archive::has_checksum(const std::string &record, uint32_t checksum) const {
  return std::any_of(checksums_->begin(), checksums_->end(), [&](const auto &entry) {
    const auto &[name, wanted] = entry;
    return wanted == checksum && name.ends_with("/" + record);
  });
}

}  // namespace cgotorch
