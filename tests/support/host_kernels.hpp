// Tests that hold every kernel for this CPU to one claim.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "support/heuristic_context.hpp"
#include "support/kernel_runs.hpp"

namespace attune::test {

/// Those of an op, or of all.
inline std::vector<KernelOnDevice> host_kernels(std::string_view op = "") {
  std::vector<KernelOnDevice> kernels = kernels_on_devices(heuristic_context().registry());
  std::erase_if(kernels, [&](const KernelOnDevice& on) {
    return on.device != &cpu_device() || (!op.empty() && on.op->name != op);
  });
  return kernels;
}

/// Skips a kernel that takes no problem here, whatever it is.
class HostKernel : public testing::TestWithParam<KernelOnDevice> {
 protected:
  void SetUp() override {
    const auto& [op, kernel, device] = GetParam();
    const AnyProblem problem = op->parse({{"K", "64"}, {"V", "64"}});
    const Support support = kernel->erased_supports(problem, device->info());
    if (support.code() == refused::kDevice) GTEST_SKIP() << support.reason();
  }
};

inline std::string host_kernel_name(const testing::TestParamInfo<KernelOnDevice>& test) {
  std::string name(test.param.kernel->name());
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace attune::test
