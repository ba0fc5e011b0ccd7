// Sequences over ranks: each token is somebody's, and states that are folded from the summaries of
// others are those of one walk.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <attune/core/error.hpp>
#include <attune/distributed/thread_exchange.hpp>
#include <attune/ops/sequence_layout.hpp>

#include "distributed/token_cuts.hpp"
#include "support/double_recurrence.hpp"

namespace attune::test {
namespace {

using ops::distributed::SequenceLayout;
using ops::distributed::TokenOwners;
using ops::distributed::TokenRange;
using Direction = SequenceLayout::Direction;
using Offsets = std::vector<std::int64_t>;

constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

/// All ranks' layouts.
std::vector<SequenceLayout> layouts_of(const Offsets& cu_seqlens, const TokenOwners& owners) {
  std::vector<SequenceLayout> layouts;
  for (std::size_t rank = 0; rank < owners.size(); ++rank) {
    layouts.emplace_back(cu_seqlens, owners, static_cast<int>(rank));
  }
  return layouts;
}

struct Drawn {
  Offsets cu_seqlens{0};
  TokenOwners owners;
};

Drawn any_layout() {
  Drawn drawn;
  for (const int length : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 9))) {
    drawn.cu_seqlens.push_back(drawn.cu_seqlens.back() + std::max(0, length - 2));
  }
  const int ranks = *rc::gen::inRange(1, 9);
  const std::int64_t tokens = drawn.cu_seqlens.back();
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      drawn.owners = ops::distributed::even_ranges(tokens, ranks);
      break;
    case 1:
      drawn.owners = ops::distributed::zig_zag_ranges(tokens, ranks);
      break;
    default:
      drawn.owners = random_ranges(tokens, ranks, random);
  }
  return drawn;
}

RC_GTEST_PROP(SequenceLayout, FragmentsAreTheSequencesWithoutGapOrOverlap, ()) {
  const Drawn drawn = any_layout();
  std::map<std::int64_t, std::vector<SequenceLayout::Fragment>> by_sequence;
  const auto layouts = layouts_of(drawn.cu_seqlens, drawn.owners);
  for (std::size_t rank = 0; rank < layouts.size(); ++rank) {
    std::int64_t tokens = 0;
    for (const TokenRange& range : drawn.owners[rank]) tokens += range.end - range.begin;
    const auto local = layouts[rank].local_cu_seqlens();
    RC_ASSERT(local.size() == layouts[rank].fragments().size() + 1);
    RC_ASSERT(local.back() == tokens);
    for (const auto& fragment : layouts[rank].fragments()) {
      by_sequence[fragment.sequence].push_back(fragment);
    }
  }
  RC_ASSERT(by_sequence.size() + 1 == drawn.cu_seqlens.size());
  for (auto& [sequence, fragments] : by_sequence) {
    std::sort(fragments.begin(), fragments.end(),
              [](const auto& a, const auto& b) { return a.tokens.begin < b.tokens.begin; });
    std::int64_t next = drawn.cu_seqlens[static_cast<std::size_t>(sequence)];
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      RC_ASSERT(fragments[i].tokens.begin == next);
      RC_ASSERT(fragments[i].is_first == (i == 0));
      RC_ASSERT(fragments[i].is_last == (i + 1 == fragments.size()));
      next = fragments[i].tokens.end;
    }
    RC_ASSERT(next == drawn.cu_seqlens[static_cast<std::size_t>(sequence) + 1]);
  }
}

RC_GTEST_PROP(SequenceLayout, FoldsAreAllThatComesBeforeInItsOrder, ()) {
  const Drawn drawn = any_layout();
  const auto layouts = layouts_of(drawn.cu_seqlens, drawn.owners);
  for (const Direction direction : kDirections) {
    std::map<std::int32_t, SequenceLayout::Fragment> sent;
    const int slots = layouts[0].slots(direction);
    for (std::size_t rank = 0; rank < layouts.size(); ++rank) {
      RC_ASSERT(layouts[rank].slots(direction) == slots);
      for (std::size_t i = 0; i < layouts[rank].fragments().size(); ++i) {
        const int slot = layouts[rank].slot(i, direction);
        RC_ASSERT(slot < slots);
        if (slot < 0) continue;
        const auto at = static_cast<std::int32_t>(static_cast<int>(rank) * slots + slot);
        RC_ASSERT(sent.try_emplace(at, layouts[rank].fragments()[i]).second);
      }
    }
    for (const SequenceLayout& layout : layouts) {
      for (std::size_t i = 0; i < layout.fragments().size(); ++i) {
        const auto& fragment = layout.fragments()[i];
        const auto begin = static_cast<std::size_t>(fragment.sequence);
        const bool forward = direction == Direction::kForward;
        std::int64_t next = forward ? drawn.cu_seqlens[begin] : drawn.cu_seqlens[begin + 1];
        for (const std::int32_t at : layout.fold(i, direction)) {
          const auto& before = sent.at(at);
          RC_ASSERT(before.sequence == fragment.sequence);
          RC_ASSERT((forward ? before.tokens.begin : before.tokens.end) == next);
          next = forward ? before.tokens.end : before.tokens.begin;
        }
        RC_ASSERT(next == (forward ? fragment.tokens.begin : fragment.tokens.end));
      }
    }
  }
}

TEST(SequenceLayout, ContiguousRanksSendOneSummaryAndZigZagTwo) {
  const Offsets one{0, 64};
  const auto even = layouts_of(one, ops::distributed::even_ranges(64, 4));
  const auto zig_zag = layouts_of(one, ops::distributed::zig_zag_ranges(64, 4));
  for (const Direction direction : kDirections) {
    EXPECT_EQ(even[0].slots(direction), 1);
    EXPECT_EQ(zig_zag[0].slots(direction), 2);
  }
  EXPECT_EQ(zig_zag[3].fragments().size(), 1U) << "the two in the middle are neighbours";
  EXPECT_EQ(layouts_of({0, 16, 32, 48, 64}, ops::distributed::even_ranges(64, 4))[0].slots(
                Direction::kForward),
            0)
      << "no sequence is cut";
}

TEST(SequenceLayout, RefusesWhatIsNotEachTokenOnce) {
  const Offsets cu{0, 4, 8};
  const auto refusal = [](const Offsets& offsets, const TokenOwners& owners, int rank) {
    try {
      const SequenceLayout layout(offsets, owners, rank);
      return std::string();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal(cu, {{{0, 8}}, {}}, 0), "");
  EXPECT_EQ(refusal(cu, {{{0, 3}}, {{4, 8}}}, 0), "owners: token 3 belongs to no rank");
  EXPECT_EQ(refusal(cu, {{{0, 5}}, {{4, 8}}}, 0), "owners: token 4 belongs to two ranks");
  EXPECT_EQ(refusal(cu, {{{0, 7}}}, 0), "owners: token 7 belongs to no rank");
  EXPECT_EQ(refusal(cu, {{{0, 9}}}, 0), "owners: range [0, 9): expected one within [0, 8)");
  EXPECT_EQ(refusal(cu, {{{0, 8}}}, 1), "rank: 1: expected 0 to 1 - 1");
  EXPECT_NE(refusal({0, 5, 4, 8}, {{{0, 8}}}, 0), "");
  EXPECT_NE(refusal({1, 8}, {{{0, 8}}}, 0), "");
  EXPECT_NE(refusal({}, {{}}, 0), "");
  EXPECT_THROW(ops::distributed::even_ranges(4, 0), InvalidArgument);
  EXPECT_THROW(ops::distributed::zig_zag_ranges(-1, 2), InvalidArgument);
}

// The fold: each rank walks its own fragments, from states that it folds from all ranks' summaries.

struct Gates {
  bool g = false, gamma = false, gk = false, gv = false;
};

struct WalkCase {
  int ranks = 1;
  int cut = 0;  // even, zig-zag, random
  Gates gates;
  std::int64_t Hkv = 2;
  bool reverse = false;
  bool strong = false;  // decays, with -inf among them
};

std::vector<double> values(std::size_t count, std::mt19937& random, double least, double most) {
  std::uniform_real_distribution<double> uniform(least, most);
  std::vector<double> all(count);
  for (double& value : all) value = uniform(random);
  return all;
}

DoubleRecurrence inputs_of(const WalkCase& c, std::mt19937& random) {
  DoubleRecurrence in;
  in.cu_seqlens = {0, 0, 5, 5, 21, 22, 40, 40};
  in.T = in.cu_seqlens.back();
  in.H = 2;
  in.Hkv = c.Hkv;
  in.K = 3;
  in.V = 2;
  in.reverse = c.reverse;
  in.scale = 0.7;
  const auto size = [](std::int64_t a, std::int64_t b, std::int64_t d) {
    return static_cast<std::size_t>(a * b * d);
  };
  const auto gate = [&](std::size_t count) {
    std::vector<double> all = values(count, random, c.strong ? -30 : -0.2, 0);
    for (double& value : all) {
      if (c.strong && random() % 16 == 0) value = -std::numeric_limits<double>::infinity();
    }
    return all;
  };
  in.q = values(size(in.T, in.H, in.K), random, -1, 1);
  in.k = values(size(in.T, in.Hkv, in.K), random, -1, 1);
  in.v = values(size(in.T, in.Hkv, in.V), random, -1, 1);
  if (c.gates.g) in.g = gate(size(in.T, in.H, 1));
  if (c.gates.gk) in.gk = gate(size(in.T, in.H, in.K));
  if (c.gates.gv) in.gv = gate(size(in.T, in.H, in.V));
  if (c.gates.gamma) in.gamma = values(size(in.sequences(), in.H, 1), random, -0.3, 0);
  in.initial_state = values(size(in.sequences() * in.H, in.K, in.V), random, -1, 1);
  in.d_o = values(size(in.T, in.H, in.V), random, -1, 1);
  in.dfinal_state = values(size(in.sequences() * in.H, in.K, in.V), random, -1, 1);
  return in;
}

/// The rows [T, width] of the layout's tokens.
std::vector<double> rows_of(const std::vector<double>& all, std::int64_t width,
                            const SequenceLayout& layout) {
  std::vector<double> local;
  if (all.empty()) return local;
  for (const auto& fragment : layout.fragments()) {
    local.insert(local.end(), all.begin() + fragment.tokens.begin * width,
                 all.begin() + fragment.tokens.end * width);
  }
  return local;
}

/// The rank's tokens, each fragment a sequence that starts from zero.
DoubleRecurrence local_inputs(const DoubleRecurrence& in, const SequenceLayout& layout) {
  DoubleRecurrence local = in;
  const auto offsets = layout.local_cu_seqlens();
  local.cu_seqlens.assign(offsets.begin(), offsets.end());
  local.T = offsets.back();
  local.q = rows_of(in.q, in.H * in.K, layout);
  local.k = rows_of(in.k, in.Hkv * in.K, layout);
  local.v = rows_of(in.v, in.Hkv * in.V, layout);
  local.g = rows_of(in.g, in.H, layout);
  local.gk = rows_of(in.gk, in.H * in.K, layout);
  local.gv = rows_of(in.gv, in.H * in.V, layout);
  local.d_o = rows_of(in.d_o, in.H * in.V, layout);
  local.gamma.clear();
  local.initial_state.clear();
  local.dfinal_state.clear();
  for (const auto& fragment : layout.fragments()) {
    if (in.gamma.empty()) break;
    const auto begin = in.gamma.begin() + fragment.sequence * in.H;
    local.gamma.insert(local.gamma.end(), begin, begin + in.H);
  }
  return local;
}

/// exp of the sum of a fragment's log decays, [H, K, V].
std::vector<double> decay_of(const DoubleRecurrence& local, std::size_t fragment) {
  std::vector<double> decay;
  const auto n = static_cast<std::int64_t>(fragment);
  const auto at = [](const std::vector<double>& gate, std::int64_t i) {
    return gate.empty() ? 0.0 : gate[static_cast<std::size_t>(i)];
  };
  for (std::int64_t h = 0; h < local.H; ++h) {
    for (std::int64_t i = 0; i < local.K; ++i) {
      for (std::int64_t j = 0; j < local.V; ++j) {
        double sum = 0;
        for (std::int64_t t = local.cu_seqlens[fragment]; t < local.cu_seqlens[fragment + 1]; ++t) {
          const std::int64_t row = t * local.H + h;
          sum += at(local.g, row) + at(local.gamma, n * local.H + h) +
                 at(local.gk, row * local.K + i) + at(local.gv, row * local.V + j);
        }
        decay.push_back(std::exp(sum));
      }
    }
  }
  return decay;
}

/// The states that come to a rank's fragments: from `added`, what each fragment adds to one, and
/// the states that sequences start from, `starts`.
std::vector<double> folded_states(const DoubleRecurrence& local, const std::vector<double>& added,
                                  const std::vector<double>& starts, const SequenceLayout& layout,
                                  Direction direction, attune::distributed::Exchange& exchange) {
  const auto state = static_cast<std::size_t>(local.H * local.K * local.V);
  const auto slots = static_cast<std::size_t>(layout.slots(direction));
  const auto ranks = static_cast<std::size_t>(exchange.size());
  // Summaries: E and A, one after the other.
  std::vector<double> sent(2 * state * slots), all(2 * state * slots * ranks);
  for (std::size_t f = 0; f < layout.fragments().size(); ++f) {
    const int slot = layout.slot(f, direction);
    if (slot < 0) continue;
    const auto to = sent.begin() + slot * static_cast<std::ptrdiff_t>(2 * state);
    std::copy_n(added.begin() + static_cast<std::ptrdiff_t>(f * state), state, to);
    std::ranges::copy(decay_of(local, f), to + static_cast<std::ptrdiff_t>(state));
  }
  exchange.all_gather(sent.data(), all.data(), sent.size() * sizeof(double), nullptr);

  std::vector<double> states;
  for (std::size_t f = 0; f < layout.fragments().size(); ++f) {
    const auto n = static_cast<std::ptrdiff_t>(layout.fragments()[f].sequence);
    const auto start = starts.begin() + n * static_cast<std::ptrdiff_t>(state);
    std::vector<double> folded(start, start + static_cast<std::ptrdiff_t>(state));
    for (const std::int32_t slot : layout.fold(f, direction)) {
      const double* const summary = all.data() + 2 * state * static_cast<std::size_t>(slot);
      for (std::size_t i = 0; i < state; ++i) {
        folded[i] = summary[state + i] * folded[i] + summary[i];
      }
    }
    states.insert(states.end(), folded.begin(), folded.end());
  }
  return states;
}

struct WholeResults {
  DoubleOutputs outputs;
  DoubleGradients gradients;
};

/// One rank's results, in the places of the whole; gamma's are summed up.
void walk(const DoubleRecurrence& in, const SequenceLayout& layout,
          attune::distributed::Exchange& exchange, WholeResults& whole, std::mutex& writing) {
  const Direction along = in.reverse ? Direction::kBackward : Direction::kForward;
  const Direction against = in.reverse ? Direction::kForward : Direction::kBackward;
  DoubleRecurrence local = local_inputs(in, layout);
  // From states and gradients of zero.
  const std::vector<double> writes = run(local).final_state;
  const std::vector<double> reads = gradients(local).initial_state;
  local.initial_state = folded_states(local, writes, in.initial_state, layout, along, exchange);
  local.dfinal_state = folded_states(local, reads, in.dfinal_state, layout, against, exchange);
  const DoubleOutputs ours = run(local);
  const DoubleGradients our_gradients = gradients(local);

  const std::lock_guard lock(writing);
  const auto state = static_cast<std::ptrdiff_t>(in.H * in.K * in.V);
  for (std::size_t f = 0; f < layout.fragments().size(); ++f) {
    const auto& fragment = layout.fragments()[f];
    const auto put_rows = [&](const std::vector<double>& from, std::vector<double>& to,
                              std::int64_t width) {
      std::copy(from.begin() + layout.local_cu_seqlens()[f] * width,
                from.begin() + layout.local_cu_seqlens()[f + 1] * width,
                to.begin() + fragment.tokens.begin * width);
    };
    const auto put_state = [&](const std::vector<double>& from, std::vector<double>& to) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(f) * state, state,
                  to.begin() + state * static_cast<std::ptrdiff_t>(fragment.sequence));
    };
    DoubleGradients& to = whole.gradients;
    put_rows(ours.o, whole.outputs.o, in.H * in.V);
    put_rows(our_gradients.q, to.q, in.H * in.K);
    put_rows(our_gradients.k, to.k, in.Hkv * in.K);
    put_rows(our_gradients.v, to.v, in.Hkv * in.V);
    put_rows(our_gradients.g, to.g, in.H);
    put_rows(our_gradients.gk, to.gk, in.H * in.K);
    put_rows(our_gradients.gv, to.gv, in.H * in.V);
    for (std::int64_t h = 0; h < in.H; ++h) {
      to.gamma[static_cast<std::size_t>(fragment.sequence * in.H + h)] +=
          our_gradients.gamma[f * static_cast<std::size_t>(in.H) + static_cast<std::size_t>(h)];
    }
    const bool begins = in.reverse ? fragment.is_last : fragment.is_first;
    const bool ends = in.reverse ? fragment.is_first : fragment.is_last;
    if (begins) put_state(our_gradients.initial_state, to.initial_state);
    if (ends) put_state(ours.final_state, whole.outputs.final_state);
  }
}

double error_of(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, std::abs(got[i] - expected[i]));
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    scale = std::max(scale, std::abs(expected[i]));
  }
  return scale == 0 ? error : error / scale;
}

/// Worst error of outputs and gradients against one walk.
double error_of(const WalkCase& c, unsigned seed) {
  std::mt19937 random(seed);
  const DoubleRecurrence in = inputs_of(c, random);
  const TokenOwners owners = c.cut == 0   ? ops::distributed::even_ranges(in.T, c.ranks)
                             : c.cut == 1 ? ops::distributed::zig_zag_ranges(in.T, c.ranks)
                                          : random_ranges(in.T, c.ranks, random);
  const WholeResults expected{run(in), gradients(in)};
  WholeResults got = expected;
  const auto parts = [](auto& results) {
    auto& [q, k, v, g, gk, gv, gamma, initial_state] = results.gradients;
    return std::array{&results.outputs.o,
                      &results.outputs.final_state,
                      &q,
                      &k,
                      &v,
                      &g,
                      &gk,
                      &gv,
                      &initial_state,
                      &gamma};
  };
  for (auto* part : parts(got)) std::ranges::fill(*part, std::nan(""));
  std::ranges::fill(got.gradients.gamma, 0.0);
  std::mutex writing;
  const auto layouts = layouts_of(in.cu_seqlens, owners);
  auto exchanges = attune::distributed::ThreadExchange::make(c.ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < exchanges.size(); ++rank) {
      threads.emplace_back([&, rank] { walk(in, layouts[rank], *exchanges[rank], got, writing); });
    }
  }
  double worst = 0;
  const auto ours = parts(got);
  const auto theirs = parts(expected);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    worst = std::max(worst, error_of(*ours[i], *theirs[i]));
  }
  return worst;
}

TEST(DoubleGradients, AreTheDifferences) {
  std::mt19937 random(1);
  const DoubleRecurrence in = inputs_of({.gates = {true, true, true, true}, .Hkv = 1}, random);
  const DoubleGradients got = gradients(in);
  EXPECT_LE(error_of(got.q, finite_differences(in, &DoubleRecurrence::q)), 1e-8);
  EXPECT_LE(error_of(got.k, finite_differences(in, &DoubleRecurrence::k)), 1e-8);
  EXPECT_LE(error_of(got.v, finite_differences(in, &DoubleRecurrence::v)), 1e-8);
  EXPECT_LE(error_of(got.g, finite_differences(in, &DoubleRecurrence::g)), 1e-8);
  EXPECT_LE(error_of(got.gk, finite_differences(in, &DoubleRecurrence::gk)), 1e-8);
  EXPECT_LE(error_of(got.gv, finite_differences(in, &DoubleRecurrence::gv)), 1e-8);
  EXPECT_LE(error_of(got.gamma, finite_differences(in, &DoubleRecurrence::gamma)), 1e-8);
  EXPECT_LE(error_of(got.initial_state, finite_differences(in, &DoubleRecurrence::initial_state)),
            1e-8);
}

TEST(SequenceLayout, WhatIsFoldedFromSummariesIsOneWalkBothWays) {
  constexpr Gates kGates[] = {{},           {.g = true},  {.gamma = true},
                              {.gk = true}, {.gv = true}, {true, true, true, true}};
  int cases = 0;
  double worst = 0;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int cut : {0, 1, 2}) {
      for (const Gates& gates : kGates) {
        for (const std::int64_t kv_heads : {2, 1}) {
          for (const bool reverse : {false, true}) {
            for (const bool strong : {false, true}) {
              const WalkCase c{ranks, cut, gates, kv_heads, reverse, strong};
              const double error = error_of(c, static_cast<unsigned>(cases));
              EXPECT_LE(error, 1e-12) << "case " << cases << ": " << ranks << " ranks, cut " << cut;
              worst = std::max(worst, error);
              ++cases;
            }
          }
        }
      }
    }
  }
  RecordProperty("cases", cases);
  RecordProperty("worst", str(worst));
  EXPECT_EQ(cases, 720);
}

}  // namespace
}  // namespace attune::test
