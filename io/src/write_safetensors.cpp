#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/io/safetensors.hpp>

#include "safetensors_format.hpp"

namespace attune::io {
namespace {

using nlohmann::json;
using Named = TensorMap::value_type;

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

}  // namespace

void write_safetensors(OutputFile& to, const TensorFile& file) {
  const std::vector<const Named*> order = data_order(file.tensors);
  const std::string header = header_of(order, file.attributes);
  try {
    to.write(header);
    for (const Named* named : order) {
      const Tensor& tensor = named->second;
      to.write({static_cast<const char*>(tensor.view().data), tensor.bytes()});
    }
    to.commit();
  } catch (const FileError& error) {
    throw ExecutionError(str("tensor file ", error.what()));
  }
}

void write_safetensors(const std::string& path, const TensorFile& file) {
  std::optional<OutputFile> output;
  try {
    output.emplace(path, kTensorFiles);
  } catch (const FileError& error) {
    throw ExecutionError(str("tensor file ", error.what()));
  }
  write_safetensors(*output, file);
}

}  // namespace attune::io
