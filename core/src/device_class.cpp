#include <string>
#include <utility>

#include <attune/core/device_class.hpp>
#include <attune/core/params.hpp>

namespace attune {

std::vector<std::string_view> split_device_class(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(':');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool read_class_number(std::string_view text, std::string_view before, std::string_view after,
                       std::int64_t& value) {
  if (!text.starts_with(before) || !text.ends_with(after)) return false;
  text.remove_prefix(before.size());
  if (text.size() <= after.size()) return false;
  text.remove_suffix(after.size());
  return parse_integer(text, value) && value >= 0;
}

bool read_class_size(std::string_view text, std::string_view name, std::int64_t& bytes) {
  const std::string before = std::string(name) + "=";
  constexpr std::pair<std::string_view, int> kUnits[] = {{"K", 10}, {"M", 20}, {"G", 30}};
  for (const auto& [unit, shift] : kUnits) {
    if (!read_class_number(text, before, unit, bytes) || bytes >> (62 - shift) != 0) continue;
    bytes <<= shift;
    return true;
  }
  return false;
}

namespace {

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

}  // namespace

std::optional<DeviceInfo> describe_cpu_class(std::string_view device_class) {
  const std::vector<std::string_view> parts = split_device_class(device_class);
  DeviceInfo info;
  std::int64_t cores = 0;
  if (parts.size() != 7 || parts[0] != "cpu" || !read_class_number(parts[3], "", "c", cores) ||
      !read_class_size(parts[4], "l1", info.l1_bytes) ||
      !read_class_size(parts[5], "l2", info.l2_bytes) ||
      !read_class_size(parts[6], "l3", info.l3_bytes) || cores < 1 || cores >= 1'000'000) {
    return std::nullopt;
  }
  info.id = {.backend = parts[0], .index = 0};
  info.name = device_class;
  info.device_class = device_class;
  info.arch = parts[1];
  info.features = cpu_features(parts[2]);
  info.cores = static_cast<int>(cores);
  return info;
}

}  // namespace attune
