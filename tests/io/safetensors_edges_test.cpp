// Tensor files at the edges of what the format allows.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <gmock/gmock.h>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/io/safetensors.hpp>

#include "support/temporary_folder.hpp"

namespace attune::io {
namespace {

using testing::HasSubstr;

class SafetensorsEdges : public testing::Test {
 protected:
  /// What becomes of a file with this header and so many bytes of data: "read", or why not.
  std::string outcome(const std::string& header, std::size_t data_bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    const std::uint64_t length = header.size();
    char prefix[sizeof length];
    std::memcpy(prefix, &length, sizeof length);
    file.write(prefix, sizeof prefix);
    file << header << std::string(data_bytes, '\0');
    file.close();
    return outcome();
  }
  std::string outcome() {
    try {
      read = read_safetensors(path);
      return "read";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  }
  static std::string tensor(const std::string& name, const std::string& shape,
                            const std::string& offsets, const std::string& dtype = "F32") {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}";
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("tensors.safetensors");
  TensorFile read;
};

TEST_F(SafetensorsEdges, EmptyTensorsMayStandWhereverOthersEndOrBegin) {
  const std::string a = tensor("a", "[1]", "[0,4]");
  const std::string b = tensor("b", "[0]", "[0,0]");
  const std::string c = tensor("c", "[3,0]", "[4,4]");
  const std::string d = tensor("d", "[1]", "[4,8]");
  EXPECT_EQ(outcome("{" + a + "," + b + "," + c + "," + d + "}", 8), "read");
  EXPECT_EQ(read.tensors.size(), 4U);
  EXPECT_THAT(outcome("{" + a + "," + tensor("b", "[0]", "[2,2]") + "}", 4),
              HasSubstr("tensor \"b\": its data overlaps another tensor's"));
}

TEST_F(SafetensorsEdges, DataMustBeCoveredExactly) {
  const std::string a = tensor("a", "[1]", "[0,4]");
  EXPECT_EQ(outcome("{" + a + "}", 4), "read");
  EXPECT_THAT(outcome("{" + a + "}", 5), HasSubstr("there are 1 bytes after the last tensor"));
  EXPECT_THAT(outcome("{" + a + "}", 3), HasSubstr("its data ends at byte 4 of 3"));
  EXPECT_THAT(outcome("{" + a + "," + tensor("b", "[1]", "[3,7]") + "}", 7),
              HasSubstr("tensor \"b\": its data overlaps"));
  EXPECT_THAT(outcome("{" + a + "," + tensor("b", "[1]", "[5,9]") + "}", 9),
              HasSubstr("tensor \"b\": there is a gap before its data"));
}

TEST_F(SafetensorsEdges, ShapesAreOfFiveExtentsThatFitAtMost) {
  EXPECT_EQ(outcome("{" + tensor("a", "[1,1,1,1,1]", "[0,4]") + "}", 4), "read");
  EXPECT_THAT(outcome("{" + tensor("a", "[1,1,1,1,1,1]", "[0,4]") + "}", 4),
              HasSubstr("rank 6, expected at most 5"));
  EXPECT_EQ(outcome("{" + tensor("a", "[9223372036854775807,0]", "[0,0]") + "}", 0), "read");
  EXPECT_THAT(outcome("{" + tensor("a", "[9223372036854775808,0]", "[0,0]") + "}", 0),
              HasSubstr("exceeds 2^63 - 1"));
  EXPECT_THAT(outcome("{" + tensor("a", "[9223372036854775807]", "[0,0]") + "}", 0),
              HasSubstr("tensor \"a\": "));
  EXPECT_EQ(outcome("{" + tensor("a", "[]", "[0,4]") + "}", 4), "read") << "a number by itself";
}

TEST_F(SafetensorsEdges, OffsetsAreTwoAndInOrder) {
  for (const char* offsets : {"[0]", "[0,4,8]", "[4,0]", "[]"}) {
    EXPECT_THAT(outcome("{" + tensor("a", "[1]", offsets) + "}", 4),
                HasSubstr("data_offsets: expected [begin, end]"));
  }
}

TEST_F(SafetensorsEdges, AFileHasALengthAtLeast) {
  EXPECT_THAT(outcome("", 0), HasSubstr("the header is not JSON")) << "eight bytes";
  std::ofstream(path, std::ios::trunc) << "1234567";
  EXPECT_THAT(outcome(), HasSubstr("is too short: 7 bytes"));
  EXPECT_EQ(outcome("{}", 0), "read");
  EXPECT_TRUE(read.tensors.empty());
  std::ofstream(path, std::ios::trunc | std::ios::binary)
      << std::string("\x03\0\0\0\0\0\0\0{}", 10);
  EXPECT_THAT(outcome(), HasSubstr("is too short: 10 bytes, with a header of 3"));
}

TEST_F(SafetensorsEdges, OnlyTensorsOfTheHostAreWritten) {
  class Elsewhere final : public Device {
   public:
    Elsewhere() { info_.id = {"elsewhere", 0}; }
    const DeviceInfo& info() const noexcept override { return info_; }
    void* allocate(std::size_t bytes, void*) const override { return std::malloc(bytes); }
    void deallocate(void* pointer, void*) const noexcept override { std::free(pointer); }
    void copy_to_device(void*, const void*, std::size_t, void*) const override {}
    void copy_to_host(void*, const void*, std::size_t, void*) const override {}
    void fill(void*, std::byte, std::size_t, void*) const override {}
    void synchronize(void*) const override {}
    double time_us(FunctionRef<void(void*, int)>, int) const override { return 1; }

   private:
    DeviceInfo info_;
  };
  const Elsewhere device;
  TensorFile file;
  file.tensors.emplace("empty", Tensor(DType::kF32, {0}, device));
  write_safetensors(path, file);
  EXPECT_EQ(outcome(), "read");
  file.tensors.emplace("full", Tensor(DType::kF32, {1}, device));
  EXPECT_THROW(write_safetensors(path, file), InvalidArgument);
  EXPECT_EQ(outcome(), "read") << "the old file is left";
}

}  // namespace
}  // namespace attune::io
