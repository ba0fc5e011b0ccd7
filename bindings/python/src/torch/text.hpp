// A string among an operator's arguments.
//
// Not std::string, which the headers of PyTorch 2.10 and 2.11 convert into one more string that nobody
// frees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <torch/csrc/stable/stableivalue_conversions.h>

namespace attune_torch {

struct Text {
  std::string value;
};

}  // namespace attune_torch

template <>
struct torch::stable::detail::ToImpl<attune_torch::Text> {
  static attune_torch::Text call(StableIValue argument, std::uint64_t /*version*/,
                                 bool /*is_internal*/) {
    const auto handle = to<StringHandle>(argument);
    std::size_t length = 0;
    const char* data = nullptr;
    if (torch_string_length(handle, &length) != AOTI_TORCH_SUCCESS ||
        torch_string_c_str(handle, &data) != AOTI_TORCH_SUCCESS) {
      throw std::runtime_error("attune: torch does not tell a string's characters");
    }
    attune_torch::Text text{std::string(data, length)};
    torch_delete_string(handle);
    return text;
  }
};
