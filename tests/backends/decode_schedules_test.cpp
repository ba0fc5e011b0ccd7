// Speculative decoding on a pool of states, in the three ways to have the state behind accepted
// tokens: whatever is accepted, a sequence's outputs are those of one recurrence over it, padding
// rows are zero, and slots that nobody names keep their bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "support/campaign.hpp"
#include "support/each_platform.hpp"

namespace attune::test {
namespace {

constexpr std::int64_t kRows = 3, kHeads = 4, kKvHeads = 2, kKeys = 20, kValues = 36;
constexpr std::int64_t kLength = 40;     // tokens of a sequence
constexpr std::int64_t kMostTokens = 6;  // of a step
constexpr std::int64_t kSlots = 25;      // more than all rows keep
constexpr std::byte kPoison{0xff};       // NaN of any type

enum class Way { kPlain, kKept, kReplay };
enum Part { kQ, kK, kV, kG, kGk, kParts };
using Parts = std::array<Tensor, kParts>;

Parts random_parts(RandomTensors& random, std::int64_t tokens) {
  return {random({kRows, tokens, kHeads, kKeys}), random({kRows, tokens, kKvHeads, kKeys}),
          random({kRows, tokens, kKvHeads, kValues}), random.log_decays({kRows, tokens, kHeads}),
          random.log_decays({kRows, tokens, kHeads, kKeys})};
}

/// Values of one token.
std::span<float> token_of(Tensor& tensor, std::int64_t row, std::int64_t token) {
  const auto each = static_cast<std::size_t>(element_count(tensor.shape()) / tensor.shape()[0] /
                                             tensor.shape()[1]);
  const auto at = static_cast<std::size_t>(row * tensor.shape()[1] + token);
  return tensor.values<float>().subspan(at * each, each);
}

void copy_token(Parts& from, std::int64_t row, std::int64_t token, Parts& to,
                std::int64_t to_token) {
  for (std::size_t part = 0; part < kParts; ++part) {
    std::ranges::copy(token_of(from[part], row, token), token_of(to[part], row, to_token).begin());
  }
}

/// Sequences that advance by drafted tokens, some of which are accepted.
class Schedule {
 public:
  Schedule(std::uint64_t seed, Way way, DType stored, const ops::CallOptions& call)
      : way_(way),
        call_(call),
        random_(seed),
        tensors_(seed),
        sequences_(random_parts(tensors_, kLength)),
        committed_(random_parts(tensors_, kMostTokens)),
        pool_(stored, {kSlots, kHeads, kKeys, kValues}),
        expected_(ops::recurrent_attention(
                      sequences_[kQ], sequences_[kK], sequences_[kV],
                      {.g = sequences_[kG],
                       .gk = sequences_[kGk],
                       .call = {.platform = "reference", .context = &heuristic_context()}})
                      .o) {
    cpu_device().fill(pool_.view().data, kPoison, pool_.bytes(), nullptr);
    std::iota(slots_.begin(), slots_.end(), 0);
    std::shuffle(slots_.begin(), slots_.end(), random_);
    for (std::int64_t row = 0; row < kRows; ++row) {
      std::ranges::fill(slot_bytes(slot(row, 0)), std::byte{0});
    }
  }

  void run() {
    while (std::ranges::any_of(position_, [](std::int64_t at) { return at < kLength; })) step();
  }

  void expect_untouched() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const bool is_of_a_row = i < kRows * kMostTokens;
      if (is_of_a_row && (way_ == Way::kKept || i % kMostTokens == 0)) continue;
      for (const std::byte value : slot_bytes(slots_[i])) {
        ASSERT_EQ(value, kPoison) << "slot " << slots_[i];
      }
    }
  }

 private:
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }
  std::int64_t slot(std::int64_t row, std::int64_t token) const {
    return slots_[static_cast<std::size_t>(row * kMostTokens + token)];
  }
  std::span<std::byte> slot_bytes(std::int64_t slot) {
    const std::size_t each = pool_.bytes() / kSlots;
    auto* const first = static_cast<std::byte*>(pool_.view().data);
    return {first + static_cast<std::size_t>(slot) * each, each};
  }

  /// What rounding a state once a step leaves of a sequence.
  double tolerance() const {
    if (pool_.dtype() == DType::kF32) return kTolerance;
    return pool_.dtype() == DType::kF16 ? 5e-3 : 4e-2;
  }

  /// How many of a row's next tokens the model will turn out to accept; 0: the row sits out.
  std::int64_t accepted_next(std::int64_t row, std::int64_t tokens) {
    const std::int64_t left = kLength - position_[static_cast<std::size_t>(row)];
    if (left == 0 || below(5) == 0) return 0;
    if (way_ == Way::kPlain) return left >= tokens ? tokens : 0;
    return 1 + below(std::min(left, tokens));
  }

  void step() {
    std::int64_t tokens = way_ == Way::kKept ? kMostTokens : 1 + below(kMostTokens);
    if (way_ == Way::kPlain) {
      for (const std::int64_t at : position_) {
        if (at < kLength) tokens = std::min(tokens, kLength - at);
      }
    }
    std::array<std::int64_t, kRows> accepted{};
    Parts now = random_parts(tensors_, tokens);  // what is not accepted is anything
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      accepted[r] = accepted_next(row, tokens);
      for (std::int64_t t = 0; t < accepted[r]; ++t) {
        copy_token(sequences_, row, position_[r] + t, now, t);
      }
    }
    Tensor o = launch(now, tokens, accepted);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      if (accepted[r] == 0) {
        for (const float value : token_of(o, row, tokens - 1)) ASSERT_EQ(value, 0.0F);
        continue;
      }
      for (std::int64_t t = 0; t < accepted[r]; ++t) expect_token(o, row, t);
      for (std::int64_t t = 0; t < tokens; ++t) copy_token(now, row, t, committed_, t);
      position_[r] += accepted[r];
      accepted_[r] = accepted[r];
    }
  }

  Tensor launch(Parts& now, std::int64_t tokens, const std::array<std::int64_t, kRows>& next) {
    ops::RecurrentDecodeOptions options{.g = now[kG], .gk = now[kGk], .call = call_};
    std::vector<std::int64_t> named, last(accepted_.begin(), accepted_.end());
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const std::int64_t of_row = way_ == Way::kKept ? tokens : 1;
      for (std::int64_t t = 0; t < of_row; ++t) {
        named.push_back(way_ == Way::kKept || next[r] != 0 ? slot(row, t) : -1);
      }
      if (way_ == Way::kKept && next[r] == 0) last[r] = -1;
      if (way_ == Way::kKept && last[r] == 0) last[r] = 1;  // a first step
    }
    const Tensor slots = Tensor::of(named, {static_cast<std::int64_t>(named.size())});
    const Tensor counts = Tensor::of(last, {kRows});
    if (way_ == Way::kKept) {
      options.kept_slots = ConstTensorView(named.data(), {kRows, tokens});
      options.accepted = counts;
    } else {
      options.slot_indices = slots;
    }
    if (way_ == Way::kReplay) {
      options.committed = ops::CommittedTokens{.k = committed_[kK],
                                               .v = committed_[kV],
                                               .g = committed_[kG],
                                               .gk = committed_[kGk],
                                               .accepted = counts};
    }
    return ops::recurrent_decode(now[kQ], now[kK], now[kV], pool_, options);
  }

  void expect_token(Tensor& o, std::int64_t row, std::int64_t token) {
    const auto actual = token_of(o, row, token);
    const auto exact = token_of(expected_, row, position_[static_cast<std::size_t>(row)] + token);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      error += std::pow(double{actual[i]} - double{exact[i]}, 2);
      norm += std::pow(double{exact[i]}, 2);
    }
    ASSERT_LE(std::sqrt(error / norm), tolerance()) << "row " << row << ", token " << token;
  }

  Way way_;
  ops::CallOptions call_;
  std::mt19937_64 random_;
  RandomTensors tensors_;
  Parts sequences_, committed_;
  Tensor pool_, expected_;
  std::array<std::int64_t, kSlots> slots_{};
  std::array<std::int64_t, kRows> position_{}, accepted_{};
};

class DecodeSchedules : public EachPlatform {
 protected:
  void expect_one_recurrence(Way way) {
    for (int seed = 0; seed < campaign_length(9, 200) && !HasFatalFailure(); ++seed) {
      SCOPED_TRACE(seed);
      constexpr DType kStored[] = {DType::kF32, DType::kF16, DType::kBF16};
      Schedule schedule(static_cast<std::uint64_t>(seed), way, kStored[seed % 3], call());
      schedule.run();
      schedule.expect_untouched();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Platforms, DecodeSchedules, testing::Values("reference", "simd"),
                         platform_name);

TEST_P(DecodeSchedules, StepsOfSeveralTokensAreOneRecurrence) {
  expect_one_recurrence(Way::kPlain);
}

TEST_P(DecodeSchedules, KeptStatesBehindAcceptedDraftsAreOneRecurrence) {
  expect_one_recurrence(Way::kKept);
}

TEST_P(DecodeSchedules, ReplayedAcceptedDraftsAreOneRecurrence) {
  expect_one_recurrence(Way::kReplay);
}

/// A pool in 16 bits between steps: what is stored, and that nothing else is.
class DecodePools : public EachPlatform {
 protected:
  static constexpr std::int64_t kTokens = 4;

  struct Inputs {
    explicit Inputs(std::uint64_t seed) : random(seed) {}
    RandomTensors random;
    Tensor q = random({kRows, kTokens, kHeads, kKeys});
    Tensor k = random({kRows, kTokens, kKvHeads, kKeys});
    Tensor v = random({kRows, kTokens, kKvHeads, kValues});
    std::vector<std::int32_t> slots{4, -1, 2};
  };

  Tensor run(const Inputs& in, const TensorView& pool, const StateRounding& rounding = {},
             std::string_view config = {}) const {
    ops::RecurrentDecodeOptions options{.slot_indices = ConstTensorView(in.slots.data(), {kRows}),
                                        .state_rounding = rounding,
                                        .call = call()};
    options.call.config = config;
    return ops::recurrent_decode(in.q, in.k, in.v, pool, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Platforms, DecodePools, testing::Values("reference", "simd"),
                         platform_name);

TEST_P(DecodePools, AreRoundedOnceACall) {
  const Inputs in(1);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    RandomTensors random(2);
    Tensor stored = random({6, kHeads, kKeys, kValues}, dtype);
    const Tensor before = copy_of(stored.view());
    Tensor wide = Tensor::of(
        [&] {
          std::vector<float> values;
          for (const double value : to_doubles(stored.view())) {
            values.push_back(static_cast<float>(value));
          }
          return values;
        }(),
        stored.shape());
    const Tensor o = run(in, stored), o_of_f32 = run(in, wide);
    expect_near(o, o_of_f32);
    const auto half = to_doubles(stored.view()), exact = to_doubles(wide.view());
    const double step = dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;  // half an ulp, relative
    for (std::size_t i = 0; i < half.size(); ++i) {
      ASSERT_NEAR(half[i], exact[i], std::abs(exact[i]) * step * 1.001 + 1e-6) << i;
    }
    for (const std::int64_t slot : {0, 1, 3, 5}) {
      expect_equal(stored.view().slice(0, slot, slot + 1), before.view().slice(0, slot, slot + 1));
    }
  }
}

TEST_P(DecodePools, AreRoundedStochasticallyBySeedAndPositionAlone) {
  const Inputs in(3);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto stored_by = [&](const StateRounding& rounding, bool transposed,
                               std::string_view config = {}) {
      RandomTensors random(4);
      Tensor dense = random({6, kHeads, kKeys, kValues}, dtype);
      Tensor by_column(dtype, {6, kHeads, kValues, kKeys});
      const TensorView view = by_column.view().permute({0, 1, 3, 2});
      if (!transposed) {
        run(in, dense, rounding, config);
        return to_doubles(dense.view());
      }
      const auto* const from = static_cast<const std::uint16_t*>(dense.view().data);
      auto* const to = static_cast<std::uint16_t*>(view.data);
      for (std::int64_t head = 0; head < 6 * kHeads; ++head) {
        for (std::int64_t i = 0; i < kKeys; ++i) {
          for (std::int64_t j = 0; j < kValues; ++j) {
            to[(head * kValues + j) * kKeys + i] = from[(head * kKeys + i) * kValues + j];
          }
        }
      }
      run(in, view, rounding, config);
      return to_doubles(view);
    };
    const auto once = stored_by(stochastic(9), false);
    EXPECT_EQ(stored_by(stochastic(9), false), once);
    EXPECT_EQ(stored_by(stochastic(9), true), once) << "in another layout";
    EXPECT_NE(stored_by(stochastic(10), false), once);
    EXPECT_NE(stored_by({}, false), once);
    if (std::string_view(GetParam()) != "simd") continue;
    for (const char* const config : {"tile_v=32,threads=2", "tile_v=64,threads=1"}) {
      EXPECT_EQ(stored_by(stochastic(9), false, config), once) << config;
    }
  }
}

}  // namespace
}  // namespace attune::test
