// What the kernels of the platform simd expect to take, and which of them is the default by it.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/backends/cpu.hpp>
#include <attune/core/params.hpp>
#include <attune/core/registry.hpp>
#include <attune/ops/register.hpp>

#include "support/compiled_isas.hpp"

namespace attune::test {
namespace {

constexpr const char* kOps[] = {"recurrent_attention", "recurrent_attention.backward"};

const Registry& registry() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_simd_kernels(made);
    return made;
  }();
  return registry;
}

/// A CPU with all that the kernels can use, whatever this one has.
DeviceInfo cpu_with_tiles(int cores) {
  DeviceInfo info = read_cpu_info(1);
  info.arch = "x86-64";
  info.features = {"avx2",     "fma",      "f16c",        "avx512f", "avx512bw",
                   "avx512dq", "avx512vl", "avx512_bf16", "amx_bf16"};
  info.l2_bytes = 2 << 20;
  info.cores = cores;
  return info;
}

struct Expectation {
  std::string kernel;
  double us = 0;
};

std::vector<Expectation> expectations(const char* op_name, const std::string& spec, int cores = 1) {
  const OpInfo& op = registry().op(op_name);
  const AnyProblem problem = op.parse(parse_params(spec, ' '));
  const DeviceInfo info = cpu_with_tiles(cores);
  std::vector<Expectation> all;
  for (const RegisteredKernel* entry : registry().kernels(op_name)) {
    const ErasedKernel& kernel = *entry->kernel;
    if (!kernel.erased_supports(problem, info)) continue;
    const std::optional<double> us = kernel.erased_expected_us(problem, info);
    EXPECT_TRUE(us.has_value()) << kernel.name() << " of " << spec;
    all.push_back({std::string(kernel.name()), us.value_or(NAN)});
  }
  return all;
}

std::string default_of(const char* op, const std::string& spec, int cores = 1) {
  const auto all = expectations(op, spec, cores);
  return std::min_element(all.begin(), all.end(),
                          [](const auto& a, const auto& b) { return a.us < b.us; })
      ->kernel;
}

TEST(SimdExpectedTime, OfEveryKernelIsATimeThatGrowsWithTheProblem) {
  for (const char* op : kOps) {
    for (const char* gate : {"none", "g", "gamma", "gk", "gv", "gk+gv"}) {
      const std::string rest = std::string(" dtype=bf16 gate=") + gate;
      const auto plain = expectations(op, "T=128 H=4 D=64" + rest);
      ASSERT_GE(plain.size(), 2U);
      for (const char* larger : {"T=512 H=4 D=64", "T=128 H=8 D=64", "T=128 H=4 K=96 V=64",
                                 "T=128 H=4 K=64 V=96", "B=2 T=128 H=4 D=64"}) {
        const auto grown = expectations(op, larger + rest);
        ASSERT_EQ(grown.size(), plain.size());
        for (std::size_t i = 0; i < plain.size(); ++i) {
          EXPECT_GT(plain[i].us, 0);
          EXPECT_GT(grown[i].us, plain[i].us) << plain[i].kernel << " of " << larger << rest;
          EXPECT_TRUE(std::isfinite(grown[i].us));
        }
      }
    }
  }
}

// Of a problem that fits the caches of one core: none has a config of its own for more.
TEST(SimdExpectedTime, IsSharedAmongThreadsThatHaveWork) {
  for (const char* op : kOps) {
    const auto one = expectations(op, "T=64 H=16 D=64 gate=g dtype=bf16", 1);
    const auto sixteen = expectations(op, "T=64 H=16 D=64 gate=g dtype=bf16", 16);
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(sixteen[i].us, one[i].us / 16, 1e-6 * one[i].us) << one[i].kernel;
    }
  }
}

TEST(SimdExpectedTime, OfNothingIsNothing) {
  for (const char* op : kOps) {
    for (const char* spec : {"T=0 H=4 D=64", "B=0 T=128 H=4 D=64"}) {
      for (const Expectation& each : expectations(op, spec)) EXPECT_EQ(each.us, 0) << each.kernel;
    }
  }
}

// Each measured at least 1.1 times as fast as the other kernels on a Sapphire Rapids
// (bench/kernel_choice).
TEST(SimdExpectedTime, MakesTheFastestKernelTheDefault) {
  if (!build_has("amx_bf16")) GTEST_SKIP() << "this build leaves out amx_bf16";
  constexpr const char* kForward = kOps[0];
  EXPECT_EQ(default_of(kForward, "T=512 H=16 D=128 gate=gk dtype=bf16"), "simd.chunk_tiles");
  EXPECT_EQ(default_of(kForward, "T=512 H=16 D=64 gate=g dtype=bf16"), "simd.chunk_tiles");
  EXPECT_EQ(default_of(kForward, "T=512 H=16 D=64 gate=gk dtype=bf16"), "simd.chunk_tiles");
  EXPECT_EQ(default_of(kForward, "T=64 H=16 D=64 gate=gk dtype=bf16"), "simd.chunk_tiles");
  EXPECT_EQ(default_of(kForward, "T=32 H=16 D=64 gate=g dtype=bf16"), "simd.chunk_tiles");
  EXPECT_EQ(default_of(kForward, "T=512 H=16 D=32 gate=gv dtype=bf16"), "simd.recurrent_attention");
  EXPECT_EQ(default_of(kForward, "T=512 H=16 D=64 gate=gk"), "simd.recurrent_attention");
  EXPECT_EQ(default_of(kForward, "T=16 H=16 D=64 dtype=bf16"), "simd.recurrent_attention");
  constexpr const char* kBackward = kOps[1];
  EXPECT_EQ(default_of(kBackward, "T=33 H=16 D=64"), "simd.recurrent_attention.backward");
  EXPECT_EQ(default_of(kBackward, "T=512 H=16 D=64 gate=g"), "simd.recurrent_attention.backward");
  EXPECT_EQ(default_of(kBackward, "T=512 H=16 D=64 gate=gamma"), "simd.chunk.backward");
  EXPECT_EQ(default_of(kBackward, "T=512 H=16 D=128 gate=g"), "simd.chunk.backward");
  EXPECT_EQ(default_of(kBackward, "T=512 H=16 D=64 gate=gk dtype=bf16"),
            "simd.chunk_tiles.backward");
  EXPECT_EQ(default_of(kBackward, "T=512 H=16 D=128 gate=g dtype=bf16"),
            "simd.chunk_tiles.backward");
  EXPECT_EQ(default_of(kBackward, "T=512 H=16 D=16 gate=g dtype=bf16"), "simd.chunk.backward");
}

}  // namespace
}  // namespace attune::test
