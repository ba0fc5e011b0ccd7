// A kernel of one's own for recurrent_attention: registered under a platform of its own, tuned
// against attune's, stored, and found again.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <attune/attune.hpp>

namespace {

using attune::DeviceInfo;
using attune::Support;
using attune::ops::RecurrentAttention;

// 1. What may be tuned: name, member and legal values in one place.
struct RowByRowConfig {
  using Op = RecurrentAttention;
  int unroll = 4;   // value channels a step: a template argument, so an axis
  int threads = 1;  // a run-time value, so a launch axis
  friend constexpr bool operator==(const RowByRowConfig&, const RowByRowConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{attune::axis("unroll", &RowByRowConfig::unroll, {1, 4, 8}),
                      attune::launch_axis("threads", &RowByRowConfig::threads, {1, 2, 4})};
  }
};

// 2. The loop, for one sequence and head: S = S + k v^T, o = scale * q S.
template <class Config>
void recurrence(const RecurrentAttention::Problem& problem, const RecurrentAttention::Args& args,
                std::int64_t b, std::int64_t h) {
  constexpr int kUnroll = Config::kValue.unroll;
  const auto at = [&](const attune::Extents& strides, std::int64_t t) {
    return b * strides[0] + t * strides[1] + h * strides[2];
  };
  std::vector<float> state(static_cast<std::size_t>(problem.K * problem.V));
  for (std::int64_t t = 0; t < problem.T; ++t) {
    const float* q = static_cast<const float*>(args.q.data) + at(args.q.strides, t);
    const float* k = static_cast<const float*>(args.k.data) + at(args.k.strides, t);
    const float* v = static_cast<const float*>(args.v.data) + at(args.v.strides, t);
    float* o = static_cast<float*>(args.o.data) + at(args.o.strides, t);
    for (std::int64_t j0 = 0; j0 < problem.V; j0 += kUnroll) {
      float sum[kUnroll] = {};
      for (std::int64_t i = 0; i < problem.K; ++i) {
        float* s = state.data() + i * problem.V + j0;
        for (int j = 0; j < kUnroll; ++j) {
          s[j] += k[i] * v[j0 + j];
          sum[j] += q[i] * s[j];
        }
      }
      for (int j = 0; j < kUnroll; ++j) o[j0 + j] = static_cast<float>(args.scale) * sum[j];
    }
  }
}

// 3. The kernel: what it supports, what fits, a good default, and how to run it. It names no
// features, so it is never asked for gates, states, packed sequences or what will come one day.
class RowByRow final : public attune::Kernel<RowByRowConfig> {
 public:
  std::string_view name() const noexcept override { return "mine.recurrent_attention.row_by_row"; }
  int version() const noexcept override { return 1; }

  Support supports(const Problem& p, const DeviceInfo&) const override {
    const bool plain = p.dtype == attune::DType::kF32 && p.H == p.Hkv;
    return plain ? Support::yes()
                 : Support::no(attune::refused::kShape, "takes f32 without groups of heads");
  }
  Support fits(const Problem& p, const DeviceInfo&, const RowByRowConfig& config) const override {
    return p.V % config.unroll == 0
               ? Support::yes()
               : Support::no(attune::refused::kConfig, "unroll does not divide V");
  }
  RowByRowConfig heuristic_config(const Problem& p, const DeviceInfo& device) const override {
    return {.unroll = p.V % 4 == 0 ? 4 : 1, .threads = device.cores >= 2 ? 2 : 1};
  }
  void run(const Problem& p, const Args& args, const RowByRowConfig& config,
           const attune::LaunchSite&) const override {
    attune::dispatch(config, [&]<class Config>() {
      attune::parallel_for(p.B * p.H, config.threads, [&](std::int64_t task) {
        recurrence<Config>(p, args, task / p.H, task % p.H);
      });
    });
  }
};

void register_mine(attune::Registry& registry) {
  registry.add(std::make_unique<RowByRow>(),
               {.platform = "mine", .backend = "cpu", .priority = 10});
}

const char* name_of(attune::Tier tier) { return attune::to_string(tier).data(); }

}  // namespace

int main(int argc, char** argv) {
  const std::string database = argc > 1 ? argv[1] : "custom_kernel.db";
  const std::int64_t T = 128, H = 4, D = 32;
  const std::vector<float> data(static_cast<std::size_t>(T * H * D), 0.1F);
  const attune::ConstTensorView x(data.data(), {1, T, H, D});

  for (const attune::Policy policy : {attune::Policy::kTune, attune::Policy::kDb}) {
    // Two contexts stand for two processes: the second finds in the database what the first tuned.
    const auto context = attune::make_context(
        {.register_kernels = {register_mine}, .policy = policy, .database = database});
    for (const char* platform : {"auto", "mine"}) {
      const auto plan = attune::ops::plan_recurrent_attention(
          x, x, x, {.call = {.platform = platform, .context = context.get()}});
      const attune::Choice& choice = plan.choice();
      std::printf("policy %-5s platform %-5s -> %-10s %s %s\n", attune::to_string(policy).data(),
                  platform, name_of(choice.tier), std::string(choice.kernel->name()).c_str(),
                  attune::config_text(*choice.kernel, choice.config).c_str());
    }
    const auto mine = attune::ops::recurrent_attention(
        x, x, x, {.call = {.platform = "mine", .context = context.get()}});
    const auto reference = attune::ops::recurrent_attention(
        x, x, x, {.call = {.platform = "reference", .context = context.get()}});
    float worst = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      worst = std::max(worst, std::abs(mine.o.values<float>()[i] - reference.o.values<float>()[i]));
    }
    std::printf("largest difference from the reference: %.1e\n", static_cast<double>(worst));
    if (!(worst < 1e-4F)) return 1;
  }
}
