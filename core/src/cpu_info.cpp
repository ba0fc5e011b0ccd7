// What the machine's CPU is, from /proc, /sys, affinity and cgroups. Each source may be missing:
// containers hide some.
#include <sched.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <attune/core/device.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>

namespace attune {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

/// Cores allowed by the cgroup's bandwidth limit, rounded up; 0 when there is none.
int quota_cores() {
  const auto cores = [](double quota, double period) {
    return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : 0;
  };
  int least = 0;
  const auto keep_least = [&least](int found) {
    if (found > 0) least = least == 0 ? found : std::min(least, found);
  };
  // Version 2: "max 100000" or "200000 100000", in this group and in each above it.
  std::string group;
  std::ifstream membership("/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  for (std::string path = group;; path.resize(path.find_last_of('/'))) {
    std::istringstream text(first_line("/sys/fs/cgroup" + path + "/cpu.max"));
    double quota = 0;
    double period = 0;
    if (text >> quota >> period) keep_least(cores(quota, period));
    if (path.find('/') == std::string::npos) break;
  }
  // Version 1.
  std::istringstream quota_text(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  std::istringstream period_text(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  double quota = 0;
  double period = 0;
  if (quota_text >> quota && period_text >> period) keep_least(cores(quota, period));
  return least;
}

std::int64_t parse_size(const std::string& text) {  // "48K", "2048K", "32M"
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  if (end == text.data() + text.size()) return value;
  if (*end == 'K') return value << 10;
  if (*end == 'M') return value << 20;
  return *end == 'G' ? value << 30 : 0;
}

void read_caches(DeviceInfo& info) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string type = first_line(folder + "type");
    if (type != "Data" && type != "Unified") continue;
    const std::int64_t bytes = parse_size(first_line(folder + "size"));
    const std::string level = first_line(folder + "level");
    if (level == "1") info.l1_bytes = bytes;
    if (level == "2") info.l2_bytes = bytes;
    if (level == "3") info.l3_bytes = bytes;
  }
  const auto fallback = [](std::int64_t& bytes, int name) {
    if (bytes == 0) bytes = std::max<std::int64_t>(0, sysconf(name));
  };
  fallback(info.l1_bytes, _SC_LEVEL1_DCACHE_SIZE);
  fallback(info.l2_bytes, _SC_LEVEL2_CACHE_SIZE);
  fallback(info.l3_bytes, _SC_LEVEL3_CACHE_SIZE);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
    }
  }
  return "CPU";
}

#if defined(__x86_64__)
/// Whether this process may use the tile registers of AMX and their products of bf16. Linux lets
/// only those use them that asked: 8 KB more are then saved with each thread that does. The answer
/// holds for all threads of the process, and for those it forks.
bool may_use_tiles() {
  constexpr unsigned kTiles = 1U << 24;  // Intel SDM volume 2, CPUID leaf 7: EDX
  constexpr unsigned kBf16Products = 1U << 22;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTiles) == 0 || (edx & kBf16Products) == 0) return false;
#if defined(__linux__)
  // Linux, Documentation/arch/x86/xstate.rst; asm/prctl.h of older systems lacks the names.
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

/// What the processor and the operating system both allow, since kernels run what is listed here.
void read_features(DeviceInfo& info) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const auto add = [&](bool present, const char* name) {
    if (present) info.features.emplace_back(name);
  };
  add(__builtin_cpu_supports("sse4.2") != 0, "sse4.2");
  add(__builtin_cpu_supports("avx") != 0, "avx");
  add(__builtin_cpu_supports("avx2") != 0, "avx2");
  add(__builtin_cpu_supports("fma") != 0, "fma");
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // clang 14 has no __builtin_cpu_supports("f16c")
  const bool leaf_1 = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0;
  add(leaf_1 && (ecx & bit_F16C) != 0 && __builtin_cpu_supports("avx") != 0, "f16c");
  add(__builtin_cpu_supports("avx512f") != 0, "avx512f");
  add(__builtin_cpu_supports("avx512bw") != 0, "avx512bw");
  add(__builtin_cpu_supports("avx512dq") != 0, "avx512dq");
  add(__builtin_cpu_supports("avx512vl") != 0, "avx512vl");
  const bool has_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  add(has_bf16, "avx512_bf16");
  add(has_bf16 && may_use_tiles(), "amx_bf16");
#elif defined(__aarch64__)
  info.features.emplace_back("neon");
#else
  (void)info;
#endif
}

/// The widest set of instructions that changes which kernels run.
std::string isa_level(const DeviceInfo& info) {
  for (const char* level : {"amx_bf16", "avx512_bf16", "avx512f", "avx2", "sse4.2", "neon"}) {
    if (info.has(level)) return level;
  }
  return "generic";
}

std::string size_text(std::int64_t bytes) {
  if (bytes >= (std::int64_t{1} << 20) && bytes % (std::int64_t{1} << 20) == 0)
    return str(bytes >> 20, "M");
  return str(bytes >> 10, "K");
}

}  // namespace

int usable_cores() {
  static const int cores = [] {
    const int allowed = affinity_cores();
    const int quota = quota_cores();
    return quota > 0 ? std::min(allowed, quota) : allowed;
  }();
  return cores;
}

DeviceInfo read_cpu_info(int most_cores) {
  DeviceInfo info;
  utsname system{};
  uname(&system);
  info.arch = std::string(system.machine) == "x86_64" ? "x86-64" : system.machine;
  info.name = processor_name();
  info.cores = std::min(usable_cores(), most_cores);
  read_features(info);
  read_caches(info);
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  info.device_class = str("cpu:", info.arch, ":", isa_level(info), ":", info.cores,
                          "c:l1=", size_text(info.l1_bytes), ":l2=", size_text(info.l2_bytes),
                          ":l3=", size_text(info.l3_bytes));
  return info;
}

}  // namespace attune
