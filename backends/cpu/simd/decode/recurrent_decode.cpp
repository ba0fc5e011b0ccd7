#include <algorithm>

#include <attune/ops/recurrent_decode_op.hpp>

#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"
#include "decode_launch.hpp"

namespace attune::cpu::simd {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;

/// Of the states, read and written, that are worth a thread. Measured on 16 cores of a Sapphire
/// Rapids, calls back to back, D = 64, B = 1: 2, 4 and 8 threads are 0.80, 0.74 and 0.83 times as
/// fast as one with 4 heads, 1.32, 1.33 and 1.20 with 8, 1.13, 1.39 and 1.31 with 16, 1.23, 1.60
/// and 1.75 with 32.
constexpr double kBytesPerThread = 1 << 18;

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, decode_task_count(problem, config)));
}

/// How far ahead a state is fetched that no cache of its core holds; one that does is there in
/// time. Measured on 16 cores of a Sapphire Rapids: 0.8 to 0.9 times as long without, from 64 KiB
/// to 1 MiB of states a core; as long, or 1.1 times as long, beyond 2 MiB.
int prefetch_for(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const double bytes = ops::RecurrentDecode::bytes(problem) / 2 / config.threads;
  return bytes > static_cast<double>(device.l2_bytes) ? 1024 : 0;
}

class RecurrentDecodeKernel final : public SimdKernel<Config> {
 public:
  RecurrentDecodeKernel() : SimdKernel("simd.decode", 1) {}

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentDecode::bytes(problem), kBytesPerThread, device);
    Config config;
    config.isa = widest_isa(device);
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return decode_task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    config.prefetch = prefetch_for(problem, device, config);
    return config;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return decode_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch_decode(problem, args, config, site.workspace);
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int tile_v = axis_value_for(&Config::tile_v, problem.V);
    const int threads = threads_for(problem, config, device.cores);
    const Isa widest = widest_isa(device);
    const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512;
    return full_or_half(config, &Config::tile_v, tile_v) &&
           (config.threads == 1 || full_or_half(config, &Config::threads, threads)) &&
           (config.isa == widest || (narrower && config.tile_v == tile_v));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_decode() {
  return std::make_unique<RecurrentDecodeKernel>();
}

}  // namespace attune::cpu::simd
