// What conformance does not reach of forward kernels with a decay for every channel: long sequences
// in segments, every strength of decay, resets, all combinations of gates.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionOptions;
using ops::RecurrentAttentionResult;

constexpr double kTolerance = 5e-3;
constexpr double kF32Tolerance = 2e-5;
constexpr const char *kChunkGla = "cuda.chunk_gla";
constexpr const char *kWarpMma = "cuda.warp_mma";
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sizes {
  std::int64_t tokens;
  std::int64_t keys;
  std::int64_t values;
  DType dtype = DType::kBF16;
  std::int64_t heads = 2;
};

struct Gated {
  explicit Gated(const Sizes &s)
      : q(random({1, s.tokens, s.heads, s.keys}, s.dtype)),
        k(random({1, s.tokens, s.heads, s.keys}, s.dtype)),
        v(random({1, s.tokens, s.heads, s.values}, s.dtype)),
        g(random.log_decays({1, s.tokens, s.heads})),
        gk(random.log_decays({1, s.tokens, s.heads, s.keys})),
        gv(random.log_decays({1, s.tokens, s.heads, s.values})),
        g_gamma(random.log_decays({s.heads})),
        initial_state(random({1, s.heads, s.keys, s.values})) {}

  /// Calls change(gate) for all elements of gk and gv.
  template <class Change>
  void change_gates(Change &&change) {
    for (float &gate : gk.values<float>()) gate = change(gate);
    for (float &gate : gv.values<float>()) gate = change(gate);
  }
  bool is_narrow() const { return q.shape()[3] <= 32 && v.shape()[3] <= 32; }

  /// Makes its tokens those of several sequences.
  void pack(const std::vector<std::int64_t> &bounds) {
    const auto sequences = static_cast<std::int64_t>(bounds.size()) - 1;
    cu_seqlens = Tensor::of(bounds, {sequences + 1});
    initial_state = random({sequences, q.shape()[2], q.shape()[3], v.shape()[3]});
  }

  RandomTensors random{1};
  Tensor q, k, v, g, gk, gv, g_gamma, initial_state;
  std::optional<Tensor> cu_seqlens;
  bool reverse = false;
};

struct GatedCase {
  std::string gates;  // letters g, m (gamma), k and v
  bool f32 = false;   // in place of a test's 16-bit type

  friend std::ostream &operator<<(std::ostream &out, const GatedCase &c) {
    return out << c.gates << (c.f32 ? "_f32" : "");
  }
};

class GatedForward : public testing::TestWithParam<GatedCase> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
    if (!gpu_->info().has("sm_80")) GTEST_SKIP() << "needs sm_80";
  }

  static bool has(char gate) { return GetParam().gates.find(gate) != std::string::npos; }
  static DType type_or(DType usual) { return GetParam().f32 ? DType::kF32 : usual; }
  static double tolerance() { return GetParam().f32 ? kF32Tolerance : kTolerance; }

  /// Those that take the gates on this GPU.
  std::vector<std::string> kernels() const {
    std::vector<std::string> names{kWarpMma};
    if (!has('k') && !has('v')) return names;
    names.emplace_back(GetParam().f32 ? "cuda.chunk_mma" : "cuda.gla_mma");
    if (GetParam().f32) return names;
    if (has('k') != has('v') && gpu_->info().has("sm_90a")) names.emplace_back("cuda.gla_wgmma");
    if (has('k') && !has('v') && gpu_->info().has("sm_90a")) names.emplace_back(kChunkGla);
    return names;
  }
  /// What a call names to have a kernel with a config, or none: cuda.chunk_gla takes f16 with many keys,
  /// and cuts nothing so short into segments; cuda.warp_mma takes narrow heads, and has segments by their
  /// tokens.
  static std::optional<std::string> chosen(const std::string &kernel, const std::string &config,
                                           const Gated &inputs) {
    const bool is_whole = config.empty() || config == ",segments=1";
    if (kernel == kWarpMma) {
      if (!inputs.is_narrow()) return std::nullopt;
      return "kernel=" + kernel +
             (config.empty() ? ""
              : is_whole     ? ",segment=0"
                             : ",segment=" + tokens_of(config));
    }
    if (kernel != kChunkGla) return "kernel=" + kernel + config;
    const bool takes = inputs.k.dtype() == DType::kBF16 || inputs.k.shape()[3] > 128;
    if (!takes || !is_whole) return std::nullopt;
    return "kernel=" + kernel;
  }
  static std::string tokens_of(const std::string &segments) {
    return segments == ",segments=2" || segments == ",segments=4" ? "256" : "64";
  }

  /// Holds the kernels against the oracle; the final state is written in place of the initial one.
  void expect_near_oracle(const Gated &inputs, const std::string &config) const {
    expect_near_oracle(inputs, config, tolerance());
  }
  void expect_near_oracle(const Gated &inputs, const std::string &config, double tolerance) const {
    expect_near_oracle(inputs, config, tolerance, kernels());
  }
  void expect_near_oracle(const Gated &inputs, const std::string &config, double tolerance,
                          const std::vector<std::string> &kernels) const {
    RecurrentAttentionOptions options{
        .initial_state = inputs.initial_state, .reverse = inputs.reverse, .want_final_state = true};
    options.call = {.platform = "reference", .context = &heuristic_context()};
    if (has('g')) options.g = inputs.g;
    if (has('m')) options.g_gamma = inputs.g_gamma;
    if (has('k')) options.gk = inputs.gk;
    if (has('v')) options.gv = inputs.gv;
    if (inputs.cu_seqlens) options.cu_seqlens = *inputs.cu_seqlens;
    const RecurrentAttentionResult expected =
        ops::recurrent_attention(inputs.q, inputs.k, inputs.v, options);
    for (const std::string &kernel : kernels) {
      SCOPED_TRACE(kernel + config);
      const std::optional<std::string> on_gpu = chosen(kernel, config, inputs);
      if (!on_gpu) continue;
      options.call = {.platform = "cuda", .config = *on_gpu, .context = &heuristic_context()};
      const Outputs actual = run(inputs, options);
      EXPECT_LE(error_of(actual.o, expected.o), tolerance);
      EXPECT_LE(error_of(actual.state, *expected.final_state), tolerance);
    }
  }

  struct Outputs {
    Tensor o, state;
  };
  Outputs run(const Gated &inputs, RecurrentAttentionOptions options) const {
    const Tensor q = upload(inputs.q, *gpu_);
    const Tensor k = upload(inputs.k, *gpu_);
    const Tensor v = upload(inputs.v, *gpu_);
    const Tensor g = upload(inputs.g, *gpu_);
    const Tensor g_gamma = upload(inputs.g_gamma, *gpu_);
    const Tensor gk = upload(inputs.gk, *gpu_);
    const Tensor gv = upload(inputs.gv, *gpu_);
    Tensor state = upload(inputs.initial_state, *gpu_);
    Tensor o(inputs.v.dtype(), inputs.v.shape(), *gpu_);
    if (has('g')) options.g = g;
    if (has('m')) options.g_gamma = g_gamma;
    if (has('k')) options.gk = gk;
    if (has('v')) options.gv = gv;
    std::optional<Tensor> cu_seqlens;
    if (inputs.cu_seqlens)
      options.cu_seqlens = cu_seqlens.emplace(upload(*inputs.cu_seqlens, *gpu_));
    options.initial_state = state;
    options.want_final_state = false;
    ops::recurrent_attention_into({.o = o, .final_state = state}, q, k, v, options);
    return {to_host(o, *gpu_), to_host(state, *gpu_)};
  }

  double error_of(const Tensor &actual, const Tensor &expected) const {
    return relative_rms_error(to_doubles(actual), to_doubles(expected));
  }

  const Device *gpu_ = find_gpu();
};
INSTANTIATE_TEST_SUITE_P(Gates, GatedForward,
                         testing::Values(GatedCase{"k"}, GatedCase{"v"}, GatedCase{"kv"},
                                         GatedCase{"gk"}, GatedCase{"gmv"}, GatedCase{"gmkv"},
                                         GatedCase{"k", true}, GatedCase{"gmk", true},
                                         GatedCase{"v", true}, GatedCase{"kv", true},
                                         GatedCase{"gmv", true}, GatedCase{"gmkv", true},
                                         GatedCase{"g"}, GatedCase{"gm", true}),
                         [](const auto &test) { return str(test.param); });

TEST_P(GatedForward, WalksLongSequencesInSegmentsAndInPlace) {
  for (const bool reverse : {false, true}) {
    for (Sizes sizes : {Sizes{2000, 96, 72}, Sizes{2000, 32, 24}, Sizes{2000, 8, 16}}) {
      SCOPED_TRACE(str("K=", sizes.keys, reverse ? " reverse" : ""));
      sizes.dtype = type_or(DType::kBF16);
      Gated inputs(sizes);
      inputs.change_gates([](float gate) { return gate / 16; });  // segments see one another
      for (float &gate : inputs.g.values<float>()) gate /= 16;
      inputs.reverse = reverse;
      for (const char *const segments : {"1", "4", "16"}) {
        expect_near_oracle(inputs, str(",segments=", segments));
      }
    }
  }
}

/// One has most of the tokens, another none.
TEST_P(GatedForward, CutsPackedSequencesByTheirLengths) {
  for (const bool reverse : {false, true}) {
    for (Sizes sizes : {Sizes{2600, 96, 72}, Sizes{2600, 16, 32}, Sizes{2600, 16, 16}}) {
      SCOPED_TRACE(str("K=", sizes.keys, " V=", sizes.values, reverse ? " reverse" : ""));
      sizes.dtype = type_or(DType::kBF16);
      Gated inputs(sizes);
      inputs.change_gates([](float gate) { return gate / 16; });  // segments see one another
      for (float &gate : inputs.g.values<float>()) gate /= 16;
      inputs.pack({0, 40, 40, 1900, 1901, 2600});
      inputs.reverse = reverse;
      for (const char *const segments : {"1", "2", "3"}) {
        expect_near_oracle(inputs, str(",segments=", segments));
      }
    }
  }
}

/// The same values, one behind the other, in another shape.
Tensor with_shape(const Tensor &from, const Extents &shape) {
  Tensor to(from.dtype(), shape);
  std::memcpy(to.view().data, from.view().data, from.bytes());
  return to;
}

TEST_P(GatedForward, PackedSequencesOfOneLengthAreABatchToTheBit) {
  constexpr std::int64_t kSequences = 4;
  for (const std::int64_t tokens : {600, 1024}) {
    const DType dtype = type_or(DType::kBF16);
    Gated packed(
        {.tokens = kSequences * tokens, .keys = 32, .values = 64, .dtype = dtype, .heads = 4});
    packed.change_gates([](float gate) { return gate / 16; });  // segments see one another
    for (float &gate : packed.g.values<float>()) gate /= 16;
    packed.pack({0, tokens, 2 * tokens, 3 * tokens, 4 * tokens});
    Gated batch({.tokens = 1, .keys = 32, .values = 64, .dtype = dtype, .heads = 4});
    const auto of_batch = [&](const Tensor &from) {
      Extents shape = from.shape();
      shape[0] = kSequences;
      shape[1] = tokens;
      return with_shape(from, shape);
    };
    batch.q = of_batch(packed.q), batch.k = of_batch(packed.k), batch.v = of_batch(packed.v);
    batch.g = of_batch(packed.g), batch.gk = of_batch(packed.gk), batch.gv = of_batch(packed.gv);
    batch.g_gamma = with_shape(packed.g_gamma, packed.g_gamma.shape());
    batch.initial_state = with_shape(packed.initial_state, packed.initial_state.shape());
    for (const std::string &kernel : kernels()) {
      for (const char *const config : {"", ",segments=1", ",segments=3", ",segments=6"}) {
        SCOPED_TRACE(str(kernel, config, " T=", tokens));
        const std::optional<std::string> on_gpu = chosen(kernel, config, packed);
        if (!on_gpu) continue;
        RecurrentAttentionOptions options;
        options.call = {.platform = "cuda", .config = *on_gpu, .context = &heuristic_context()};
        const Outputs expected = run(batch, options);
        const Outputs actual = run(packed, options);
        EXPECT_EQ(to_doubles(actual.o), to_doubles(expected.o));
        EXPECT_EQ(to_doubles(actual.state), to_doubles(expected.state));
      }
    }
  }
}

TEST_P(GatedForward, TakesStatesOfAllSizes) {
  for (Sizes sizes : {Sizes{300, 64, 64, DType::kF16}, Sizes{300, 64, 192, DType::kBF16},
                      Sizes{300, 192, 96, DType::kF16}, Sizes{300, 256, 256, DType::kBF16},
                      Sizes{300, 8, 264, DType::kF16}, Sizes{300, 500, 60, DType::kF16}}) {
    if (!GetParam().f32 && sizes.keys % 8 != 0) continue;
    SCOPED_TRACE(str("K=", sizes.keys, " V=", sizes.values));
    const bool reverse = sizes.dtype == DType::kF16;
    sizes.dtype = type_or(sizes.dtype);
    Gated inputs(sizes);
    inputs.reverse = reverse;
    expect_near_oracle(inputs, ",segments=1");
    expect_near_oracle(inputs, ",segments=2");
  }
}

TEST_P(GatedForward, IsExactForEveryStrengthOfDecay) {
  for (const float decay :
       {-0.001F, -0.5F, -3.0F, -5.0F, -8.0F, -20.0F, -100.0F, -1e30F, -kInfinity}) {
    for (const bool reverse : {false, true}) {
      for (const std::int64_t channels : {128, 32, 16}) {
        SCOPED_TRACE(str(decay, " D=", channels, reverse ? " reverse" : ""));
        Gated inputs(
            {.tokens = 300, .keys = channels, .values = channels, .dtype = type_or(DType::kBF16)});
        inputs.reverse = reverse;
        inputs.change_gates([&](float) { return decay; });
        if (!has('k') && !has('v')) {
          for (float &gate : inputs.g.values<float>()) gate = decay;
        }
        expect_near_oracle(inputs, ",segments=1");
        if (inputs.is_narrow()) expect_near_oracle(inputs, ",segments=3");
      }
    }
  }
}

/// Blocks of 128 value channels whatever the keys, which only cuda.gla_wgmma has; slices of 192 keys
/// where these decay.
TEST_P(GatedForward, WideBlocksAreExactForEveryStrengthOfDecay) {
  if (GetParam().f32 || has('k') == has('v') || !gpu_->info().has("sm_90a")) {
    GTEST_SKIP() << "no kernel has such blocks";
  }
  const std::int64_t widest = has('v') ? 256 : 384;
  for (const float decay : {-0.001F, -0.5F, -3.0F, -8.0F, -100.0F, -kInfinity}) {
    for (const Sizes &sizes :
         {Sizes{300, 136, 200, DType::kBF16}, Sizes{300, widest, 128, DType::kBF16},
          Sizes{170, 192, 128, DType::kF16}, Sizes{170, widest, 72, DType::kF16}}) {
      SCOPED_TRACE(str("K=", sizes.keys, " V=", sizes.values, " ", decay));
      Gated inputs(sizes);
      inputs.reverse = sizes.dtype == DType::kF16;
      std::size_t at = 0;
      inputs.change_gates([&](float gate) { return ++at % 7 == 0 ? gate / 16 : decay; });
      for (const char *const segments : {"1", "3"}) {
        expect_near_oracle(inputs, str(",values=128,stages=3,segments=", segments), tolerance(),
                           {"cuda.gla_wgmma"});
      }
    }
  }
}

/// Channels that forget beside those that keep all, tokens too.
TEST_P(GatedForward, IsExactWhereStrengthsMix) {
  constexpr float kStrengths[] = {0.0F,  -0.001F, -0.01F, -0.2F,     -1.0F,
                                  -4.5F, -12.0F,  -90.0F, -kInfinity};
  std::mt19937_64 random(7);
  for (const std::int64_t channels : {16, 32, 64, 128, 256}) {
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(str("D=", channels, reverse ? " reverse" : ""));
      Gated inputs(
          {.tokens = 700, .keys = channels, .values = channels, .dtype = type_or(DType::kF16)});
      inputs.reverse = reverse;
      inputs.change_gates([&](float) {
        return kStrengths[random() % 4 + (random() % 64 == 0 ? random() % 6 : 0)];
      });
      if (!has('k') && !has('v')) {
        for (float &gate : inputs.g.values<float>()) {
          gate = kStrengths[random() % 4 + (random() % 8 == 0 ? random() % 6 : 0)];
        }
      }
      expect_near_oracle(inputs, ",segments=1");
      expect_near_oracle(inputs, ",segments=4");
    }
  }
}

TEST_P(GatedForward, WhatFollowsAResetKeepsItsPrecision) {
  for (const std::int64_t channels : {64, 32}) {
    SCOPED_TRACE(str("D=", channels));
    Gated inputs(
        {.tokens = 1000, .keys = channels, .values = channels, .dtype = type_or(DType::kBF16)});
    std::size_t at = 0;
    inputs.change_gates([&](float gate) {
      ++at;
      return at % 97 == 5 || at / 4096 % 5 == 1 ? -kInfinity : gate;
    });
    expect_near_oracle(inputs, ",segments=1");
    expect_near_oracle(inputs, ",segments=8");
  }
}

TEST_P(GatedForward, ManyTokensLoseNothing) {
  for (const std::int64_t channels : {64, 32, 16}) {
    SCOPED_TRACE(str("D=", channels));
    Gated inputs({.tokens = 65536,
                  .keys = channels,
                  .values = channels,
                  .dtype = type_or(DType::kBF16),
                  .heads = 1});
    inputs.change_gates([](float gate) { return gate / 256; });
    for (float &gate : inputs.g.values<float>()) gate /= 256;
    for (float &gate : inputs.g_gamma.values<float>()) gate /= 256;
    expect_near_oracle(inputs, "");
    if (inputs.is_narrow()) expect_near_oracle(inputs, ",segments=1");
  }
}

/// Operands are f16, too, where keys alone decay and are few.
TEST_P(GatedForward, OfF16IsAsPreciseAsF16) {
  if (has('v') || GetParam().f32) GTEST_SKIP() << "operands are not f16";
  constexpr double kRoundings = 8e-4;  // one of f16 is 2.1e-4
  for (const std::int64_t channels : {32, 64, 128}) {
    SCOPED_TRACE(str("D=", channels));
    Gated inputs({.tokens = 700, .keys = channels, .values = channels, .dtype = DType::kF16});
    inputs.change_gates([](float gate) { return gate / 4; });
    for (float &gate : inputs.g.values<float>()) gate /= 4;
    expect_near_oracle(inputs, ",segments=1", kRoundings);
    expect_near_oracle(inputs, ",segments=3", kRoundings);
  }
}

/// States, keys and their products that are beyond f16, of which the outputs are not.
TEST_P(GatedForward, OfF16TakesWhatOperandsOfF16CannotHold) {
  if (GetParam().f32) GTEST_SKIP() << "operands are not f16";
  struct Deviations {
    double q, k, v;
  };
  for (const auto &[q, k, v] : {Deviations{1e-3, 3000, 300}, Deviations{10, 1, 300},
                                Deviations{0.1, 0.1, 1e4}, Deviations{300, 3e-3, 1e-3}}) {
    for (const float strength : {0.25F, 3.0F, 10.0F}) {
      for (const std::int64_t channels : {32, 64, 128, 192}) {
        SCOPED_TRACE(str(q, " ", k, " ", v, " times ", strength, " D=", channels));
        const std::int64_t values = channels > 32 ? 72 : 24;
        Gated inputs({.tokens = 200, .keys = channels, .values = values, .dtype = DType::kF16});
        inputs.q = inputs.random(inputs.q.shape(), DType::kF16, 0, q);
        inputs.k = inputs.random(inputs.k.shape(), DType::kF16, 0, k);
        inputs.v = inputs.random(inputs.v.shape(), DType::kF16, 0, v);
        inputs.change_gates([&](float gate) { return strength * gate; });
        expect_near_oracle(inputs, channels > 128 ? "" : ",segments=2");
      }
    }
  }
}

/// Scores that are beyond f16 may be off, but nothing becomes infinite.
TEST_P(GatedForward, OfF16StaysFiniteWhereScoresAreBeyondF16) {
  if (GetParam().f32) GTEST_SKIP() << "scores are not f16";
  for (const float strength : {0.25F, 3.0F, 100.0F}) {
    SCOPED_TRACE(strength);
    Gated inputs({.tokens = 300, .keys = 128, .values = 64, .dtype = DType::kF16});
    inputs.q = inputs.random(inputs.q.shape(), DType::kF16, 0, 1000);
    inputs.k = inputs.random(inputs.k.shape(), DType::kF16, 0, 1000);
    inputs.v = inputs.random(inputs.v.shape(), DType::kF16, 0, 1e-3);
    inputs.change_gates([&](float gate) { return strength * gate; });
    for (const std::string &kernel : kernels()) {
      SCOPED_TRACE(kernel);
      const std::optional<std::string> on_gpu = chosen(kernel, "", inputs);
      if (!on_gpu) continue;
      RecurrentAttentionOptions options;
      options.call = {.platform = "cuda", .config = *on_gpu, .context = &heuristic_context()};
      for (const double o : to_doubles(run(inputs, options).o)) ASSERT_TRUE(std::isfinite(o));
    }
  }
}

}  // namespace
}  // namespace attune::test
