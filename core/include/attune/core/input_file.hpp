// A file that somebody else wrote, or may have: what attune reads is not what attune put there
// until it has looked.
//
// A path may name a FIFO that nobody writes to, a device that never ends, a folder, or 1 TiB of
// zeros. It is looked at before it is opened, opened without waiting, and read up to a bound that
// the reader names.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <streambuf>
#include <string>
#include <string_view>

#include <attune/core/error.hpp>

namespace attune {

/// Where others may put names, a link could lead to a file that is not meant.
enum class FileLinks { kFollow, kRefuse };

/// The descriptor of a regular file, opened with these flags of open(2) and without waiting. Throws
/// FileError when the path is not there, is no regular file, or may not be opened so.
int open_regular_file(const std::string& path, int flags, FileLinks links = FileLinks::kFollow);

/// What a mode of stat(2) says a file is, for messages: "a folder", "a FIFO", "a device", ...
std::string_view kind_of_file(mode_t mode);

/// A regular file, open for reading. As a stream: `std::istream in(&file);`, from its beginning,
/// once; bad() when reading fails.
class InputFile : public std::streambuf {
 public:
  /// Throws FileError when the path is not there, is no regular file, or may not be read.
  explicit InputFile(const std::string& path, FileLinks links = FileLinks::kFollow);
  ~InputFile() override;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes, when it was opened. Some files of the system hold more than they say.
  std::uint64_t size() const { return size_; }
  uid_t owner() const { return owner_; }

  /// Reads `bytes` at position `from`. Throws FileError when there are fewer.
  void read_at(std::uint64_t from, void* to, std::uint64_t bytes) const;

  /// The first bytes, `most` or all there are.
  std::string head(std::size_t most) const;

  /// All of it. Throws FileError when that is more than `most` bytes.
  std::string text(std::uint64_t most) const;

 protected:
  int_type underflow() override;

 private:
  std::size_t read_some(std::uint64_t from, char* to, std::size_t bytes) const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  uid_t owner_ = 0;
  std::uint64_t next_ = 0;  // of the stream
  std::array<char, 16384> buffer_;
};

}  // namespace attune
