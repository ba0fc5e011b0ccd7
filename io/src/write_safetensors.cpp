#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/io/safetensors.hpp>

#include "safetensors_format.hpp"

namespace attune::io {
namespace {

using nlohmann::json;
using Named = TensorMap::value_type;

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw ExecutionError(
      str("tensor file ", path, ": ", what, ": ", std::generic_category().message(error)));
}

/// The tensors in the order of their data: those of wide elements first, so that each is aligned.
std::vector<const Named*> data_order(const TensorMap& tensors) {
  std::vector<const Named*> order;
  for (const Named& named : tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return size_of(a->second.dtype()) > size_of(b->second.dtype());
  });
  return order;
}

json entry_of(const Tensor& tensor, std::uint64_t begin) {
  const auto* name = std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                                  [&](const auto& n) { return n.second == tensor.dtype(); });
  return {{"dtype", name->first},
          {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
          {"data_offsets", {begin, begin + tensor.bytes()}}};
}

/// Length and JSON, padded with spaces so that the data begins at a multiple of 8.
std::string header_of(const std::vector<const Named*>& order, const Attributes& attributes) {
  json header = json::object();
  std::uint64_t begin = 0;
  for (const Named* named : order) {
    const auto& [name, tensor] = *named;
    if (name == kMetadataKey) {
      throw InvalidArgument(str("write_safetensors: no tensor may be called ", kMetadataKey));
    }
    if (tensor.bytes() != 0 && tensor.view().device != DeviceId{}) {
      throw InvalidArgument(str("write_safetensors: tensor '", name, "' is not in host memory"));
    }
    header[name] = entry_of(tensor, begin);
    begin += tensor.bytes();
  }
  if (!attributes.empty()) header[std::string(kMetadataKey)] = attributes;
  std::string text;
  try {
    text = header.dump();
  } catch (const json::type_error& error) {
    throw InvalidArgument(
        str("write_safetensors: a name or attribute is not UTF-8: ", error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint64_t length = text.size();
  std::string prefix;
  for (std::size_t i = 0; i < sizeof length; ++i, length >>= 8U) {
    prefix += static_cast<char>(length & 0xffU);
  }
  return prefix + text;
}

/// A new file beside the one it will replace; removed unless it did.
class Replacement {
 public:
  explicit Replacement(const std::string& path)
      : path_(path), temporary_(unused_name(path)), fd_(create(temporary_)) {
    if (fd_.get() < 0) fail(path, "cannot be made", errno);
  }
  ~Replacement() {
    if (!done_) std::remove(temporary_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd_.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail(path_, "cannot be written", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }

  void replace() {
    if (fsync(fd_.get()) != 0) fail(path_, "cannot be written", errno);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail(path_, "cannot be replaced", errno);
    }
    done_ = true;
  }

 private:
  static std::string unused_name(const std::string& path) {
    static std::atomic<unsigned> count = 0;
    return str(path, ".", getpid(), ".", ++count, ".tmp");
  }
  static int create(const std::string& name) {
    return open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }

  const std::string& path_;
  std::string temporary_;
  Descriptor fd_;
  bool done_ = false;
};

}  // namespace

void write_safetensors(const std::string& path, const TensorFile& file) {
  const std::vector<const Named*> order = data_order(file.tensors);
  const std::string header = header_of(order, file.attributes);
  Replacement output(path);
  output.write(std::as_bytes(std::span(header)));
  for (const Named* named : order) {
    const Tensor& tensor = named->second;
    output.write({static_cast<const std::byte*>(tensor.view().data), tensor.bytes()});
  }
  output.replace();
}

}  // namespace attune::io
