// What kernels of platform cuda choose on the host: which is the default of gradients of short
// sequences, by what each expects to take, and configs that packed sequences share with their batch.
// Nothing runs: the GPU is made up.
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <attune/backends/cuda.hpp>
#include <attune/core/params.hpp>
#include <attune/core/registry.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/register.hpp>

namespace attune::test {
namespace {

const Registry& registry() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cuda::register_kernels(made);
    return made;
  }();
  return registry;
}

DeviceInfo h100() {
  DeviceInfo info;
  info.id = {.backend = "gpu", .index = 0};
  info.arch = "sm_90";
  info.features = {"sm_80", "sm_90", "sm_90a"};
  info.cores = 132;
  info.l1_bytes = 227 << 10;
  info.l2_bytes = 50 << 20;
  return info;
}

/// Of the kernels of the highest rank that take the problem, the one that expects the least.
std::string default_of(std::string_view op_name, const std::string& spec) {
  const OpInfo& op = registry().op(op_name);
  const AnyProblem problem = op.parse(parse_params(spec, ' '));
  int rank = 0;
  double least = 0;
  std::string found = "none";
  for (const RegisteredKernel* const entry : registry().kernels(op.name, "cuda", "gpu")) {
    const ErasedKernel& kernel = *entry->kernel;
    if (!kernel.erased_supports(problem, h100())) continue;
    const double us = kernel.erased_expected_us(problem, h100())
                          .value_or(std::numeric_limits<double>::infinity());
    if (entry->at.priority < rank || (entry->at.priority == rank && us >= least)) continue;
    rank = entry->at.priority;
    least = us;
    found = kernel.name();
  }
  return found;
}
std::string default_of(const std::string& spec) {
  return default_of(ops::RecurrentAttentionBackward::kName, spec);
}
std::string forward_default_of(const std::string& spec) {
  return default_of(ops::RecurrentAttention::kName, spec);
}

// On an H200 the parallel form takes 0.5 to 0.75 of the others' time of the first six, and 1.5 times or
// more of it of the last four, but for T=4096, of which T=2048 was timed (1.26).
TEST(CudaExpectedTime, MakesTheParallelFormTheDefaultOfFewChunks) {
  for (const char* spec :
       {"T=128 H=16 D=128 dtype=bf16 gate=gamma", "T=512 H=4 D=128 dtype=bf16 gate=gamma",
        "T=768 H=16 D=128 dtype=bf16 gate=gamma", "T=1024 H=4 D=128 dtype=bf16 gate=gamma",
        "T=803 H=8 K=256 V=80 dtype=bf16 gate=g+gamma",
        "B=2 T=70 H=28 K=256 V=128 dtype=bf16 gate=g"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.parallel_wgmma") << spec;
  }
  for (const char* spec :
       {"T=715 H=63 K=80 V=192 dtype=f16 gate=g+gamma",
        "B=8 T=604 H=26 K=256 V=16 dtype=bf16 gate=g", "T=4096 H=16 D=128 dtype=bf16 gate=gamma",
        "B=4 T=1724 H=67 K=80 V=64 dtype=bf16 gate=g"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.chunk_wgmma") << spec;
  }
}

// On an H200 slices of more than 256 keys that run beside each other take 0.45 to 0.67 of the time of
// cuda.chunk_mma of the first five, and 1.6 to 1.7 times it of the others.
TEST(CudaExpectedTime, MakesSlicesOfKeysTheDefaultWhereBlocksAreFewOrLong) {
  for (const char* spec : {"B=9 T=777 H=32 Hkv=8 K=512 V=384 dtype=bf16 gate=g+gamma",
                           "T=405 N=24 K=512 V=320 dtype=bf16 gate=none ht=yes",
                           "T=144 N=3 H=8 K=512 V=64 dtype=bf16 gate=none",
                           "T=40 K=448 V=128 dtype=bf16 gate=g+gamma ht=yes",
                           "B=8 T=64 H=24 D=384 dtype=f16 gate=gamma ht=yes"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.chunk_wgmma") << spec;
  }
  for (const char* spec : {"T=720 N=24 H=32 K=512 V=64 dtype=f16 gate=g",
                           "T=240 N=8 H=24 K=320 V=512 dtype=bf16 gate=g"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.chunk_mma") << spec;
  }
}

// On an H200 operands that a head's blocks share take 0.52 to 0.88 of the time of cuda.gla_wgmma of the first
// twelve, and 1.02 to 2.7 times it of the others, but for gv, which they do not take.
TEST(CudaExpectedTime, SharesOperandsWhereManyValuesTakeThem) {
  const auto forward = [](const std::string& spec) {
    return forward_default_of(spec + " dtype=bf16");
  };
  for (const char* spec :
       {"B=4 T=2048 H=4 K=256 V=512 gate=gk", "B=8 T=2048 H=4 K=128 V=256 gate=gk",
        "B=4 T=4096 H=8 D=256 gate=gk ht=yes", "B=16 T=512 H=8 K=128 V=512 gate=gk",
        "T=20000 N=12 H=6 K=96 V=512 gate=gk", "B=8 T=1024 H=4 K=128 V=256 gate=gk gate_dtype=io",
        "B=2 T=2048 H=4 K=256 V=512 gate=gk gate_dtype=io",
        "B=32 T=256 H=4 K=256 V=512 gate=gk gate_dtype=io",
        "T=9156 H=16 K=448 V=305 gate=gk gate_dtype=io h0=yes ht=yes",
        "B=2 T=2773 H=24 D=458 gate=gk gate_dtype=io",
        "T=8192 H=4 K=256 V=512 gate=gk gate_dtype=io", "B=2 T=17684 D=512 gate=gk"}) {
    EXPECT_EQ(forward(spec), "cuda.chunk_gla") << spec;
  }
  for (const char* spec :
       {"B=4 T=2048 H=16 D=128 gate=gk", "T=2048 H=16 D=128 gate=gk",
        "T=16384 N=16 H=16 D=128 gate=gk", "B=32 T=128 H=4 K=128 V=256 gate=g+gk",
        "B=2 T=8192 H=16 K=64 V=128 gate=gk", "B=4 T=2048 H=4 K=256 V=512 gate=gv",
        "B=2 T=8192 H=16 D=192 gate=gk gate_dtype=io",
        "T=409 H=32 K=448 V=128 gate=gk gate_dtype=io",
        "B=3 T=1718 H=32 K=512 V=64 gate=g+gk gate_dtype=io h0=yes",
        "T=1636 N=34 H=32 D=384 gate=gamma+gk ht=yes",
        "T=5632 N=128 H=8 K=384 V=256 gate=g+gk gate_dtype=io",
        "B=32 T=256 H=4 K=128 V=256 gate=gk gate_dtype=io"}) {
    EXPECT_EQ(forward(spec), "cuda.gla_wgmma") << spec;
  }
  // Of f16 with more than 128 keys 0.49 to 0.73 of the time.
  for (const char* spec :
       {"B=4 T=2048 H=4 K=256 V=512 dtype=f16 gate=gk gate_dtype=io",
        "T=12214 H=8 D=448 N=8 dtype=f16 gate=gk ht=yes", "B=2 T=72310 D=400 dtype=f16 gate=gk"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.chunk_gla") << spec;
  }
  EXPECT_EQ(forward_default_of("B=8 T=2048 H=4 K=128 V=256 dtype=f16 gate=gk"), "cuda.gla_wgmma");
}

// On an H200 a warp a head takes 0.16 to 0.71 of the time of the next kernel of the first seven, and 1.36 to
// 2.1 times that of the default of the others.
TEST(CudaExpectedTime, LeavesNarrowHeadsToWarpsWhereTheseAreMany) {
  for (const char* spec :
       {"B=10 T=20878 H=16 Hkv=4 D=16 gate=gamma ht=yes", "T=522044 H=2 D=32 gate=gv ht=yes",
        "B=34 T=4266 H=4 D=16 dtype=bf16 gate=gk+gv h0=yes ht=yes",
        "T=51376 H=24 D=16 dtype=bf16 gate=gamma+gv ht=yes",
        "B=8 T=6532 H=16 D=32 dtype=bf16 gate=gamma+gv",
        "B=60 T=390 H=16 D=32 dtype=bf16 gate=gamma",
        "B=20 T=57 H=48 D=16 dtype=bf16 gate=gv h0=yes ht=yes"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.warp_mma") << spec;
  }
  EXPECT_EQ(forward_default_of("B=64 T=849 H=2 D=32 dtype=bf16 gate=g ht=yes"), "cuda.chunk_wgmma");
  EXPECT_EQ(forward_default_of("T=507 H=32 D=32 dtype=f16 h0=yes"), "cuda.chunk_wgmma");
  EXPECT_EQ(forward_default_of("T=9862 H=16 D=32 dtype=bf16 gate=gk ht=yes"), "cuda.gla_wgmma");
  EXPECT_EQ(forward_default_of("B=6 T=917 H=32 D=32 dtype=bf16 gate=gk+gv"), "cuda.gla_mma");
}

// On an H200 chunks of copied rows take 0.15 to 0.67 of the time of cuda.window and cuda.fused_recurrent,
// which take rows that start anywhere, of all but the last, and 1.14 times it of that.
TEST(CudaExpectedTime, CopiesRowsOfFewTokensWhereChunksTakeLess) {
  for (const char* spec :
       {"T=848 N=120 H=8 K=102 V=16 dtype=bf16 gate=g+gv",
        "B=20 T=11 H=128 K=425 V=96 dtype=f16 gate=gamma+gv gate_dtype=io h0=yes ht=yes",
        "B=4 T=10 H=24 Hkv=3 K=492 V=128 dtype=bf16 gate=g+gv ht=yes"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.gla_wgmma") << spec;
  }
  for (const char* spec : {"T=4373 H=4 K=36 V=71 N=400 dtype=f16 gate=g+gamma ht=yes",
                           "T=374 H=1 K=305 V=130 N=40 dtype=f32 gate=g+gamma ht=yes",
                           "T=3432 H=2 K=100 V=502 N=400 dtype=f32 gate=gk"}) {
    EXPECT_EQ(forward_default_of(spec), "cuda.chunk_mma") << spec;
  }
  EXPECT_EQ(forward_default_of("T=10 H=32 D=42 dtype=bf16 gate=g h0=yes"), "cuda.window");
}

// Each measured at least 1.2 times as fast as the others on an H100: of packed sequences the mean of
// lengths that are alike, ragged, and one long.
TEST(CudaExpectedTime, MakesTheFastestKernelTheDefaultOfShortSequencesGradients) {
  EXPECT_EQ(default_of("T=1451 H=96 Hkv=24 K=32 V=430 N=208 dtype=bf16 gate=g+gv"),
            "cuda.gla.backward");
  EXPECT_EQ(default_of("B=21 T=22 H=12 K=320 V=320 dtype=bf16 gate=g+gv"), "cuda.gla.backward");
  EXPECT_EQ(default_of("T=1234 H=8 K=48 V=192 N=219 dtype=f16 gate=g+gv"), "cuda.gla.backward");
  EXPECT_EQ(default_of("T=95 H=2 K=128 V=128 N=37 dtype=f16 gate=gamma h0=yes"),
            "cuda.chunk_wgmma.backward");
  EXPECT_EQ(default_of("T=657 H=1 K=160 V=160 N=230 dtype=bf16 gate=g ht=yes"),
            "cuda.chunk_wgmma.backward");
  EXPECT_EQ(default_of("T=26 H=4 K=256 V=256 N=5 dtype=bf16 gate=gamma"), "cuda.parallel.backward");
  EXPECT_EQ(default_of("T=24 H=64 K=32 V=160 N=1 gate=g+gk"), "cuda.chunk_mma.backward");
  EXPECT_EQ(default_of("T=9 H=128 K=48 V=48 N=9 dtype=bf16 gate=gamma+gk"),
            "cuda.parallel.backward");
  EXPECT_EQ(default_of("T=43 H=24 K=256 V=64 N=19 dtype=f16 gate=gk"), "cuda.parallel.backward");
  EXPECT_EQ(default_of("T=20 H=16 K=99 V=99 N=17 gate=gk+gv h0=yes ht=yes"),
            "cuda.window.backward");
  EXPECT_EQ(default_of("T=32 H=4 K=320 V=320 N=22 dtype=bf16 gate=gk ht=yes"),
            "cuda.window.backward");
}

/// The config of a kernel of an op, where it takes the problem.
std::string config_of(std::string_view name, const std::string& spec,
                      std::string_view op_name = ops::RecurrentAttention::kName) {
  const OpInfo& op = registry().op(op_name);
  const AnyProblem problem = op.parse(parse_params(spec, ' '));
  for (const RegisteredKernel* const entry : registry().kernels(op.name, "cuda", "gpu")) {
    const ErasedKernel& kernel = *entry->kernel;
    if (kernel.name() != name || !kernel.erased_supports(problem, h100())) continue;
    return config_text(kernel, kernel.erased_heuristic(problem, h100()));
  }
  return "";
}

std::vector<std::string> empty_problems() {
  std::vector<std::string> specs;
  for (const char* dims : {"B=0 T=64 H=2", "B=2 T=0 H=2"}) {
    for (const char* rest : {"D=64", "K=192 V=384", "K=512 V=16 h0=yes ht=yes"}) {
      for (const char* gate : {"none", "g", "gk", "gv", "g+gk+gv"}) {
        const std::string spec = str(dims, ' ', rest, " gate=", gate);
        specs.push_back(spec + " dtype=bf16");
        specs.push_back(spec + " dtype=f32");
      }
    }
  }
  return specs;
}

/// How many kernels take the problem. What each makes of it is sane.
int kernels_that_plan(const OpInfo& op, const std::string& spec) {
  const AnyProblem problem = op.parse(parse_params(spec, ' '));
  int planned = 0;
  for (const RegisteredKernel* const entry : registry().kernels(op.name, "cuda", "gpu")) {
    const ErasedKernel& kernel = *entry->kernel;
    if (!kernel.erased_supports(problem, h100())) continue;
    kernel.erased_expected_us(problem, h100());
    const ConfigBlob config = kernel.erased_heuristic(problem, h100());
    EXPECT_LT(kernel.erased_workspace_bytes(problem, config), std::size_t{64} << 20)
        << kernel.name() << ' ' << spec;
    ++planned;
  }
  return planned;
}

/// Empty tensors are legal: nothing is divided by how many sequences or tokens there are.
TEST(CudaExpectedTime, PlansProblemsWithoutSequencesOrTokens) {
  int planned = 0;
  for (const std::string& spec : empty_problems()) {
    planned += kernels_that_plan(registry().op(ops::RecurrentAttention::kName), spec);
    planned += kernels_that_plan(registry().op(ops::RecurrentAttentionBackward::kName), spec);
  }
  EXPECT_GT(planned, 300);
}

/// Whose results then are the same to the bit. (Segments of packed sequences beyond the 32nd there are
/// none: few configs have more.)
TEST(CudaExpectedTime, PackedSequencesOfOneLengthHaveTheConfigOfTheirBatch) {
  int taken = 0;
  for (const std::string_view kernel : {"cuda.gla_wgmma", "cuda.gla_mma"}) {
    for (const int count : {2, 3, 8}) {
      for (const int length : {100, 600, 900, 4096, 20000}) {
        for (const char* rest : {"H=1 D=32 gate=gk", "H=1 K=512 V=64 gate=gk",
                                 "H=2 K=384 V=512 gate=g+gk", "H=4 K=256 V=128 gate=gv",
                                 "H=1 K=192 V=192 gate=gk+gv", "H=12 K=128 V=384 gate=gk"}) {
          const std::string dims = str(" ", rest, " dtype=bf16");
          const std::string batch = config_of(kernel, str("B=", count, " T=", length, dims));
          EXPECT_EQ(config_of(kernel, str("T=", count * length, " N=", count, dims)), batch)
              << kernel << ' ' << count << " of " << length << dims;
          taken += batch.empty() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_EQ(config_of("cuda.gla_wgmma", "B=2 T=4096 H=1 D=32 gate=gk dtype=f16"),
            "values=64,stages=4,segments=32");
}

TEST(CudaExpectedTime, GradientsOfPackedSequencesOfOneLengthHaveTheConfigOfTheirBatch) {
  struct Heads {
    const char* kernel;
    const char* dims;
  };
  int cut = 0;
  for (const int count : {2, 3, 8}) {
    for (const int length : {2048, 4096, 20000}) {
      for (const Heads& heads : {Heads{"cuda.chunk_wgmma.backward", "H=1 D=64 gate=g"},
                                 Heads{"cuda.chunk_wgmma.backward", "H=2 K=384 V=512 gate=gamma"},
                                 Heads{"cuda.chunk_wgmma.backward", "H=4 K=256 V=128 gate=g"},
                                 Heads{"cuda.chunk_wgmma.backward", "H=12 K=128 V=384 gate=none"},
                                 Heads{"cuda.gla.backward", "H=1 D=128 gate=gk"},
                                 Heads{"cuda.gla.backward", "H=1 K=256 V=512 gate=g+gk"},
                                 Heads{"cuda.gla.backward", "H=4 K=64 V=48 gate=gv"},
                                 Heads{"cuda.gla.backward", "H=8 K=96 V=128 gate=gk+gv"}}) {
        const auto config = [&](const std::string& dims) {
          return config_of(heads.kernel, str(dims, " ", heads.dims, " dtype=bf16"),
                           ops::RecurrentAttentionBackward::kName);
        };
        const std::string batch = config(str("B=", count, " T=", length));
        EXPECT_EQ(config(str("T=", count * length, " N=", count)), batch)
            << heads.kernel << ": " << count << " of " << length << " " << heads.dims;
        cut += batch == "segments=1" ? 0 : 1;
      }
    }
  }
  EXPECT_GT(cut, 20);
}

// Of eight numbers of segments on an H200 each is at least 1.12 times as fast as the next: two blocks of
// such heads share a multiprocessor.
TEST(CudaExpectedTime, CutsGradientsOfNarrowHeadsForTwoBlocksAMultiprocessor) {
  const auto config = [](const char* spec) {
    return config_of("cuda.chunk_wgmma.backward", str(spec, " dtype=bf16"),
                     ops::RecurrentAttentionBackward::kName);
  };
  EXPECT_EQ(config("B=4 T=4096 H=16 D=64 gate=gamma"), "segments=4");
  EXPECT_EQ(config("B=8 T=2048 H=32 D=64 gate=g"), "segments=1");
  EXPECT_EQ(config("B=2 T=8192 H=8 D=64 gate=g"), "segments=16");
  EXPECT_EQ(config("B=4 T=2705 H=48 K=48 V=64 gate=g+gamma ht=yes"), "segments=1");
  EXPECT_EQ(config("T=2191 H=64 K=16 V=32 gate=gamma h0=yes"), "segments=4");
}

// On an H200 in f32 wide blocks take 0.83 and 0.84 of the time of narrow ones of the first two, narrow ones
// 0.9 and 0.93 of that of wide ones of the next two, and a third stage 0.94 of that of two of the last.
TEST(CudaExpectedTime, HasTheFastestBlocksOfPairsOfBf16) {
  const auto config = [](const char* spec) {
    return config_of("cuda.chunk_mma", str(spec, " dtype=f32"));
  };
  EXPECT_EQ(config("B=2 T=4096 H=4 D=512 gate=g"), "warps=8,chunk=32,stages=3,segments=1");
  EXPECT_EQ(config("B=4 T=2048 H=8 D=256 gate=gamma"), "warps=8,chunk=32,stages=3,segments=1");
  EXPECT_EQ(config("B=16 T=100 H=24 K=320 V=192 gate=g+gk"),
            "warps=4,chunk=32,stages=2,segments=1");
  EXPECT_EQ(config("B=4 T=2048 H=16 D=128 gate=gk+gv"), "warps=4,chunk=32,stages=3,segments=1");
  EXPECT_EQ(config("B=4 T=2048 H=16 D=64 gate=gamma"), "warps=4,chunk=32,stages=3,segments=4");
}

}  // namespace
}  // namespace attune::test
