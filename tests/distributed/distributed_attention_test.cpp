// Attention over ranks is one walk over each whole sequence, both passes, whatever the cut; what
// differs among ranks is found when plans are made; and each launch communicates as often as it
// says.
#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/distributed/thread_exchange.hpp>

#include "distributed/token_cuts.hpp"
#include "distributed/whole_sequences.hpp"
#include "ops/spy_context.hpp"
#include "support/heuristic_context.hpp"

namespace attune::test {
namespace {

using ops::distributed::SequenceLayout;
using ops::distributed::TokenOwners;
using testing::HasSubstr;
using Name = WholeSequences::Name;

constexpr WholeGates kGates[] = {{},           {.g = true},  {.gamma = true},
                                 {.gk = true}, {.gv = true}, {true, true, true, true}};

TokenOwners owners_of(std::int64_t tokens, int ranks, int cut, unsigned seed) {
  std::mt19937 random(seed);
  if (cut == 0) return ops::distributed::even_ranges(tokens, ranks);
  if (cut == 1) return ops::distributed::zig_zag_ranges(tokens, ranks);
  return random_ranges(tokens, ranks, random);
}

std::string fault_of(const WholeSequences& whole, const TokenOwners& owners) {
  return first_fault(whole, by_ranks(whole, owners), by_one_walk(whole));
}

TEST(DistributedAttention, IsOneWalkWhateverTheCut) {
  int cases = 0;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int cut : {0, 1, 2}) {
      for (const WholeGates& gates : kGates) {
        for (const std::int64_t kv_heads : {2, 1}) {
          for (const bool reverse : {false, true}) {
            for (const bool states : {false, true}) {
              WholeSequences whole{.cu_seqlens = {0, 0, 5, 5, 41, 42, 110, 110},
                                   .Hkv = kv_heads,
                                   .K = 9,
                                   .V = 6,
                                   .reverse = reverse,
                                   .states = states};
              const auto seed = static_cast<unsigned>(++cases);
              fill(whole, gates, cases % 3 == 0, seed);
              const TokenOwners owners = owners_of(whole.tokens(), ranks, cut, seed);
              ASSERT_EQ(fault_of(whole, owners), "")
                  << "case " << cases << ": " << ranks << " ranks, cut " << cut << ", reverse "
                  << reverse << ", states " << states;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 720);
}

TEST(DistributedAttention, HasTheNamesOfTheOrdinaryOps) {
  for (const Name name : {Name::kGated, Name::kSlopes, Name::kLayer}) {
    for (const bool reverse : {false, true}) {
      WholeSequences whole{.name = name,
                           .cu_seqlens = {0, 70, 130},
                           .H = 4,
                           .Hkv = 2,
                           .K = 16,
                           .V = 8,
                           .reverse = reverse,
                           .states = true};
      fill(whole, {.gamma = name != Name::kLayer, .gk = name == Name::kGated}, false, 7);
      EXPECT_EQ(fault_of(whole, ops::distributed::zig_zag_ranges(130, 3)), "")
          << static_cast<int>(name) << ' ' << reverse;
    }
  }
}

TEST(DistributedAttention, AgreesOverSixtyFiveThousandTokens) {
  WholeSequences whole{
      .cu_seqlens = {0, 65'536}, .H = 1, .Hkv = 1, .K = 32, .V = 32, .states = true};
  fill(whole, {.g = true, .gamma = true}, false, 11);
  for (float& decay : whole.g) decay *= 0.01F;  // the state keeps thousands of tokens
  for (float& decay : whole.gamma) decay *= 0.001F;
  EXPECT_EQ(fault_of(whole, ops::distributed::even_ranges(65'536, 4)), "");
}

TEST(DistributedAttention, TakesWhateverTypeAndLayout) {
  for (const bool reverse : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool heads_first : {false, true}) {
        WholeSequences whole{.cu_seqlens = {0, 90, 150},
                             .H = 4,
                             .Hkv = 2,
                             .K = 32,
                             .V = 24,
                             .reverse = reverse,
                             .states = true,
                             .dtype = dtype,
                             .heads_first = heads_first};
        fill(whole, {true, true, true, true}, false, 13);
        EXPECT_EQ(fault_of(whole, ops::distributed::zig_zag_ranges(150, 3)), "")
            << dtype << ' ' << heads_first << ' ' << reverse;
      }
    }
  }
}

TEST(DistributedAttention, LeavesDecaysOfFragmentsToThem) {
  WholeSequences whole{.cu_seqlens = {0, 40, 120}, .K = 8, .V = 8, .gamma_rows = true};
  fill(whole, {.gamma = true}, false, 17);
  EXPECT_EQ(fault_of(whole, ops::distributed::zig_zag_ranges(120, 4)), "");
}

TEST(DistributedAttention, GivesTheSameBitsOnEveryRun) {
  WholeSequences whole{.cu_seqlens = {0, 300}, .H = 4, .Hkv = 2, .K = 32, .V = 16, .states = true};
  fill(whole, {true, true, true, true}, false, 5);
  const TokenOwners owners = ops::distributed::zig_zag_ranges(300, 4);
  const Results first = by_ranks(whole, owners);
  for (int run = 0; run < 5; ++run) EXPECT_EQ(by_ranks(whole, owners), first);
}

// ---- what ranks say to each other ----

struct Rank {
  distributed::Exchange& exchange;
  const SequenceLayout& layout;
};

/// Runs `work` on every rank, a thread each. Returns by rank what it threw; "" for nothing.
template <class Work>
std::vector<std::string> errors_of(const std::vector<std::int64_t>& cu_seqlens,
                                   const TokenOwners& owners, const Work& work) {
  auto exchanges =
      distributed::ThreadExchange::make(static_cast<int>(owners.size()), std::chrono::seconds(20));
  std::vector<std::string> errors(owners.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < owners.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const SequenceLayout layout(cu_seqlens, owners, static_cast<int>(rank));
      try {
        work(Rank{*exchanges[rank], layout});
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

/// q, k and v of a rank in one: nothing is read where a plan is made.
ConstTensorView rank_tokens(const SequenceLayout& layout, std::int64_t heads = 2,
                            std::int64_t width = 4) {
  return {static_cast<const float*>(nullptr), {1, layout.local_cu_seqlens().back(), heads, width}};
}

ops::RecurrentAttentionOptions options_of(const SequenceLayout& layout) {
  ops::RecurrentAttentionOptions options;
  const auto bounds = layout.local_cu_seqlens();
  if (bounds.size() > 1) {
    options.cu_seqlens = ConstTensorView(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
  }
  options.call.context = &heuristic_context();
  return options;
}

TEST(DistributedAttention, SaysOnAllRanksWhichOneCouldNotMakeItsPlan) {
  const auto errors = errors_of({0, 30}, ops::distributed::even_ranges(30, 3), [](Rank rank) {
    const ConstTensorView x = rank_tokens(rank.layout);
    const ConstTensorView odd = rank_tokens(rank.layout, 2, 5);
    plan_recurrent_attention(x, rank.layout.rank() == 1 ? odd : x, x, options_of(rank.layout),
                             rank.layout, rank.exchange);
  });
  EXPECT_EQ(errors[0], "recurrent_attention: rank 1 could not make its plan");
  EXPECT_THAT(errors[1], HasSubstr("recurrent_attention: k: shape"));
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(DistributedAttention, RefusesRanksOfDifferentSizes) {
  const auto errors = errors_of({0, 30}, ops::distributed::even_ranges(30, 3), [](Rank rank) {
    const ConstTensorView x = rank_tokens(rank.layout, rank.layout.rank() == 2 ? 4 : 2);
    plan_recurrent_attention(x, x, x, options_of(rank.layout), rank.layout, rank.exchange);
  });
  EXPECT_EQ(errors[0],
            "recurrent_attention: problem: rank 2 has other sizes, types, gates or another pass "
            "than rank 0");
  EXPECT_EQ(errors[1].substr(0, 50), errors[0].substr(0, 50));
  EXPECT_THAT(errors[2], HasSubstr("rank 0 has other sizes"));
}

TEST(DistributedAttention, RefusesRanksWithDifferentLayouts) {
  const auto errors = errors_of({0, 30}, ops::distributed::even_ranges(30, 2), [](Rank rank) {
    const TokenOwners other{{{0, 15}}, {{15, 30}}};
    const SequenceLayout cut_elsewhere({{0, 10, 30}}, other, rank.layout.rank());
    const SequenceLayout& layout = rank.layout.rank() == 0 ? rank.layout : cut_elsewhere;
    const ConstTensorView x = rank_tokens(layout);
    plan_recurrent_attention(x, x, x, options_of(layout), layout, rank.exchange);
  });
  EXPECT_EQ(errors[0], "recurrent_attention: layout: rank 1 has another one than rank 0");
  EXPECT_EQ(errors[1], "recurrent_attention: layout: rank 0 has another one than rank 1");
}

/// What a single rank is told, when it makes a plan with these.
template <class Change>
std::string refusal(const Change& change) {
  return errors_of({0, 10, 30}, {{{0, 30}}}, [&](Rank rank) {
    ConstTensorView q = rank_tokens(rank.layout);
    ops::RecurrentAttentionOptions options = options_of(rank.layout);
    change(q, options);
    const ConstTensorView x = rank_tokens(rank.layout);
    plan_recurrent_attention(q, x, x, options, rank.layout, rank.exchange);
  })[0];
}

TEST(DistributedAttention, RefusesWhatIsNotTheLayouts) {
  using Options = ops::RecurrentAttentionOptions;
  const std::vector<std::int64_t> other{0, 10, 20, 30};
  EXPECT_EQ(refusal([](ConstTensorView&, Options&) {}), "");
  EXPECT_EQ(refusal([&](ConstTensorView&, Options& options) {
              options.cu_seqlens = ConstTensorView(other.data(), {4});
            }),
            "recurrent_attention: cu_seqlens: 3 sequences, expected the layout's 2 fragments");
  EXPECT_EQ(refusal([](ConstTensorView&, Options& options) { options.cu_seqlens = {}; }),
            "recurrent_attention: cu_seqlens: 1 sequence, expected the layout's 2 fragments");
  std::vector<bf16> states(2 * 2 * 4 * 4);
  EXPECT_EQ(
      refusal([&](ConstTensorView&, Options& options) {
        options.initial_state = ConstTensorView(states.data(), {2, 2, 4, 4});
      }),
      "recurrent_attention: initial_state: dtype bf16, expected f32 for sequences over ranks");
}

TEST(DistributedAttention, SaysWhatADeviceLacksBeforeAnythingRuns) {
  const auto context = make_context({.register_kernels = {[](Registry& registry) {
                                       registry.add(std::make_unique<OtherDevice>("bare"));
                                     }},
                                     .policy = Policy::kHeuristic,
                                     .database = ""});
  const auto errors = errors_of({0, 30}, ops::distributed::even_ranges(30, 2), [&](Rank rank) {
    ConstTensorView x = rank_tokens(rank.layout);
    x.device = {"bare", 0};
    ops::RecurrentAttentionOptions options;
    options.call.context = context.get();
    plan_recurrent_attention(x, x, x, options, rank.layout, rank.exchange);
  });
  EXPECT_EQ(errors[0], "no kernel of state_summary is registered for platform auto on bare:0")
      << "the first rank's tokens go on";
  EXPECT_EQ(errors[1], "no kernel of state_fold is registered for platform auto on bare:0");
}

/// One rank with a plan, its tensors and a carried state.
struct OneRank {
  std::vector<std::int64_t> cu{0, 10, 30};
  SequenceLayout layout{cu, {{{0, 30}}}, 0};
  std::unique_ptr<distributed::Exchange> exchange =
      std::move(distributed::ThreadExchange::make(1)[0]);
  std::vector<float> x = std::vector<float>(30 * 2 * 4, 0.5F), o = x;
  std::vector<float> carried = std::vector<float>(2 * 2 * 4 * 4);
  ConstTensorView q{x.data(), {1, 30, 2, 4}};
  ops::RecurrentAttentionArgs args = ops::recurrent_attention_args(
      {.o = TensorView(o.data(), {1, 30, 2, 4})}, q, q, q, options_of(layout));
  ops::distributed::SequencePlan<ops::RecurrentAttention> plan =
      plan_recurrent_attention(q, q, q, options_of(layout), layout, *exchange);
  Tensor workspace{DType::kF32, {static_cast<std::int64_t>(plan.workspace_bytes() / 4) + 16}};

  std::string launched(const TensorView& state, distributed::Exchange& with) {
    auto* const memory = static_cast<std::byte*>(workspace.view().data);
    try {
      plan.launch(args, state, with, nullptr, {memory, workspace.bytes()});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
};

TEST(DistributedAttention, LaunchLooksAtItsArgumentsFirst) {
  OneRank rank;
  const TensorView state(rank.carried.data(), rank.plan.carried_shape());
  EXPECT_EQ(rank.launched(state, *rank.exchange), "");
  EXPECT_THAT(rank.launched({rank.carried.data(), {2, 2, 4, 3}}, *rank.exchange),
              HasSubstr("initial_state: shape [2, 2, 4, 3]"));
  auto two = distributed::ThreadExchange::make(2);
  EXPECT_EQ(rank.launched(state, *two[1]),
            "recurrent_attention: exchange: rank 1 of 2, expected the layout's 0 of 1");
  EXPECT_THROW(rank.plan.launch(rank.args, state, *rank.exchange), InvalidArgument)
      << "no workspace";
  rank.args.q.device = {"bare", 0};
  EXPECT_EQ(rank.launched(state, *rank.exchange),
            "recurrent_attention: q: on bare:0, the plan is for cpu:0");
  rank.args.q.device = {};
  const std::vector<std::int64_t> other{0, 11, 30};
  rank.args.cu_seqlens = ConstTensorView(other.data(), {3});
  EXPECT_EQ(rank.launched(state, *rank.exchange),
            "recurrent_attention: cu_seqlens: [1] is 11, expected the layout's 10");
}

TEST(DistributedAttention, SaysWhichProblemsItIsMadeOf) {
  OneRank rank;
  const auto problems = rank.plan.problems();
  ASSERT_EQ(problems.size(), 2U) << "nothing is sent";
  EXPECT_EQ(problems[0].op(), "recurrent_attention");
  EXPECT_EQ(problems[1].op(), "state_fold");
}

TEST(DistributedAttention, TakesFragmentsAsABatch) {
  // Two sequences of 20 tokens, each cut into two: [2, 10, ..] on each rank.
  WholeSequences whole{.cu_seqlens = {0, 20, 40}, .H = 2, .Hkv = 2, .K = 8, .V = 8};
  fill(whole, {.gamma = true}, false, 9);
  const TokenOwners owners{{{0, 10}, {20, 30}}, {{10, 20}, {30, 40}}};
  const Results expected = by_one_walk(whole);
  std::vector<std::vector<float>> got(2);
  const auto errors = errors_of(whole.cu_seqlens, owners, [&](Rank rank) {
    const auto at = static_cast<std::size_t>(rank.layout.rank());
    const auto own = [&](const std::vector<float>& all) {
      std::vector<float> rows;
      for (const auto& fragment : rank.layout.fragments()) {
        rows.insert(rows.end(), all.begin() + fragment.tokens.begin * 16,
                    all.begin() + fragment.tokens.end * 16);
      }
      return rows;
    };
    const auto q = own(whole.q), k = own(whole.k), v = own(whole.v);
    const Extents shape{2, 10, 2, 8};
    ops::RecurrentAttentionOptions options;
    options.g_gamma = ConstTensorView(whole.gamma.data(), {2});
    options.call.context = &heuristic_context();
    const ConstTensorView q_view(q.data(), shape), k_view(k.data(), shape), v_view(v.data(), shape);
    const auto plan =
        plan_recurrent_attention(q_view, k_view, v_view, options, rank.layout, rank.exchange);
    got[at].resize(q.size());
    Tensor carried(DType::kF32, plan.carried_shape());
    Tensor workspace(DType::kF32, {static_cast<std::int64_t>(plan.workspace_bytes() / 4)});
    plan.launch(ops::recurrent_attention_args({.o = TensorView(got[at].data(), shape)}, q_view,
                                              k_view, v_view, options),
                carried, rank.exchange, nullptr,
                {static_cast<std::byte*>(workspace.view().data), workspace.bytes()});
    const std::vector<float> wanted = own(expected.find("o")->second);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(got[at][i], wanted[i], 1e-5) << i;
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(DistributedAttention, GathersOnceAPassAndOnceMoreForASharedDecay) {
  for (const bool gamma : {false, true}) {
    WholeSequences whole{.cu_seqlens = {0, 60}};
    fill(whole, {.g = true, .gamma = gamma}, false, 3);
    std::vector<int> counts(2);
    by_ranks(whole, ops::distributed::even_ranges(60, 2), &counts);
    EXPECT_THAT(counts, testing::Each(4 + (gamma ? 1 : 0))) << "two plans and two launches";
  }
}

TEST(DistributedAttention, SendsNothingWhereNoSequenceIsCut) {
  WholeSequences whole{.cu_seqlens = {0, 30, 60}};
  fill(whole, {.g = true}, false, 3);
  std::vector<int> counts(2);
  const TokenOwners owners = ops::distributed::even_ranges(60, 2);
  const Results got = by_ranks(whole, owners, &counts);
  EXPECT_THAT(counts, testing::Each(2)) << "two plans";
  EXPECT_EQ(first_fault(whole, got, by_one_walk(whole)), "");
}

}  // namespace
}  // namespace attune::test
