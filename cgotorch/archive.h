// archive.h: zip archives of PyTorch's, which AOTInductor packages and TorchScript files are. It is
// included after all of libtorch's headers, as cgotorch.h is.
#pragma once

#include <caffe2/serialize/inline_container.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "internal.h"

#include "files.h"

namespace cgotorch {

// A file that is opened once and read by place, by us and by libtorch's reader of archives: its
// name may lead to another file by the time that it is opened again.
class OpenFile : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit OpenFile(const std::string &path) : file_(open_regular(path)), owned_(true) {}
  // One that stays the caller's.
  OpenFile(int fd, const std::string &path) : file_{fd, regular_size(fd, path)}, owned_(false) {}
  OpenFile(const OpenFile &) = delete;
  OpenFile &operator=(const OpenFile &) = delete;
  ~OpenFile() override;

  size_t size() const override { return file_.size; }
  size_t read(uint64_t offset, void *to, size_t n, const char * = "") const override;

 private:
  RegularFile file_;
  bool owned_;
};

// The same of bytes in memory, which are the caller's.
class OpenBytes : public caffe2::serialize::ReadAdapterInterface {
 public:
  OpenBytes(const void *data, size_t n) : data_(static_cast<const char *>(data)), size_(n) {}
  size_t size() const override { return size_; }
  size_t read(uint64_t offset, void *to, size_t n, const char * = "") const override;

 private:
  const char *data_;
  size_t size_;
};

// An archive whose records unpack to no more than its length allows, and match their checksums
// where those are not ignored. Errors are ValueErrors that begin with the path; foreign ends the
// sentence for what is no such archive: "is no TorchScript file".
class Archive {
 public:
  Archive(const std::string &path, std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file,
          const char *foreign, bool ignore_checksums);

  const std::vector<std::string> &records() const { return records_; }
  bool has(const std::string &record) const { return sizes_.count(record) > 0; }
  // Of a record that is there.
  uint64_t size(const std::string &record) const { return sizes_.at(record); }

  std::string content(const std::string &record);
  void extract(const std::string &record, const std::string &to);
  // Reads a record to hold it to its checksum.
  void check(const std::string &record);

 private:
  void read(const char *what, const std::function<void()> &f);
  void chunks(const std::string &record, const std::function<void(const char *, size_t)> &use);
  bool has_checksum(const std::string &record, uint32_t checksum) const;

  std::string path_;
  std::optional<caffe2::serialize::PyTorchStreamReader> reader_;
  std::vector<std::string> records_;
  std::unordered_map<std::string, uint64_t> sizes_;
  std::optional<std::unordered_map<std::string, uint32_t>> checksums_;
};

}  // namespace cgotorch
