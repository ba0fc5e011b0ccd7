// The simd kernel of recurrent_decode against the naive loop, and against what memory can do.
//
//   One token a row, fp32 states updated in place, K = V = D, the decay per key channel. GB/s count
//   each state twice, read and written, and nothing else. The ceiling is a pass that multiplies the
//   same memory by a constant, on as many threads. The naive loop gets its decays already
//   exponentiated; attune computes the exponentials. Samples alternate, and each time is the
//   shortest of the rounds: a neighbour on the machine can only add to one. The config is the
//   heuristic's but for the number of threads, nothing is tuned.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>

#include <attune/attune.hpp>

#include "yardsticks/loops.hpp"

namespace {

using namespace attune;

constexpr int kRounds = 25;
constexpr double kSampleUs = 2000;  // at least, of each sample

struct Setup {
  std::int64_t dim = 64;
  std::int64_t heads = 16;
  std::int64_t rows = 1;
  int threads = 1;
};

/// Microseconds of one of as many calls as make a sample.
template <class Body>
double time_us(int calls, Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) body();
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count() / calls;
}

template <class Body>
int calls_of(Body&& body) {
  body();
  return static_cast<int>(1 + kSampleUs / time_us(1, body));
}

Tensor random_tensor(const Extents& shape, float low, float high, unsigned seed) {
  Tensor tensor(DType::kF32, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

Tensor filled(const Extents& shape, float value) {
  Tensor tensor(DType::kF32, shape);
  std::ranges::fill(tensor.values<float>(), value);
  return tensor;
}

#if defined(__x86_64__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void scale_in_place(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= 0.999F;
}

/// Calls body(first, last) on shares of [0, count).
template <class Body>
void share(std::int64_t count, int threads, Body&& body) {
  parallel_for(threads, threads, [&](std::int64_t part) {
    body(count * part / threads, count * (part + 1) / threads);
  });
}

/// recurrent_decode as a plan and its memory.
class SimdDecode {
 public:
  SimdDecode(Context& context, const Setup& setup, const TensorView& state, const Tensor& q,
             const Tensor& k, const Tensor& v, const Tensor& gk)
      : o_(DType::kF32, q.shape()) {
    ops::RecurrentDecodeOptions options{.gk = gk,
                                        .call = {.platform = "simd", .context = &context}};
    const Choice best = ops::plan_recurrent_decode(q, k, v, state, options).choice();
    Params params = best.kernel->params(best.config);
    for (Param& param : params) {
      if (param.name == "threads") param.value = std::to_string(setup.threads);
    }
    const std::string config = to_text(params);
    options.call.config = config;
    plan_ = ops::plan_recurrent_decode(q, k, v, state, options);
    args_ = ops::recurrent_decode_args(o_, q, k, v, state, options);
    workspace_ = Tensor(DType::kF32, {static_cast<std::int64_t>(plan_->workspace_bytes() / 4 + 1)});
  }

  void operator()() {
    plan_->launch(args_, nullptr,
                  {static_cast<std::byte*>(workspace_.view().data), plan_->workspace_bytes()});
  }

 private:
  Tensor o_, workspace_;
  std::optional<Plan<ops::RecurrentDecode>> plan_;  // always there
  ops::RecurrentDecodeArgs args_;
};

void run(Context& context, const Setup& setup) {
  const std::int64_t all_heads = setup.rows * setup.heads;
  const Extents shape{setup.rows, setup.heads, setup.dim};
  const Tensor q = random_tensor(shape, -1, 1, 1), k = random_tensor(shape, -1, 1, 2),
               v = random_tensor(shape, -1, 1, 3), gk = random_tensor(shape, -0.1F, 0, 4);
  Tensor decay(DType::kF32, shape), naive_o(DType::kF32, shape);
  std::ranges::transform(gk.values<float>(), decay.values<float>().begin(),
                         [](float x) { return std::exp(x); });
  Tensor state = filled({setup.rows, setup.heads, setup.dim, setup.dim}, 0.0F);
  const std::int64_t elements = element_count(state.shape());
  const yardsticks::NaiveRecurrentArgs naive_args{.q = q.values<float>().data(),
                                                  .k = k.values<float>().data(),
                                                  .v = v.values<float>().data(),
                                                  .decay = decay.values<float>().data(),
                                                  .o = naive_o.values<float>().data(),
                                                  .state = state.values<float>().data(),
                                                  .tokens = 1,
                                                  .heads = all_heads,
                                                  .key_dim = setup.dim,
                                                  .value_dim = setup.dim,
                                                  .scale = 0.125F};
  const auto ceiling = [&] {
    share(elements, setup.threads, [&](std::int64_t first, std::int64_t last) {
      scale_in_place(state.values<float>().data() + first, last - first);
    });
  };
  const auto naive = [&] {
    share(all_heads, setup.threads, [&](std::int64_t first, std::int64_t last) {
      yardsticks::loops_of_this_cpu().front().naive_recurrent(naive_args, first, last);
    });
  };
  SimdDecode simd(context, setup, state, q, k, v, gk);
  const int ceiling_calls = calls_of(ceiling), naive_calls = calls_of(naive),
            simd_calls = calls_of(simd);
  double ceiling_us = HUGE_VAL, naive_us = HUGE_VAL, simd_us = HUGE_VAL;
  for (int round = 0; round < kRounds; ++round) {
    ceiling_us = std::min(ceiling_us, time_us(ceiling_calls, ceiling));
    naive_us = std::min(naive_us, time_us(naive_calls, naive));
    simd_us = std::min(simd_us, time_us(simd_calls, simd));
  }
  const double bytes = 2.0 * sizeof(float) * static_cast<double>(elements);
  std::printf("| %3d | %5d | %4d | %7.2f | %7d | %9.1f | %6.1f | %5.0f %% | %5.2fx |\n",
              static_cast<int>(setup.dim), static_cast<int>(setup.heads),
              static_cast<int>(setup.rows), static_cast<double>(elements) / (1 << 18),
              setup.threads, simd_us, bytes / simd_us / 1e3, 100 * ceiling_us / simd_us,
              naive_us / simd_us);
}

}  // namespace

int main() {
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  std::printf(
      "|   D | heads | rows |     MiB | threads |   simd us |   GB/s | ceiling | naive |\n"
      "|----:|------:|-----:|--------:|--------:|----------:|-------:|--------:|------:|\n");
  for (const int threads : {1, 2}) {
    run(*context, {.dim = 64, .heads = 16, .rows = 1, .threads = threads});
    run(*context, {.dim = 128, .heads = 16, .rows = 1, .threads = threads});
    run(*context, {.dim = 128, .heads = 16, .rows = 8, .threads = threads});
    run(*context, {.dim = 128, .heads = 32, .rows = 128, .threads = threads});
  }
}
