#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include <gtest/gtest.h>

#include <attune/core/error.hpp>
#include <attune/io/safetensors.hpp>

#include "support/temporary_folder.hpp"

namespace attune::io {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const auto* first = static_cast<const std::byte*>(tensor.view().data);
  return {first, first + tensor.bytes()};
}

class Safetensors : public ::testing::Test {
 protected:
  void write_raw(const std::string& header, const std::string& data, std::uint64_t length) const {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for (int i = 0; i < 8; ++i) file.put(static_cast<char>((length >> (8 * i)) & 0xffU));
    file << header << data;
  }
  void write_raw(const std::string& header, const std::string& data) const {
    write_raw(header, data, header.size());
  }
  std::string read_raw() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// The message of the InvalidArgument, or "read".
  std::string refusal() const {
    try {
      read_safetensors(path);
      return "read";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("tensors.safetensors");
};

TEST_F(Safetensors, ComeBackAsTheyWere) {
  TensorFile file;
  file.tensors.emplace("q", Tensor::of<float>({1.5F, -0.0F, 3e38F, 1e-45F}, {2, 2}));
  file.tensors.emplace("half",
                       Tensor::of<f16>({f16(0.5F), f16(-65504.0F), f16::from_bits(0x7e01)}, {3}));
  file.tensors.emplace("brain", Tensor::of<bf16>({bf16(0.5F), bf16::from_bits(0xffc1)}, {1, 2, 1}));
  file.tensors.emplace(
      "i32", Tensor::of<std::int32_t>({-1, std::numeric_limits<std::int32_t>::max()}, {2}));
  file.tensors.emplace("i64",
                       Tensor::of<std::int64_t>({std::numeric_limits<std::int64_t>::min()}, {1}));
  file.tensors.emplace("scalar", Tensor::of<float>({2.5F}, {}));
  file.tensors.emplace("empty", Tensor(DType::kBF16, {2, 0, 7}));
  file.tensors.emplace("five", Tensor::of<float>({1, 2, 3, 4}, {1, 2, 1, 2, 1}));
  file.tensors.emplace("ümlaut \"quoted\"", Tensor::of<float>({1}, {1}));
  file.attributes = {{"op", "recurrent_attention"}, {"scale", "0.125"}, {"note", "a\nb"}};
  write_safetensors(path, file);

  const TensorFile read = read_safetensors(path);
  EXPECT_EQ(read.attributes, file.attributes);
  ASSERT_EQ(read.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const auto found = read.tensors.find(name);
    ASSERT_NE(found, read.tensors.end()) << name;
    EXPECT_EQ(found->second.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(found->second.shape(), tensor.shape()) << name;
    EXPECT_EQ(bytes_of(found->second), bytes_of(tensor)) << name;
  }
}

TEST_F(Safetensors, MayBeNone) {
  write_safetensors(path, {});
  EXPECT_EQ(read_raw(), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(read_safetensors(path).tensors.empty());
}

TEST_F(Safetensors, AreWrittenSortedAlignedAndAlikeEachTime) {
  TensorFile file;
  file.tensors.emplace("b", Tensor::of<bf16>({bf16(1.0F)}, {1}));
  file.tensors.emplace("a", Tensor::of<float>({1.0F}, {1}));
  file.tensors.emplace("c", Tensor::of<std::int64_t>({7}, {1}));
  write_safetensors(path, file);
  const std::string first = read_raw();
  const std::string header = R"({"a":{"data_offsets":[8,12],"dtype":"F32","shape":[1]},)"
                             R"("b":{"data_offsets":[12,14],"dtype":"BF16","shape":[1]},)"
                             R"("c":{"data_offsets":[0,8],"dtype":"I64","shape":[1]}})";
  EXPECT_EQ(first.substr(8, header.size()), header);
  EXPECT_EQ((first.size() - 14) % 8, 0U) << "the data does not begin at a multiple of 8";
  write_safetensors(path, file);
  EXPECT_EQ(read_raw(), first);
}

// What another writer may do and this one does not: any order, padding, empty metadata.
TEST_F(Safetensors, OfAnotherWriterAreRead) {
  write_raw(R"( {"b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},
                 "a":{"shape":[1],"dtype":"F32","data_offsets":[0,4]}, "__metadata__":{}}   )",
            std::string("\0\0\x80\x3f\x05\0\0\0", 8));
  const TensorFile file = read_safetensors(path);
  EXPECT_EQ(file.tensors.at("a").values<float>()[0], 1.0F);
  EXPECT_EQ(file.tensors.at("b").values<std::int32_t>()[0], 5);
}

TEST_F(Safetensors, WithAMalformedHeaderAreRefusedWithTheReason) {
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const struct {
    std::string header;
    std::string reason;
  } cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"{" + good + "} x", "not JSON"},
      {"{\"a\xff\":1}", "not JSON"},
      {"[]", "not a JSON object"},
      {"7", "not a JSON object"},
      {"{" + good + "," + good + "}", "names \"a\" twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "names \"dtype\" twice"},
      {R"({"a":[[[[1]]]]})", "nested too deeply"},
      {std::string(100000, '['), "nested too deeply"},
      {R"({"a":5})", "expected an object"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "no dtype"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "no shape"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "no data_offsets"},
      {R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})",
       "dtype \"F64\": expected one of F32, F16"},
      {R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,8]}})", "dtype 3"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "shape: expected an array"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "shape: expected an array"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "shape: expected an array"},
      {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", "shape: expected an array"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,2],"data_offsets":[0,8]}})", "rank 6"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "takes 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}})", "takes 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}})", "too large"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", "elements"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "2^63 - 1"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})",
       "expected an array"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "expected [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "expected [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,-8]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}})",
       "takes 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "ends at byte 12 of 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "4 bytes after the last"},
      {"{" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "overlaps"},
      {"{" + good + R"(,"__metadata__":[]})", "__metadata__: expected an object"},
      {"{" + good + R"(,"__metadata__":{"scale":0.5}})", "\"scale\": expected a string"},
  };
  for (const auto& [header, reason] : cases) {
    write_raw(header, std::string(8, '\0'));
    EXPECT_NE(refusal().find(reason), std::string::npos) << header.substr(0, 100) << "\n"
                                                         << refusal();
    EXPECT_NE(refusal().find(path), std::string::npos) << "the file is not named";
  }
  write_raw("{" + good + "}", std::string(8, '\0'));
  EXPECT_EQ(refusal(), "read");
}

TEST_F(Safetensors, CutShortAnywhereAreRefused) {
  TensorFile file;
  file.tensors.emplace("a", Tensor::of<float>({1, 2, 3}, {3}));
  write_safetensors(path, file);
  const std::string whole = read_raw();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_NE(refusal(), "read") << size;
  }
}

TEST_F(Safetensors, WithAnAbsurdHeaderLengthAreRefused) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{1000}, std::uint64_t{65} << 20U, std::uint64_t{1} << 63U,
        ~std::uint64_t{0}}) {
    write_raw("{}", "", length);
    EXPECT_NE(refusal(), "read") << length;
  }
}

TEST_F(Safetensors, AreRegularFiles) {
  EXPECT_NE(refusal().find("cannot be opened"), std::string::npos);
  path = folder.path().string();
  EXPECT_NE(refusal().find("is not a regular file"), std::string::npos);
}

TEST_F(Safetensors, ReplaceTheOldFileOnlyWhenTheyAreWhole) {
  TensorFile file;
  file.tensors.emplace("a", Tensor::of<float>({1}, {1}));
  write_safetensors(path, file);
  const std::string before = read_raw();

  file.tensors.emplace("__metadata__", Tensor::of<float>({1}, {1}));
  EXPECT_THROW(write_safetensors(path, file), InvalidArgument);
  TensorFile not_utf8;
  not_utf8.attributes.emplace("op", "\xff");
  EXPECT_THROW(write_safetensors(path, not_utf8), InvalidArgument);

  EXPECT_EQ(read_raw(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "something was left";
}

TEST_F(Safetensors, ThatCannotBeWrittenSaySo) {
  TensorFile file;
  EXPECT_THROW(write_safetensors(folder.file("no such folder/a"), file), ExecutionError);
  fs::create_directory(path);
  EXPECT_THROW(write_safetensors(path, file), ExecutionError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "something was left";
}

}  // namespace
}  // namespace attune::io
