// The simd kernels of recurrent_attention against the naive loop, and against what the FMA units
// can do.
//
// Usage: recurrent_forward [config [tokens]], as "kernel=simd.recurrent_attention" or
// "kernel=simd.chunk,chunk=8". What the config leaves out is the heuristic's, as is all of it
// without one; nothing is tuned.
//
//   T = 512 unless given, H = 16, K = V = D. GFLOP/s are nominal: 4 K V a token and head, for both.
//   The naive loop is fp32 and gets its decays already exponentiated; attune computes the
//   exponentials. Samples alternate, so that a clock that drifts moves both alike; the ratio is the
//   median of the rounds' ratios.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <attune/attune.hpp>

#include "yardsticks/loops.hpp"

namespace {

using namespace attune;

constexpr std::int64_t kHeads = 16;
constexpr int kRounds = 15;

template <class Body>
double time_us(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

#if defined(__x86_64__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
float fused_multiply_adds(std::int64_t count) {
  constexpr int kLanes = 16;
  constexpr int kChains = 12;  // enough to hide the latency of one behind the others
  float x[kChains][kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    for (auto& chain : x) {
      for (float& lane : chain) lane = lane * 0.999F + 1.0F;
    }
  }
  float sum = 0;
  for (const auto& chain : x) {
    for (const float lane : chain) sum += lane;
  }
  return sum;
}

/// GFLOP/s of one thread.
double fma_peak() {
  constexpr std::int64_t kCount = 200000;
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    float result = 0;
    const double us = time_us([&] { result = fused_multiply_adds(kCount); });
    asm volatile("" : : "r"(result));
    best = std::max(best, 2.0 * 16 * 12 * kCount / us / 1e3);
  }
  return best;
}

struct Setup {
  std::int64_t dim = 64;
  std::string gate;  // "none", "g" or "gk"
  DType dtype = DType::kF32;
  int threads = 1;
  std::int64_t tokens = 512;
  std::string config = {};  // an override
};

Tensor random_tensor(const Extents& shape, float low, float high, unsigned seed) {
  Tensor tensor(DType::kF32, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

Tensor converted(const Tensor& from, DType dtype) {
  Tensor to(dtype, from.shape());
  const auto values = from.values<float>();
  if (dtype == DType::kBF16) {
    std::transform(values.begin(), values.end(), to.values<bf16>().begin(),
                   [](float x) { return bf16(x); });
  } else {
    std::copy(values.begin(), values.end(), to.values<float>().begin());
  }
  return to;
}

/// The decay of every key channel, exponentiated: what the naive loop takes.
Tensor naive_decay(const Setup& setup, const Tensor& gate) {
  Tensor decay(DType::kF32, {setup.tokens, kHeads, setup.dim});
  const auto from = gate.values<float>();
  const auto to = decay.values<float>();
  const std::size_t per_head = setup.gate == "gk" ? 1 : static_cast<std::size_t>(setup.dim);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = std::exp(from[i / per_head]);
  return decay;
}

void run(Context& context, const Setup& setup, double peak) {
  const Extents shape{1, setup.tokens, kHeads, setup.dim};
  const Tensor q = random_tensor(shape, -1, 1, 1), k = random_tensor(shape, -1, 1, 2),
               v = random_tensor(shape, -1, 1, 3);
  const Tensor gate =
      random_tensor(setup.gate == "gk" ? shape : Extents{1, setup.tokens, kHeads}, -0.1F, 0, 4);
  const Tensor decay = naive_decay(setup, gate);
  Tensor naive_o(DType::kF32, shape), state(DType::kF32, {kHeads, setup.dim, setup.dim});
  std::ranges::fill(state.values<float>(), 0.0F);
  const yardsticks::NaiveRecurrentArgs naive{
      .q = q.values<float>().data(),
      .k = k.values<float>().data(),
      .v = v.values<float>().data(),
      .decay = setup.gate == "none" ? nullptr : decay.values<float>().data(),
      .o = naive_o.values<float>().data(),
      .state = state.values<float>().data(),
      .tokens = setup.tokens,
      .heads = kHeads,
      .key_dim = setup.dim,
      .value_dim = setup.dim,
      .scale = 0.125F};
  const Tensor tq = converted(q, setup.dtype), tk = converted(k, setup.dtype),
               tv = converted(v, setup.dtype);
  Tensor o(setup.dtype, shape);
  ops::RecurrentAttentionOptions options{.call = {.platform = "simd", .context = &context}};
  if (setup.gate == "g") options.g = gate;
  if (setup.gate == "gk") options.gk = gate;
  options.call.config = setup.config;
  const Choice best = ops::plan_recurrent_attention(tq, tk, tv, options).choice();
  Params params = best.kernel->params(best.config);
  for (Param& param : params) {
    if (param.name == "threads") param.value = std::to_string(setup.threads);
  }
  const std::string config = str("kernel=", best.kernel->name(), ",", to_text(params));
  options.call.config = config;
  const auto plan = ops::plan_recurrent_attention(tq, tk, tv, options);
  const auto args = ops::recurrent_attention_args({.o = o}, tq, tk, tv, options);
  std::vector<std::byte> memory(plan.workspace_bytes() + 64);
  auto* aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;

  std::vector<double> naive_us, simd_us, ratios;
  for (int round = 0; round < kRounds; ++round) {
    naive_us.push_back(time_us([&] {
      parallel_for(setup.threads, setup.threads, [&](std::int64_t part) {
        yardsticks::loops_of_this_cpu().front().naive_recurrent(
            naive, kHeads * part / setup.threads, kHeads * (part + 1) / setup.threads);
      });
    }));
    simd_us.push_back(time_us([&] {
      plan.launch(args, nullptr, {aligned, plan.workspace_bytes()});
    }));
    ratios.push_back(naive_us.back() / simd_us.back());
  }
  const double flop = 4.0 * static_cast<double>(setup.dim * setup.dim * setup.tokens * kHeads);
  const double simd_rate = flop / median(simd_us) / 1e3;
  std::printf("| %4s | %3d | %4s | %7d | %8.0f | %8.0f | %7.1f | %4.0f %% | %5.2fx |\n",
              std::string(to_string(setup.dtype)).c_str(), static_cast<int>(setup.dim),
              setup.gate.c_str(), setup.threads, median(naive_us), median(simd_us), simd_rate,
              100 * simd_rate / (peak * setup.threads), median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string config = argc > 1 ? argv[1] : "";
  const std::int64_t tokens = argc > 2 ? std::stoll(argv[2]) : 512;
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  const double peak = fma_peak();
  std::printf("FMA peak of one thread, measured in this run: %.0f GFLOP/s\n\n", peak);
  std::printf(
      "| type |   D | gate | threads | naive us |  simd us | GFLOP/s | of peak | ratio |\n");
  std::printf("|------|----:|------|--------:|---------:|---------:|--------:|-------:|------:|\n");
  for (const int threads : {1, 2}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const std::int64_t dim : {64, 128}) {
        for (const char* gate : {"none", "g", "gk"})
          run(*context, {dim, gate, dtype, threads, tokens, config}, peak);
      }
    }
  }
}
