#include <string>
#include <utility>
#include <vector>

#include <attune/backends/device_class.hpp>
#include <attune/core/params.hpp>

namespace attune {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(':');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The number between `before` and `after`.
bool read_number(std::string_view text, std::string_view before, std::string_view after,
                 std::int64_t& value) {
  if (!text.starts_with(before) || !text.ends_with(after)) return false;
  text.remove_prefix(before.size());
  if (text.size() <= after.size()) return false;
  text.remove_suffix(after.size());
  return parse_integer(text, value) && value >= 0;
}

/// "l2=1M", "l1=48K".
bool read_size(std::string_view text, std::string_view name, std::int64_t& bytes) {
  const std::string before = std::string(name) + "=";
  constexpr std::pair<std::string_view, int> kUnits[] = {{"K", 10}, {"M", 20}, {"G", 30}};
  for (const auto& [unit, shift] : kUnits) {
    if (!read_number(text, before, unit, bytes) || bytes >> (62 - shift) != 0) continue;
    bytes <<= shift;
    return true;
  }
  return false;
}

/// What processors with `level` have, as core's read_cpu_info() lists it.
std::vector<std::string> cpu_features(std::string_view level) {
  std::vector<std::string> features;
  if (level == "neon") return {"neon"};
  if (level == "generic") return features;
  features = {"sse4.2"};
  if (level == "sse4.2") return features;
  features.insert(features.end(), {"avx", "avx2", "fma", "f16c"});
  if (level == "avx2") return features;
  features.insert(features.end(), {"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  if (level == "avx512_bf16" || level == "amx_bf16") features.emplace_back("avx512_bf16");
  if (level == "amx_bf16") features.emplace_back(level);
  return features;
}

bool read_cpu(const std::vector<std::string_view>& parts, DeviceInfo& info) {
  std::int64_t cores = 0;
  if (parts.size() != 7 || !read_number(parts[3], "", "c", cores) ||
      !read_size(parts[4], "l1", info.l1_bytes) || !read_size(parts[5], "l2", info.l2_bytes) ||
      !read_size(parts[6], "l3", info.l3_bytes)) {
    return false;
  }
  info.arch = parts[1];
  info.features = cpu_features(parts[2]);
  info.cores = static_cast<int>(cores);
  return cores >= 1 && cores < 1'000'000;
}

/// The most shared memory that a block may have, by compute capability: CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability", less the KiB that the driver keeps.
std::int64_t shared_bytes_of(std::int64_t capability) {
  constexpr std::int64_t kKiB = 1024;
  if (capability == 86 || capability == 89 || capability >= 120) return 99 * kKiB;
  return capability >= 90 ? 227 * kKiB : 163 * kKiB;
}

bool read_gpu(const std::vector<std::string_view>& parts, DeviceInfo& info) {
  std::int64_t capability = 0;
  std::int64_t cores = 0;
  if (parts.size() != 5 || !read_number(parts[1], "sm_", "", capability) || capability < 80 ||
      !read_number(parts[2], "", "sm", cores) || !read_size(parts[3], "l2", info.l2_bytes) ||
      !read_size(parts[4], "mem", info.memory_bytes)) {
    return false;
  }
  info.arch = parts[1];
  info.features = {"sm_80"};
  if (capability >= 90) info.features.emplace_back("sm_90");
  if (capability == 90) info.features.emplace_back("sm_90a");
  info.cores = static_cast<int>(cores);
  info.l1_bytes = shared_bytes_of(capability);
  return cores >= 1 && cores < 1'000'000;
}

}  // namespace

std::optional<DeviceInfo> describe_device_class(std::string_view device_class) {
  const std::vector<std::string_view> parts = split(device_class);
  DeviceInfo info;
  info.device_class = device_class;
  info.name = device_class;
  const bool known =
      (parts[0] == "cpu" && read_cpu(parts, info)) || (parts[0] == "gpu" && read_gpu(parts, info));
  if (!known) return std::nullopt;
  info.id = {.backend = parts[0], .index = 0};
  return info;
}

}  // namespace attune
