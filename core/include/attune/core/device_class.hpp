// Device classes as text: words between colons, the first of which names the backend.
//
//   cpu:x86-64:avx2:8c:l1=32K:l2=1M:l3=32M          gpu:sm_90:132sm:l2=50M:mem=140G
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <attune/core/device.hpp>

namespace attune {

/// The words between the colons.
std::vector<std::string_view> split_device_class(std::string_view device_class);

/// Reads the number >= 0 between `before` and `after`: 132 of "132sm". False when `word` is not
/// that.
bool read_class_number(std::string_view word, std::string_view before, std::string_view after,
                       std::int64_t& value);

/// Reads the bytes of "l2=50M", in K, M or G. False when `word` is not that.
bool read_class_size(std::string_view word, std::string_view name, std::int64_t& bytes);

/// What kernels ask of a CPU, read from the class that read_cpu_info() gave it. Nothing for a text
/// that is no class of a CPU.
std::optional<DeviceInfo> describe_cpu_class(std::string_view device_class);

}  // namespace attune
