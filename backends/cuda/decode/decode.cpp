#include "cuda/decode/decode.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/decode/tile_choice.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::decode {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;
using Args = ops::RecurrentDecodeArgs;

constexpr int kMinWarpColumns = std::ranges::min(kAxisValues<&Config::warp_columns>);

class DecodeKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.decode"; }
  int version() const noexcept override { return 2; }

  std::vector<std::string_view> features() const override {
    return {"g",
            "gamma",
            "gk",
            "gv",
            "slots",
            "tokens",
            "replay",
            "kept",
            "state=f16",
            "state=bf16",
            "rounding=stochastic"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80"))
      return Support::no(refused::kDevice, "needs sm_80");
    constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();
    if (problem.V > kMaxBlocks / 2 ||
        problem.H > kMaxBlocks / ((problem.V - 1) / kMinWarpColumns + 1)) {
      return Support::no(refused::kShape, "takes at most 2^31 - 1 heads and tiles of them");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.threads() > Config::kMaxThreads) {
      return Support::no(refused::kConfig,
                         str("a block has at most ", Config::kMaxThreads, " threads"));
    }
    if (config.threads() < config.tile_columns()) {
      return Support::no(refused::kConfig, str("a block of ", config.threads(),
                                               " threads takes at most as many columns"));
    }
    if (const Support tile = has_tile(problem, device, config); !tile) return tile;
    if (config.shared_bytes() > device.l1_bytes) {
      return Support::no(refused::kMemory,
                         str("shared_kb=", config.shared_kb, ": a block has at most ",
                             device.l1_bytes, " bytes of shared memory"));
    }
    if (config.overlap && !device.has("sm_90a"))
      return Support::no(refused::kDevice, "overlap needs sm_90a");
    return Support::yes();
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return best_tile(problem, device);
  }

  /// The tiles, with and without their ways with the caches. Tiles of less than K, and of more
  /// warps along V, were best nowhere.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    // The kernels for states of any strides have but one tile.
    const int vector = Config::thread_columns(size_of(problem.state_dtype));
    if (problem.V % vector != 0) return {heuristic_config(problem, device)};
    if (takes_products(problem)) return product_configs(problem, device);
    if (!is_one_token(problem)) return step_configs(problem, device);
    std::vector<Config> configs;
    for (const int warps_v : {1, 2}) {
      const Config small = small_tile(problem, device, warps_v);
      if (small.warps_v == warps_v) {
        configs.push_back(small);
        configs.push_back(small);
        configs.back().evict_first = false;
      }
      const Config large = large_tile(problem, device, warps_v);
      if (large.warps_v < warps_v) continue;
      configs.push_back(large);
      if (configs.back().shared_kb == 0) continue;
      configs.push_back(configs.back());
      configs.back().shared_kb = 0;
    }
    return configs;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      with_element<float, __half, __nv_bfloat16>(problem.state_dtype, [&]<class State>() {
        launch_decode<T, State>(problem, args.state, config, step_params_of(problem, args), stream);
      });
    });
  }

 private:
  /// Whether the tile is compiled, and its tokens have room.
  static Support has_tile(const Problem& problem, const DeviceInfo& device, const Config& config) {
    if (is_one_token(problem)) {
      if (Config::has_tile(config, thread_columns(problem))) return Support::yes();
      return Support::no(refused::kConfig,
                         str("a step of one token has warp_columns=", Config::kStepWarpColumns,
                             ", or ", kMinWarpColumns, " of states in f32"));
    }
    if (takes_products(problem)) {
      if (const Support tile = has_product_tile(problem, config); !tile) return tile;
    } else if (config.rows != Config::kStepRows ||
               config.warp_columns != Config::kStepWarpColumns) {
      return Support::no(refused::kConfig, str("such a step has rows=", Config::kStepRows,
                                               ",warp_columns=", Config::kStepWarpColumns));
    }
    // Where a gk is not aligned, the kernel of any step has the problem for products.
    const int bytes = std::max(step_bytes(problem, config),
                               takes_products(problem) ? product_bytes(problem, config) : 0);
    if (bytes > device.l1_bytes) {
      return Support::no(refused::kMemory,
                         str("a block's tokens take ", bytes,
                             " bytes of shared memory, of which it has ", device.l1_bytes));
    }
    return Support::yes();
  }

  /// A thread of products has one or two lines' vectors of a row, and more rows where those are in f32.
  static Support has_product_tile(const Problem& problem, const Config& config) {
    const bool is_compiled =
        problem.state_dtype == DType::kF32
            ? config.warp_columns == Config::kStepWarpColumns
            : config.rows == Config::kStepRows && config.warp_columns >= Config::kStepWarpColumns;
    if (is_compiled && config.threads() <= Config::kProductThreads &&
        config.product_rows() <= Config::kProductRows &&
        config.tile_columns() <= Config::kProductColumns) {
      return Support::yes();
    }
    return Support::no(
        refused::kConfig,
        str("such a step has warp_columns=", Config::kStepWarpColumns,
            ", or rows=", Config::kStepRows, " of states in 16 bits, and blocks of at most ",
            Config::kProductRows, " rows and ", Config::kProductColumns, " columns"));
  }

  static std::vector<Config> product_configs(const Problem& problem, const DeviceInfo& device) {
    std::vector<Config> configs;
    for (const int rows : kAxisValues<&Config::rows>) {
      for (const int columns : {Config::kStepWarpColumns, Config::kProductColumns}) {
        for (const int warps_v : {1, 2}) {
          const Config tile =
              product_tile(problem, device, {.rows = rows, .warp_columns = columns}, warps_v);
          if (tile.warps_v < warps_v || !has_product_tile(problem, tile)) continue;
          configs.push_back(tile);
          configs.push_back(tile);
          configs.back().evict_first = true;
        }
      }
    }
    return configs;
  }

  static std::vector<Config> step_configs(const Problem& problem, const DeviceInfo& device) {
    std::vector<Config> configs;
    for (const int warps_v : {1, 2}) {
      const Config tile = step_tile(problem, device, warps_v);
      if (tile.warps_v < warps_v) continue;
      for (const bool evict_first : {false, true}) {
        configs.push_back(tile);
        configs.back().evict_first = evict_first;
        if (tile.shared_kb == 0) continue;
        configs.push_back(configs.back());
        configs.back().shared_kb = 0;
      }
    }
    return configs;
  }
};

}  // namespace
}  // namespace attune::cuda::decode

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_decode() {
  return std::make_unique<decode::DecodeKernel>();
}
