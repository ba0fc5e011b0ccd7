// What reading and writing safetensors share.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <attune/core/dtype.hpp>

namespace attune::io {

inline constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{64} << 20U;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// The format's names of attune's element types.
inline constexpr std::pair<std::string_view, DType> kDTypeNames[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16},
    {"I32", DType::kI32}, {"I64", DType::kI64},
};

}  // namespace attune::io
