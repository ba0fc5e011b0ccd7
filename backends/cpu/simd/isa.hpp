// The instruction sets one attune binary carries SIMD kernels for.
//
// A kernel's source is compiled once per instruction set, in a translation unit with its own flags;
// which of them runs is a config value, so that the tuner may find the narrower one faster.
#pragma once

#include <cstdint>
#include <string_view>

namespace attune::cpu {

enum class Isa : std::uint8_t {
  kBaseline,    // what the compiler targets by default: SSE2 on x86-64, NEON on aarch64
  kAvx2,        // AVX2, FMA and F16C
  kAvx512,      // AVX-512 F, BW, DQ and VL, with FMA and F16C
  kAvx512Bf16,  // the same and AVX-512 BF16: products of bf16 pairs. Few kernels have it.
};

constexpr std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

/// Whether this binary carries code for `isa` and this CPU (and its operating system) can run it.
bool isa_supported(Isa isa);

/// The widest supported instruction set that every kernel has.
Isa widest_isa();

/// Vector length of `isa` in floats.
constexpr int lanes(Isa isa) { return isa >= Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4; }

}  // namespace attune::cpu
