// Where the walk's kernel can make summaries on its way, plans over ranks have it do so, once a
// pass, and the results are those of one walk.
#include <thread>

#include <gmock/gmock.h>

#include <attune/distributed/thread_exchange.hpp>

#include "distributed/summarising_kernel.hpp"
#include "distributed/whole_sequences.hpp"

namespace attune::test {
namespace {

using ops::distributed::TokenOwners;

constexpr WholeGates kGates[] = {
    {}, {.g = true}, {.gamma = true}, {.gk = true}, {.g = true, .gamma = true, .gk = true}};

std::string fault_of(const WholeSequences& whole, const TokenOwners& owners, Context& context) {
  return first_fault(whole, by_ranks(whole, owners, nullptr, cpu_device(), context),
                     by_one_walk(whole));
}

TEST(SummarisingWalk, IsOneWalkWhateverTheCut) {
  SummarisingCalls calls;
  const auto context = summarising_context(calls);
  unsigned cases = 0;
  for (const int ranks : {2, 3, 8}) {
    for (const bool zig_zag : {false, true}) {
      for (const WholeGates& gates : kGates) {
        for (const bool reverse : {false, true}) {
          WholeSequences whole{.cu_seqlens = {0, 0, 5, 5, 41, 42, 110, 110},
                               .Hkv = cases % 2 == 0 ? 1 : 2,
                               .K = 9,
                               .V = 6,
                               .reverse = reverse,
                               .states = cases % 4 < 2};
          ++cases;
          fill(whole, gates, cases % 3 == 0, cases);
          const TokenOwners owners = zig_zag ? ops::distributed::zig_zag_ranges(110, ranks)
                                             : ops::distributed::even_ranges(110, ranks);
          ASSERT_EQ(fault_of(whole, owners, *context), "")
              << "case " << cases << ": " << ranks << " ranks, zig-zag " << zig_zag << ", reverse "
              << reverse;
        }
      }
    }
  }
  EXPECT_EQ(calls.runs, 0) << "no walk behind somebody else's summaries";
  EXPECT_EQ(calls.walks, calls.summaries);
}

TEST(SummarisingWalk, IsAskedOnceAPassOnEachRank) {
  SummarisingCalls calls;
  const auto context = summarising_context(calls);
  WholeSequences whole{.cu_seqlens = {0, 60}};
  fill(whole, {.g = true}, false, 3);
  EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(60, 3), *context), "");
  EXPECT_EQ(calls.summaries, 6);
  EXPECT_EQ(calls.walks, 6);
}

TEST(SummarisingWalk, LeavesToOthersWhatItDoesNotTake) {
  SummarisingCalls calls;
  const auto context = summarising_context(calls);
  WholeSequences whole{.cu_seqlens = {0, 60}};
  fill(whole, {.gv = true}, false, 3);
  EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(60, 2), *context), "");
  EXPECT_EQ(calls.summaries, 0);
  EXPECT_EQ(calls.runs, 4) << "two passes of two ranks";
}

TEST(SummarisingWalk, IsNotUsedWhereNothingIsSent) {
  SummarisingCalls calls;
  const auto context = summarising_context(calls);
  WholeSequences whole{.cu_seqlens = {0, 30, 60}};
  fill(whole, {.g = true}, false, 3);
  EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(60, 2), *context), "");
  EXPECT_EQ(calls.summaries, 0);
  EXPECT_EQ(calls.runs, 4);
}

TEST(SummarisingWalk, MayNotOverwriteWhatItStartsFrom) {
  // The final state in the place of the carried one: only run() takes that.
  SummarisingCalls calls;
  const auto context = summarising_context(calls);
  const std::vector<float> x(20 * 2 * 4, 0.5F);
  const ConstTensorView q(x.data(), {1, 20, 2, 4});
  ops::RecurrentAttentionOptions options;
  options.want_final_state = true;
  options.call.context = context.get();
  std::vector<float> states[2] = {std::vector<float>(32), std::vector<float>(32)};
  auto exchanges = distributed::ThreadExchange::make(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      const std::int64_t cu_seqlens[] = {0, 40};
      const ops::distributed::SequenceLayout layout(cu_seqlens,
                                                    ops::distributed::even_ranges(40, 2), rank);
      const auto plan = plan_recurrent_attention(q, q, q, options, layout, *exchanges[at]);
      std::vector<float> o(x.size());
      const TensorView state(states[at].data(), plan.carried_shape());
      Tensor workspace(DType::kF32, {static_cast<std::int64_t>(plan.workspace_bytes() / 4 + 1)});
      const std::span<std::byte> memory(static_cast<std::byte*>(workspace.view().data),
                                        workspace.bytes());
      const TensorView to(o.data(), q.shape);
      plan.launch(ops::recurrent_attention_args({.o = to, .final_state = state}, q, q, q, options),
                  state, *exchanges[at], nullptr, memory);
    });
  }
  threads.clear();
  EXPECT_EQ(calls.runs, 2);
  EXPECT_EQ(calls.summaries, 0);
  EXPECT_THAT(states[0], testing::Each(20 * 0.25F)) << "of its own tokens";
  EXPECT_THAT(states[1], testing::Each(40 * 0.25F)) << "of all";
}

}  // namespace
}  // namespace attune::test
