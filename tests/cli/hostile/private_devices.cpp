#include "private_devices.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <linux/capability.h>

namespace attune::test {
namespace {

std::string failed(const char* what) {
  return std::string(what) + ": " + std::generic_category().message(errno);
}

bool make_device(const char* path, unsigned minor) {
  constexpr unsigned kMemoryDevices = 1;  // devices.txt of Linux
  return mknod(path, S_IFCHR | 0666, makedev(kMemoryDevices, minor)) == 0 && chmod(path, 0666) == 0;
}

std::string enter() {
  if (geteuid() != 0) return "not root";
  if (unshare(CLONE_NEWNS) != 0) return failed("no mount namespace");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return failed("mounts cannot be made private");
  }
  if (mount("none", "/dev", "tmpfs", MS_NOSUID, "mode=0755") != 0) return failed("no /dev");
  if (!make_device("/dev/null", 3) || !make_device("/dev/zero", 5) ||
      !make_device("/dev/full", 7) || !make_device("/dev/random", 8) ||
      !make_device("/dev/urandom", 9) || mkdir("/dev/shm", 0777) != 0 ||
      chmod("/dev/shm", 01777) != 0 || symlink("/proc/self/fd", "/dev/fd") != 0 ||
      symlink("/proc/self/fd/1", "/dev/stdout") != 0) {
    return failed("no devices");
  }
  for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER}) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return failed("root's rights stay");
  }
  return "";
}

}  // namespace

std::string enter_private_devices() {
  static const std::string why_not = enter();
  return why_not;
}

}  // namespace attune::test
