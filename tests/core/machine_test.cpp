// What a process takes its machine to be: on others than this one, whose /sys and parts of /proc
// are files in a mount namespace.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include <attune/core/device.hpp>

#include "support/temporary_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

constexpr int kNoNamespaces = 77;

class Machine : public testing::Test {
 protected:
  void SetUp() override {
    if (probe().empty()) GTEST_SKIP() << "no mount namespace can be made here";
  }

  /// A control group of version 2, "/" or "/a/b", and its limit.
  void group(const std::string& path, const std::string& limit) {
    files["/sys/fs/cgroup" + path + "/cpu.max"] = limit + "\n";
  }
  /// A cache of the first core.
  void cache(int index, const std::string& level, const std::string& type,
             const std::string& size) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    files[folder + "level"] = level + "\n";
    files[folder + "type"] = type + "\n";
    files[folder + "size"] = size + "\n";
  }

  /// What the probe says there.
  std::string probe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      _exit(become_the_machine() ? start_probe() : kNoNamespaces);
    }
    close(ends[1]);
    std::string text;
    std::array<char, 512> buffer{};
    for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespaces) return "";
    EXPECT_EQ(status, 0);
    return text;
  }

  int cores = 8;
  std::string group_of_process = "/";
  std::string cpuinfo = "processor\t: 0\nmodel name\t: A test's CPU @ 1 GHz\nflags\t: x\n";
  std::map<std::string, std::string> files;

 private:
  bool become_the_machine() const {
    const int more = geteuid() == 0 ? 0 : CLONE_NEWUSER;
    if (unshare(CLONE_NEWNS | more) != 0) return false;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (!replace("/proc/self/cgroup", "1:cpu:/old\n0::" + group_of_process + "\n")) return false;
    if (!replace("/proc/cpuinfo", cpuinfo)) return false;
    if (mount("none", "/sys", "tmpfs", 0, nullptr) != 0) return false;
    for (const auto& [path, text] : files) {
      fs::create_directories(fs::path(path).parent_path());
      std::ofstream(path) << text;
    }
    return true;
  }
  bool replace(const std::string& path, const std::string& text) const {
    const std::string file = folder_.file(fs::path(path).filename());
    std::ofstream(file) << text;
    return mount(file.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0;
  }
  int start_probe() const {
    setenv("TEST_CORES", std::to_string(cores).c_str(), 1);
    execl(ATTUNE_MACHINE_PROBE, ATTUNE_MACHINE_PROBE, nullptr);
    return errno == ENOEXEC ? kNoNamespaces : 1;  // an emulator runs this test
  }

  test::TemporaryFolder folder_;
};

TEST_F(Machine, HasTheCoresThatTheProcessMayRunOn) {
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr("usable=8 cores=8"));
  EXPECT_THAT(said, HasSubstr(":8c:"));
  EXPECT_THAT(said, HasSubstr("name=A test's CPU @ 1 GHz"));
}

TEST_F(Machine, ALoopRunsOnAsManyThreadsAsItMayAndAllOnAsManyAsThereAreCores) {
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr(" threads=3 tasks=8 "));
  cores = 2;
  EXPECT_THAT(probe(), HasSubstr(" threads=2 tasks=2 "));
  cores = 1;
  EXPECT_THAT(probe(), HasSubstr(" threads=1 tasks=1 "));
}

TEST_F(Machine, AControlGroupsLimitCountsRoundedUp) {
  group("/", "250000 100000");
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr("usable=3 "));
  group("/", "50000 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=1 "));
  group("/", "1600000 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=8 ")) << "no more than there are";
  group("/", "max 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=8 "));
  group("/", "300000 0");
  EXPECT_THAT(probe(), HasSubstr("usable=8 ")) << "no limit";
  group("/", "0 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=8 ")) << "no limit";
}

TEST_F(Machine, TheLeastLimitOfAGroupAndThoseAboveItCounts) {
  group_of_process = "/a/b";
  group("/a/b", "600000 100000");
  group("/a", "400000 100000");
  group("", "500000 100000");
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr("usable=4 "));
  group("/a/b", "200000 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=2 "));
  group("", "100000 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=1 "));
}

TEST_F(Machine, AGroupOfNoPathIsTheTopmost) {
  group_of_process = "odd";
  group("", "300000 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=8 ")) << "there is none above it";
  group_of_process = "";
  EXPECT_THAT(probe(), HasSubstr("usable=3 "));
}

TEST_F(Machine, ALimitOfVersion1Counts) {
  files["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "350000\n";
  files["/sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000\n";
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr("usable=4 "));
  files["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "-1\n";
  EXPECT_THAT(probe(), HasSubstr("usable=8 "));
  group("/", "200000 100000");
  EXPECT_THAT(probe(), HasSubstr("usable=2 ")) << "none here takes nothing from one there";
}

TEST_F(Machine, CachesAreTheDataCachesOfTheFirstCore) {
  cache(0, "1", "Data", "48K");
  cache(1, "1", "Instruction", "32K");
  cache(2, "2", "Unified", "2048K");
  cache(3, "3", "Unified", "36M");
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr("l1=49152 l2=2097152 l3=37748736"));
  EXPECT_THAT(said, HasSubstr(":l1=48K:l2=2M:l3=36M "));
  cache(2, "2", "Unified", "1G");
  cache(3, "3", "Unified", "33792K");
  EXPECT_THAT(probe(), HasSubstr(":l1=48K:l2=1024M:l3=33M "));
  cache(2, "2", "Unified", "1280K");
  cache(3, "3", "Unified", "1048576");
  EXPECT_THAT(probe(), HasSubstr(":l1=48K:l2=1280K:l3=1M "));
}

TEST_F(Machine, WhoseProcessorHasNoNameIsACpu) {
  cpuinfo = "processor\t: 0\nmodel name\n";
  const std::string said = probe();
  EXPECT_THAT(said, HasSubstr("name=CPU"));
}

TEST(CpuInfo, MayBeOfAProcessWithFewerCores) {
  EXPECT_EQ(read_cpu_info(1).cores, 1);
  EXPECT_THAT(read_cpu_info(1).device_class, HasSubstr(":1c:"));
}

#if defined(__x86_64__)
TEST(CpuInfo, ListsTilesWhereTheProcessorHasThemAndTheSystemGrantsThem) {
  constexpr unsigned kTilesAndTheirBf16Products = 1U << 24 | 1U << 22;  // CPUID leaf 7: EDX
  constexpr int kGetPermission = 0x1022;                                // ARCH_GET_XCOMP_PERM
  constexpr unsigned long kTileData = 1UL << 18;
  const DeviceInfo info = read_cpu_info();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool known = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0;
  unsigned long granted = 0;
  const bool asked = syscall(SYS_arch_prctl, kGetPermission, &granted) == 0;
  const bool there = known && (edx & kTilesAndTheirBf16Products) == kTilesAndTheirBf16Products;
  EXPECT_EQ(info.has("amx_bf16"),
            there && info.has("avx512_bf16") && asked && (granted & kTileData) != 0);
}
#endif

}  // namespace
}  // namespace attune
