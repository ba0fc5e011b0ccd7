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

struct DigestParams {
  const void* data;
  std::int64_t count;
  int rank;  // >= 1
  std::int64_t shape[Extents::kMaxRank];
  std::int64_t strides[Extents::kMaxRank];
  std::uint64_t exponent;  // an element with all of these bits is not finite; 0: integers
  Digest* digest;
};

/// Where element `index` in row-major order lies.
__device__ std::int64_t place_of(const DigestParams& p, std::int64_t index) {
  std::int64_t place = 0;
  for (int dim = p.rank - 1; dim > 0; --dim) {
    const std::int64_t outer = index / p.shape[dim];
    place += (index - outer * p.shape[dim]) * p.strides[dim];
    index = outer;
  }
  return place + index * p.strides[0];
}

/// Each bit of the result depends on each bit of both. Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014: SplitMix64.
__device__ std::uint64_t scattered(std::uint64_t bits, std::int64_t index) {
  std::uint64_t x = bits + static_cast<std::uint64_t>(index + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

template <class Bits>
__global__ __launch_bounds__(kThreads) void digest_elements(DigestParams p) {
  const auto* data = static_cast<const Bits*>(p.data);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  unsigned long long sum = 0;
  std::int64_t not_finite = -1;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.count; i += step) {
    const std::uint64_t bits = data[place_of(p, i)];
    sum += scattered(bits, i);
    if (p.exponent != 0 && (bits & p.exponent) == p.exponent && not_finite < 0) not_finite = i;
  }
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&p.digest->sum), sum);
  }
  // As a number without a sign, -1 is beyond every index.
  if (not_finite >= 0) {
    atomicMin(reinterpret_cast<unsigned long long*>(&p.digest->not_finite),
              static_cast<unsigned long long>(not_finite));
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

/// Dense arrays of any rank have one dimension: then no place takes a division.
DigestParams params_of(const ConstTensorView& view, Digest* digest) {
  DigestParams p{};
  p.data = view.data;
  p.count = element_count(view.shape);
  p.exponent = exponent_of(view.dtype);
  p.digest = digest;
  if (view.is_contiguous()) {
    p.rank = 1;
    p.strides[0] = 1;
    return p;
  }
  p.rank = view.rank();
  std::copy(view.shape.begin(), view.shape.end(), p.shape);
  std::copy(view.strides.begin(), view.strides.end(), p.strides);
  return p;
}

}  // namespace

void launch_digest(const ConstTensorView& view, Digest* digest, cudaStream_t stream) {
  const DigestParams p = params_of(view, digest);
  const std::int64_t blocks = std::min((p.count + kThreads - 1) / kThreads,
                                       kBlocksPerMultiprocessor * multiprocessor_count());
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kThreads)};
  switch (size_of(view.dtype)) {
    case sizeof(std::uint16_t):
      return launch<digest_elements<std::uint16_t>>(shape, stream, p);
    case sizeof(std::uint32_t):
      return launch<digest_elements<std::uint32_t>>(shape, stream, p);
    default:
      return launch<digest_elements<std::uint64_t>>(shape, stream, p);
  }
}

}  // namespace attune::cuda
