// Tensor files. What is read lies within the file: every byte of every tensor can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include <attune/core/error.hpp>
#include <attune/io/safetensors.hpp>

#include "fuzz.hpp"

namespace {

/// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : descriptor_(memfd_create("fuzz", 0)) {
    attune::fuzz::expect(write(descriptor_, data, size) == static_cast<ssize_t>(size),
                         "a memory file");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

unsigned sum_of_bytes(const attune::io::TensorFile& file) {
  unsigned sum = 0;
  for (const auto& [name, tensor] : file.tensors) {
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.view().data);
    for (std::size_t i = 0; i < tensor.bytes(); ++i) sum += bytes[i];
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile file(data, size);
  try {
    volatile unsigned sum = sum_of_bytes(attune::io::read_safetensors(file.path()));
    static_cast<void>(sum);
  } catch (const attune::InvalidArgument&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
