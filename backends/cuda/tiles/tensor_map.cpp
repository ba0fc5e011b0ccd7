#include "cuda/tiles/tensor_map.hpp"

#include <cuda_runtime_api.h>

#include <array>

#include <attune/core/error.hpp>

#include "cuda/runtime/check.hpp"

namespace attune::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's entry, so that nothing links against the driver: a machine without one loads us
/// too.
Encode encode_entry() {
  static const Encode entry = [] {
    constexpr unsigned kCudaVersion = 12000;  // the first with tensor maps
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kCudaVersion,
                                           cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess) {
      throw ExecutionError("the CUDA driver is too old for tensor maps");
    }
    return reinterpret_cast<Encode>(found);
  }();
  return entry;
}

/// For a thread that has made no call which needs a context, as autograd's may be: the runtime makes
/// the device's current by itself, the driver does not.
void make_context_current() {
  int device = 0;
  check(cudaGetDevice(&device));
  check(cudaSetDevice(device));
}

CUtensorMapDataType element_type(DType dtype) {
  return dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

/// A short row asked for by 256 bytes brings those of heads that are read later, or not at all.
CUtensorMapL2promotion promotion_of(std::int64_t row_bytes, int fetched) {
  constexpr std::int64_t kLine = 128;
  if (row_bytes < kLine) return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
  return fetched <= kLine ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
}

}  // namespace

CUtensorMap head_map(const ConstTensorView& tensor, int rows, int fetched) {
  constexpr int kRank = 4;
  constexpr std::array<int, kRank> kDims{3, 2, 1, 0};  // of the tensor: channel, head, token, batch
  constexpr std::uint64_t kAnyStride = 16;
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));

  std::array<cuuint64_t, kRank> extents{};
  std::array<cuuint64_t, kRank - 1> strides{};  // bytes; the innermost has none
  for (int i = 0; i < kRank; ++i) {
    const int dim = kDims[i];
    extents[i] = static_cast<cuuint64_t>(tensor.size(dim));
    if (i == 0) continue;
    // Nothing is ever a step away in an extent of 1: its stride may be one that cannot be encoded.
    strides[i - 1] =
        tensor.size(dim) == 1 ? kAnyStride : static_cast<cuuint64_t>(tensor.stride(dim) * width);
  }
  const std::array<cuuint32_t, kRank> box{kPanelChannels, 1, static_cast<cuuint32_t>(rows), 1};
  const std::array<cuuint32_t, kRank> every_element{1, 1, 1, 1};
  const CUtensorMapL2promotion promotion = promotion_of(tensor.size(3) * width, fetched);
  CUtensorMap map;
  const auto encode = [&] {
    return encode_entry()(&map, element_type(tensor.dtype), kRank, const_cast<void*>(tensor.data),
                          extents.data(), strides.data(), box.data(), every_element.data(),
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = encode();
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    make_context_current();
    status = encode();
  }
  if (status != CUDA_SUCCESS) {
    // The driver's codes of faults are the runtime's.
    if (is_device_fault(static_cast<cudaError_t>(status))) {
      check_launch(static_cast<cudaError_t>(status));
    }
    throw ExecutionError(str("cuTensorMapEncodeTiled: status ", static_cast<int>(status),
                             " for shape ", tensor.shape, " with strides ", tensor.strides));
  }
  return map;
}

}  // namespace attune::cuda
