// What a pool of states in 16 bits costs in accuracy.
//
//   16,384 steps of recurrent_decode, one token each, on pools that hold the same states in f32,
//   bf16 and f16, the latter two rounded to nearest and stochastically. The gates are those of
//   models: lightning attention's constant decays, and GLA's gk = log sigmoid(z) / 16 of a normal
//   z. q, k and v are f32 and normal, of mean 0, or k and v of mean 1: what is written then adds up,
//   as it does behind activations that are mostly positive. Printed is the relative RMS difference
//   of the last 1024 steps' outputs to those from the f32 pool.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <vector>

#include <attune/attune.hpp>

namespace {

using namespace attune;

constexpr std::int64_t kSteps = 16384;
constexpr std::int64_t kCompared = 1024;
constexpr std::int64_t kHeads = 4, kDim = 64;

struct Gate {
  const char* name;
  std::optional<float> gamma;   // constant log decay, or
  std::optional<float> mean_z;  // GLA's, with deviation 1
};

constexpr Gate kGates[] = {
    {"lightning, first layer, fastest of 8 heads", -0.5F, {}},
    {"lightning, first layer, fourth of 8 heads", -0x1p-4F, {}},
    {"lightning, first layer, slowest of 8 heads", -0x1p-8F, {}},
    {"lightning, layer 30 of 32, slowest of 8 heads", -0x1p-8F / 31, {}},
    {"lightning, last layer: hardly any decay", -0x1p-8F * 1e-5F, {}},
    {"GLA, z of mean 0", {}, 0.0F},
    {"GLA, z of mean 3", {}, 3.0F},
};

constexpr float kMeans[] = {0.0F, 1.0F};  // of k and v

struct Pool {
  Tensor state;
  bool stochastic;
  double difference = 0;  // squares, summed
};

void fill(Tensor& tensor, float mean, std::mt19937_64& random) {
  std::normal_distribution<float> normal(mean);
  for (float& value : tensor.values<float>()) value = normal(random);
}

/// Relative RMS differences of the pools behind the first, which is f32.
std::array<double, 4> differences_of(Context& context, const Gate& gate, float mean) {
  const Extents shape{1, kHeads, kDim, kDim};
  Pool pools[] = {{Tensor(DType::kF32, shape), false},
                  {Tensor(DType::kBF16, shape), false},
                  {Tensor(DType::kBF16, shape), true},
                  {Tensor(DType::kF16, shape), false},
                  {Tensor(DType::kF16, shape), true}};
  for (Pool& pool : pools) {
    TensorView view = pool.state.view();
    cpu_device().fill(view.data, std::byte{0}, pool.state.bytes(), nullptr);
  }
  std::mt19937_64 random(1);
  Tensor q(DType::kF32, {1, kHeads, kDim}), k(DType::kF32, {1, kHeads, kDim}),
      v(DType::kF32, {1, kHeads, kDim}), gk(DType::kF32, {1, kHeads, kDim});
  Tensor o(DType::kF32, {1, kHeads, kDim}), exact(DType::kF32, {1, kHeads, kDim});
  const Tensor gamma = Tensor::of(std::vector<float>(kHeads, gate.gamma.value_or(0)), {kHeads});
  double norm = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    fill(q, 0, random);
    for (Tensor* tensor : {&k, &v}) fill(*tensor, mean, random);
    fill(gk, gate.mean_z.value_or(0), random);
    for (float& z : gk.values<float>()) z = -std::log1p(std::exp(-z)) / 16;
    ops::RecurrentDecodeOptions options{.call = {.platform = "simd", .context = &context}};
    if (gate.gamma) options.g_gamma = gamma;
    if (gate.mean_z) options.gk = gk;
    for (Pool& pool : pools) {
      const bool is_f32 = &pool == pools;
      if (pool.stochastic) options.state_rounding = stochastic(static_cast<std::uint64_t>(step));
      Tensor& out = is_f32 ? exact : o;
      ops::recurrent_decode_into(out, q, k, v, pool.state, options);
      options.state_rounding = {};
      if (step < kSteps - kCompared) continue;
      for (std::size_t i = 0; i < out.values<float>().size(); ++i) {
        const double is = out.values<float>()[i], should = exact.values<float>()[i];
        if (is_f32) norm += should * should;
        pool.difference += (is - should) * (is - should);
      }
    }
  }
  std::array<double, 4> relative{};
  for (std::size_t i = 0; i < 4; ++i) relative[i] = std::sqrt(pools[i + 1].difference / norm);
  return relative;
}

}  // namespace

int main() {
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  std::printf(
      "| gates | k, v | bf16, nearest | bf16, stochastic | f16, nearest | f16, stochastic |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const Gate& gate : kGates) {
    for (const float mean : kMeans) {
      const auto [bf16_nearest, bf16_stochastic, f16_nearest, f16_stochastic] =
          differences_of(*context, gate, mean);
      std::printf("| %s | mean %.0f | %.1e | %.1e | %.1e | %.1e |\n", gate.name,
                  static_cast<double>(mean), bf16_nearest, bf16_stochastic, f16_nearest,
                  f16_stochastic);
    }
  }
}
