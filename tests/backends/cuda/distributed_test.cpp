// Attention over ranks on a GPU is one walk over each whole sequence, both passes. Ranks are
// threads that share the GPU; the oracle walks. tests/distributed has more cuts, and what ranks are
// told.
#include <gtest/gtest.h>

#include <attune/core/executor.hpp>
#include <attune/ops/summarising_walk.hpp>

#include "backends/cuda/gpu.hpp"
#include "distributed/whole_sequences.hpp"

namespace attune::test {
namespace {

using ops::distributed::TokenOwners;
using Name = WholeSequences::Name;

constexpr WholeGates kGates[] = {{},           {.g = true},  {.gamma = true},
                                 {.gk = true}, {.gv = true}, {true, true, true, true}};

std::string fault_of(const WholeSequences& whole, const TokenOwners& owners, const Device& gpu) {
  return first_fault(whole, by_ranks(whole, owners, nullptr, gpu), by_one_walk(whole));
}

TEST(CudaDistributed, IsOneWalkWhateverTheCut) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  unsigned cases = 0;
  for (const int ranks : {1, 2, 3, 8}) {
    for (const bool zig_zag : {false, true}) {
      for (const WholeGates& gates : kGates) {
        for (const bool reverse : {false, true}) {
          WholeSequences whole{.cu_seqlens = {0, 0, 5, 5, 141, 142, 310, 310},
                               .H = 2,
                               .Hkv = cases % 2 == 0 ? 1 : 2,
                               .K = 9,
                               .V = 6,
                               .reverse = reverse,
                               .states = cases % 4 < 2};
          fill(whole, gates, cases % 3 == 0, cases + 1);
          ++cases;
          const TokenOwners owners = zig_zag
                                         ? ops::distributed::zig_zag_ranges(whole.tokens(), ranks)
                                         : ops::distributed::even_ranges(whole.tokens(), ranks);
          ASSERT_EQ(fault_of(whole, owners, *gpu), "")
              << "case " << cases << ": " << ranks << " ranks, zig-zag " << zig_zag << ", reverse "
              << reverse;
        }
      }
    }
  }
}

TEST(CudaDistributed, HasTheNamesTypesAndLayoutsOfTheOrdinaryOps) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for (const Name name : {Name::kRecurrent, Name::kGated, Name::kSlopes, Name::kLayer}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool heads_first : {false, true}) {
        WholeSequences whole{.name = name,
                             .cu_seqlens = {0, 190, 350},
                             .H = 4,
                             .Hkv = 2,
                             .K = 64,
                             .V = 64,
                             .reverse = heads_first,
                             .states = true,
                             .dtype = dtype,
                             .heads_first = heads_first};
        const bool is_recurrent = name == Name::kRecurrent;
        fill(whole,
             {.g = is_recurrent,
              .gamma = name != Name::kLayer,
              .gk = is_recurrent || name == Name::kGated,
              .gv = is_recurrent},
             false, 7);
        EXPECT_EQ(fault_of(whole, ops::distributed::zig_zag_ranges(350, 3), *gpu), "")
            << static_cast<int>(name) << ' ' << dtype << ' ' << heads_first;
      }
    }
  }
}

TEST(CudaDistributed, AgreesOverSixtyFiveThousandTokens) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for (const Name name : {Name::kRecurrent, Name::kGated, Name::kSlopes}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      WholeSequences whole{.name = name,
                           .cu_seqlens = {0, 65'536},
                           .H = 1,
                           .Hkv = 1,
                           .K = 64,
                           .V = 64,
                           .states = true,
                           .dtype = dtype};
      const bool is_recurrent = name == Name::kRecurrent;
      fill(whole, {.g = is_recurrent, .gamma = name != Name::kGated, .gk = name == Name::kGated},
           false, 11);
      // The state keeps thousands of tokens.
      for (std::vector<float>* const decays : {&whole.g, &whole.gk}) {
        for (float& decay : *decays) decay *= 0.01F;
      }
      for (float& decay : whole.gamma) decay *= 0.001F;
      EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(65'536, 4), *gpu), "")
          << static_cast<int>(name) << ' ' << dtype;
    }
  }
}

/// Whether the kernel that a pass of one of the fragments is walked by makes summaries on its way.
template <class Op>
bool summarises(const WholeSequences& whole, std::int64_t tokens, const Device& gpu) {
  ops::RecurrentAttentionProblem problem{.T = tokens,
                                         .H = whole.H,
                                         .Hkv = whole.Hkv,
                                         .K = whole.K,
                                         .V = whole.V,
                                         .dtype = whole.dtype};
  problem.gates = (whole.gates.g ? ops::kGateG : 0) | (whole.gates.gamma ? ops::kGateGamma : 0) |
                  (whole.gates.gk ? ops::kGateGk : 0);
  problem.h0 = true;
  problem.d_o = std::is_same_v<Op, ops::RecurrentAttentionBackward>;
  Executor executor(heuristic_context());
  Request request;
  request.device = &gpu;
  const auto plan = executor.plan<Op>(problem, request);
  const auto* const walk = dynamic_cast<const ops::SummarisingWalk<Op>*>(plan.choice().kernel);
  return walk != nullptr && walk->summarises(problem, plan.choice().config);
}

TEST(CudaDistributed, SummarisesOnItsWay) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr || !gpu->info().has("sm_90a")) GTEST_SKIP() << "needs a GPU with sm_90a code";
  unsigned cases = 0;
  for (const WholeGates& gates :
       {WholeGates{}, WholeGates{.g = true}, WholeGates{.g = true, .gamma = true},
        WholeGates{.g = true, .gamma = true, .gk = true}}) {
    for (const std::int64_t width : {64, 80, 128}) {
      for (const bool reverse : {false, true}) {
        const bool is_packed = ++cases % 3 == 0;
        WholeSequences whole{.cu_seqlens = {0, 2400},
                             .H = 2,
                             .Hkv = cases % 2 == 0 ? 1 : 2,
                             .K = width,
                             .V = cases % 4 == 0 ? 136 : 64,
                             .reverse = reverse,
                             .states = cases % 4 < 2,
                             .dtype = DType::kBF16};
        if (is_packed) whole.cu_seqlens = {0, 40, 900, 900, 1701, 1702, 2400};
        fill(whole, gates, cases % 5 == 0, cases);
        EXPECT_TRUE(summarises<ops::RecurrentAttention>(whole, 1200, *gpu)) << cases;
        if (!gates.gk) {
          EXPECT_TRUE(summarises<ops::RecurrentAttentionBackward>(whole, 1200, *gpu)) << cases;
        }
        const Results expected = by_one_walk(whole);
        for (const TokenOwners& owners :
             {ops::distributed::even_ranges(2400, 3), ops::distributed::zig_zag_ranges(2400, 2)}) {
          EXPECT_EQ(first_fault(whole, by_ranks(whole, owners, nullptr, *gpu), expected), "")
              << "case " << cases << ", " << owners.size() << " ranks";
        }
      }
    }
  }
}

TEST(CudaDistributed, SummarisesWhereHeadsAreMany) {
  // So many that no sequence is cut into segments.
  const Device* const gpu = find_gpu();
  if (gpu == nullptr || !gpu->info().has("sm_90a")) GTEST_SKIP() << "needs a GPU with sm_90a code";
  for (const WholeGates& gates : {WholeGates{.g = true, .gamma = true}, WholeGates{.gk = true}}) {
    for (const bool reverse : {false, true}) {
      WholeSequences whole{.cu_seqlens = {0, 100, 700},
                           .H = 140,
                           .Hkv = 140,
                           .K = 64,
                           .V = 64,
                           .reverse = reverse,
                           .states = true,
                           .dtype = DType::kBF16};
      fill(whole, gates, false, 19);
      EXPECT_TRUE(summarises<ops::RecurrentAttention>(whole, 350, *gpu));
      EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(700, 2), *gpu), "")
          << gates.gk << ' ' << reverse;
    }
  }
}

TEST(CudaDistributed, SummarisesTheWidestStates) {
  // 256 x 128, of which blocks of 64 value channels make sums.
  const Device* const gpu = find_gpu();
  if (gpu == nullptr || !gpu->info().has("sm_90a")) GTEST_SKIP() << "needs a GPU with sm_90a code";
  WholeSequences whole{.cu_seqlens = {0, 800},
                       .H = 132,
                       .Hkv = 132,
                       .K = 256,
                       .V = 72,
                       .states = true,
                       .dtype = DType::kBF16};
  fill(whole, {.g = true}, false, 23);
  EXPECT_TRUE(summarises<ops::RecurrentAttention>(whole, 400, *gpu));
  EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(800, 2), *gpu), "");
}

TEST(CudaDistributed, GivesTheSameBitsOnEveryRun) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  WholeSequences whole{.cu_seqlens = {0, 3000}, .H = 4, .Hkv = 2, .K = 32, .V = 16, .states = true};
  fill(whole, {true, true, true, true}, false, 5);
  const TokenOwners owners = ops::distributed::zig_zag_ranges(3000, 4);
  const Results first = by_ranks(whole, owners, nullptr, *gpu);
  for (int run = 0; run < 5; ++run) EXPECT_EQ(by_ranks(whole, owners, nullptr, *gpu), first);

  whole.dtype = DType::kBF16;  // where the walk makes summaries on its way
  whole.V = 32;
  fill(whole, {.g = true}, false, 5);
  const Results first_bf16 = by_ranks(whole, owners, nullptr, *gpu);
  for (int run = 0; run < 5; ++run) EXPECT_EQ(by_ranks(whole, owners, nullptr, *gpu), first_bf16);
}

}  // namespace
}  // namespace attune::test
