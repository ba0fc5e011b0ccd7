// A checksum that needs no order: each element's bits are scattered by its index, and all are added
// up, modulo 2^64. Two arrays that differ have the same one by chance alone, once in 2^64.
#include <algorithm>
#include <cstdint>

#include <attune/core/dtype.hpp>

#include "cuda/runtime/digest.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"

namespace attune::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr std::int64_t kBlocksPerMultiprocessor = 8;

/// Where element `index` in row-major order lies.
__device__ std::int64_t place_of(const DigestedArray& array, std::int64_t index) {
  std::int64_t place = 0;
  for (int dim = array.rank - 1; dim > 0; --dim) {
    const std::int64_t outer = index / array.shape[dim];
    place += (index - outer * array.shape[dim]) * array.strides[dim];
    index = outer;
  }
  return place + index * array.strides[0];
}

/// Each bit of the result depends on each bit of both. Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014: SplitMix64.
__device__ std::uint64_t scattered(std::uint64_t bits, std::int64_t index) {
  std::uint64_t x = bits + static_cast<std::uint64_t>(index + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// This thread's elements.
template <class Bits>
__device__ Digest digest_of_some(const DigestedArray& array) {
  const auto* data = static_cast<const Bits*>(array.data);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  Digest digest;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < array.count;
       i += step) {
    const std::uint64_t bits = data[place_of(array, i)];
    digest.sum += scattered(bits, i);
    const bool finite = array.exponent == 0 || (bits & array.exponent) != array.exponent;
    if (!finite && digest.not_finite < 0) digest.not_finite = i;
  }
  return digest;
}

__device__ Digest digest_of_some(const DigestedArray& array) {
  switch (array.element_bytes) {
    case sizeof(std::uint16_t):
      return digest_of_some<std::uint16_t>(array);
    case sizeof(std::uint32_t):
      return digest_of_some<std::uint32_t>(array);
    default:
      return digest_of_some<std::uint64_t>(array);
  }
}

/// Grid: (blocks that share an array, arrays).
__global__ __launch_bounds__(kThreads) void digest_arrays(DigestedArray* arrays) {
  DigestedArray& array = arrays[blockIdx.y];
  const Digest some = digest_of_some(array);
  unsigned long long sum = some.sum;
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&array.digest.sum), sum);
  }
  // As a number without a sign, -1 is beyond every index.
  if (some.not_finite >= 0) {
    atomicMin(reinterpret_cast<unsigned long long*>(&array.digest.not_finite),
              static_cast<unsigned long long>(some.not_finite));
  }
}

std::uint64_t exponent_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x7C00;
    case DType::kBF16:
      return 0x7F80;
    case DType::kF32:
      return 0x7F800000;
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return 0;
}

}  // namespace

/// Dense arrays of any rank have one dimension: then no place takes a division.
DigestedArray::DigestedArray(const ConstTensorView& view)
    : data(view.data),
      count(element_count(view.shape)),
      element_bytes(static_cast<int>(size_of(view.dtype))),
      exponent(exponent_of(view.dtype)) {
  strides[0] = 1;
  if (view.is_contiguous()) return;
  rank = view.rank();
  std::copy(view.shape.begin(), view.shape.end(), shape);
  std::copy(view.strides.begin(), view.strides.end(), strides);
}

void launch_digests(std::span<const DigestedArray> arrays, DigestedArray* there,
                    cudaStream_t stream) {
  std::int64_t most = 0;
  for (const DigestedArray& array : arrays) most = std::max(most, array.count);
  const std::int64_t blocks =
      std::min((most + kThreads - 1) / kThreads, kBlocksPerMultiprocessor * multiprocessor_count());
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(arrays.size()));
  launch<digest_arrays>({grid, dim3(kThreads)}, stream, there);
}

}  // namespace attune::cuda
