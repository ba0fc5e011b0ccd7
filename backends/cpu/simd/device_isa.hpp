// Which instruction sets a device has, for kernels to answer what they support there.
#pragma once

#include <string_view>

#include <attune/core/device.hpp>

#include "cpu/simd/isa.hpp"

namespace attune::cpu {

/// The first instruction set `isa` needs that `device` has not; "" when there is none.
inline std::string_view missing_feature(const DeviceInfo& device, Isa isa) {
  if (isa == Isa::kBaseline) return "";
  for (const std::string_view feature : {"avx2", "fma", "f16c"}) {
    if (!device.has(feature)) return feature;
  }
  if (isa == Isa::kAvx2) return "";
  for (const std::string_view feature : {"avx512f", "avx512bw", "avx512dq", "avx512vl"}) {
    if (!device.has(feature)) return feature;
  }
  if (isa == Isa::kAvx512Bf16 && !device.has("avx512_bf16")) return "avx512_bf16";
  return "";
}

/// The same for tile registers and products of bf16 in them, with AVX-512 BF16 for all else.
inline std::string_view missing_for_tiles(const DeviceInfo& device) {
  const std::string_view missing = missing_feature(device, Isa::kAvx512Bf16);
  return missing.empty() && !device.has("amx_bf16") ? "amx_bf16" : missing;
}

inline bool has_isa(const DeviceInfo& device, Isa isa) {
  return missing_feature(device, isa).empty();
}

inline Isa widest_isa(const DeviceInfo& device) {
  if (has_isa(device, Isa::kAvx512)) return Isa::kAvx512;
  return has_isa(device, Isa::kAvx2) ? Isa::kAvx2 : Isa::kBaseline;
}

}  // namespace attune::cpu
