// Which instruction sets this build carries kernels for, which of them a device has, and a kernel's
// instance of one.
//
// A kernel's source is compiled once per instruction set, in a unit that CMake writes, with its own
// flags; backends/cpu/CMakeLists.txt lists which. Which of them runs is a config value, so that the
// tuner may find the narrower one faster.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <attune/core/kernel.hpp>

#include "params.hpp"

namespace attune::cpu::simd {

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
    case Isa::kAmxBf16:
      return "amx_bf16";
  }
  return "unknown";
}

/// Whether this build has kernels for `isa`. CMake's ATTUNE_CPU_ISAS, words with blanks between.
constexpr bool is_compiled(Isa isa) {
  std::string_view words = ATTUNE_CPU_ISAS;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == to_string(isa)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

/// What `isa` needs beyond the instruction set before it, as DeviceInfo::features has it.
struct IsaFeature {
  Isa isa;
  std::string_view feature;
};
inline constexpr IsaFeature kIsaFeatures[] = {
    {Isa::kAvx2, "avx2"},        {Isa::kAvx2, "fma"},
    {Isa::kAvx2, "f16c"},        {Isa::kAvx512, "avx512f"},
    {Isa::kAvx512, "avx512bw"},  {Isa::kAvx512, "avx512dq"},
    {Isa::kAvx512, "avx512vl"},  {Isa::kAvx512Bf16, "avx512_bf16"},
    {Isa::kAmxBf16, "amx_bf16"},
};

/// The first that kernels for `isa` need and `device` has not; "" when there is none.
inline std::string_view missing_feature(const DeviceInfo& device, Isa isa) {
  for (const IsaFeature& needed : kIsaFeatures) {
    if (needed.isa <= isa && !device.has(needed.feature)) return needed.feature;
  }
  return "";
}

inline bool has_isa(const DeviceInfo& device, Isa isa) {
  return is_compiled(isa) && missing_feature(device, isa).empty();
}

/// Why kernels for `isa` do not run on `device`.
inline Support runs_on(const DeviceInfo& device, Isa isa) {
  if (!is_compiled(isa)) {
    return Support::no(refused::kDevice,
                       str("needs ", to_string(isa), ", which this build leaves out"));
  }
  const std::string_view missing = missing_feature(device, isa);
  if (missing.empty()) return Support::yes();
  return Support::no(refused::kDevice, str("needs ", missing, ", which this CPU has not"));
}

/// The widest instruction set of `device` and this build that all kernels with an axis for it have.
inline Isa widest_isa(const DeviceInfo& device) {
  if (has_isa(device, Isa::kAvx512)) return Isa::kAvx512;
  return has_isa(device, Isa::kAvx2) ? Isa::kAvx2 : Isa::kBaseline;
}

/// The instruction sets of a kernel: the values of its axis `isa`, or Config::kIsa alone.
template <class Config, std::size_t kAxis = 0>
constexpr auto isas_of() {
  if constexpr (requires { Config::kIsa; }) {
    return std::array{Config::kIsa};
  } else {
    constexpr auto kThis = std::get<kAxis>(Config::axes());
    if constexpr (std::is_same_v<decltype(kThis.values[0]), const Isa&>) {
      return kThis.values;
    } else {
      return isas_of<Config, kAxis + 1>();
    }
  }
}

/// instance.operator()<isa>(), by which a kernel names its instance for `isa`, one of isas_of()
/// that is_compiled(). Throws InvalidArgument for any other.
template <class Config, class Instance>
auto instance_for(Isa isa, const Instance& instance) {
  constexpr auto kIsas = isas_of<Config>();
  std::optional<decltype(instance.template operator()<Isa::kBaseline>())> found;
  const auto visit = [&]<Isa kIsa>() {
    if constexpr (is_compiled(kIsa)) {
      if (isa == kIsa) found = instance.template operator()<kIsa>();
    }
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (visit.template operator()<kIsas[kIndex]>(), ...);
  }
  (std::make_index_sequence<kIsas.size()>());
  if (!found) throw InvalidArgument(str("isa=", to_string(isa), " is not in this build"));
  return *found;
}

}  // namespace attune::cpu::simd
