#include "cuda/decode/tile_choice.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/decode/product_shape.hpp"

namespace attune::cuda::decode {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;

/// Warps that `extent` needs when each takes `of_warp` of it: a power of two, at most `most`.
int warps_for(std::int64_t extent, int of_warp, int most) {
  const std::int64_t wanted = std::min<std::int64_t>((extent - 1) / of_warp + 1, most);
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
}

/// As many threads as columns.
constexpr int kMinStepWarps = Config::kStepWarpColumns / Config::kWarpThreads;

/// The config with all of K to a block, where that has the threads for it, and a thread for each
/// column.
Config tile_of(const Problem& problem, const DeviceInfo& device, Config config, int max_warps_v) {
  constexpr int kMaxWarps = Config::kMaxThreads / Config::kWarpThreads;
  const int warp_rows = config.warp_rows(thread_columns(problem));
  config.warps_v = warps_for(problem.V, config.warp_columns, max_warps_v);
  config.warps_k =
      std::max(warps_for(problem.K, warp_rows * config.rows, kMaxWarps / config.warps_v),
               config.warp_columns / Config::kWarpThreads);
  config.overlap = device.has("sm_90a");
  return config;
}

/// Bounds what a block of so many threads has under way, 32 KB of 128 threads, to no more than the
/// DRAM takes well: 128 KB a multiprocessor.
Config with_bounded_bytes(Config config) {
  constexpr int kThreadsOf32KB = 128;
  if (config.threads() == kThreadsOf32KB) config.shared_kb = 44;
  if (config.threads() == 2 * kThreadsOf32KB) config.shared_kb = 90;
  return config;
}

}  // namespace

int thread_columns(const Problem& problem) {
  return is_one_token(problem) ? Config::thread_columns(size_of(problem.state_dtype))
                               : Config::kStepColumns;
}

int step_bytes(const Problem& problem, Config config) {
  config.rows = Config::kStepRows;
  config.warp_columns = Config::kStepWarpColumns;
  return Config::step_shared_bytes(config.tile_rows(Config::kStepColumns), config.tile_columns(),
                                   config.warps_k, static_cast<int>(problem.tokens()),
                                   static_cast<int>(problem.R),
                                   (problem.gates & ops::kGateGv) != 0);
}

int product_bytes(const Problem& problem, const Config& config) {
  return ProductShape::of(config, {.keys = problem.K,
                                   .tokens = static_cast<int>(problem.tokens()),
                                   .committed = static_cast<int>(problem.R),
                                   .has_gk = (problem.gates & ops::kGateGk) != 0,
                                   .gk_is_f32 = problem.gate_dtype == ops::GateDType::kF32,
                                   .keeps_states = problem.kept,
                                   .state_bytes = static_cast<int>(size_of(problem.state_dtype))})
      .bytes;
}

Config small_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  const bool is_f32 = problem.state_dtype == DType::kF32;
  return tile_of(
      problem, device,
      {.rows = 8, .warp_columns = is_f32 ? 32 : Config::kStepWarpColumns, .evict_first = true},
      max_warps_v);
}
Config large_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  return with_bounded_bytes(
      tile_of(problem, device, {.rows = 16, .warp_columns = 64}, max_warps_v));
}
Config step_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  Config config =
      tile_of(problem, device,
              {.rows = Config::kStepRows, .warp_columns = Config::kStepWarpColumns}, max_warps_v);
  if (problem.state_dtype == DType::kF32) config = with_bounded_bytes(config);
  while (step_bytes(problem, config) > device.l1_bytes && config.warps_k > kMinStepWarps) {
    config.warps_k /= 2;
  }
  if (config.shared_bytes() > device.l1_bytes) config.shared_kb = 0;
  return config;
}

Config product_tile(const Problem& problem, const DeviceInfo& device, Config config,
                    int max_warps_v) {
  constexpr int kMaxWarps = Config::kProductThreads / Config::kWarpThreads;
  config.warps_k = 1;
  const int warp_rows = config.product_rows();
  config.warps_k = std::max(warps_for(problem.K, warp_rows, Config::kProductRows / warp_rows),
                            config.warp_columns / Config::kWarpThreads);
  config.warps_v =
      warps_for(problem.V, config.warp_columns, std::min(max_warps_v, kMaxWarps / config.warps_k));
  config.overlap = device.has("sm_90a");
  return config;
}

namespace {

/// Traffic from which on a wide tile is the faster one: on an H200 between 4 and 34 MB.
constexpr double kLargeBytes = 1e7;

/// As measured with two, four and eight tokens a row: the memory wants whole rows, 256 bytes or more of
/// them, and of kept states, most of which are written, that they make room in the L2 cache for what
/// follows.
Config best_product_tile(const Problem& problem, const DeviceInfo& device) {
  constexpr int kWideColumns = Config::kProductColumns;
  const bool is_f32 = problem.state_dtype == DType::kF32;
  const bool is_wide = !is_f32 && problem.K > kWideColumns / 2 && problem.V > kWideColumns / 2 &&
                       ops::RecurrentDecode::bytes(problem) > kLargeBytes;
  return product_tile(problem, device,
                      {.rows = is_f32 && problem.kept ? 16 : 8,
                       .warp_columns = is_wide ? kWideColumns : Config::kStepWarpColumns,
                       .evict_first = problem.kept},
                      problem.kept ? 2 : 1);
}

/// Of states in f32, by how many blocks of 64 columns they are: small tiles where a device has few of
/// them to hold, or a large one would be half empty, and narrower ones where there are not even enough
/// for the multiprocessors.
Config best_f32_tile(const Problem& problem, const DeviceInfo& device) {
  constexpr std::int64_t kOfBlock = 64;  // value channels
  constexpr std::int64_t kFewKeys = 48, kManyKeys = 128;
  const std::int64_t blocks = problem.B * problem.H * ((problem.V - 1) / kOfBlock + 1);
  const bool has_many_keys = problem.K > kManyKeys;
  const int rounds_of_small = has_many_keys ? 1 : 2;
  if (problem.K > kFewKeys && blocks > rounds_of_small * device.cores) {
    return large_tile(problem, device, 1);
  }
  return small_tile(problem, device, has_many_keys || 4 * blocks <= device.cores ? 1 : 2);
}

}  // namespace

Config best_tile(const Problem& problem, const DeviceInfo& device) {
  if (takes_products(problem)) return best_product_tile(problem, device);
  if (!is_one_token(problem)) return step_tile(problem, device, 1);
  if (problem.state_dtype == DType::kF32) return best_f32_tile(problem, device);
  // Elements of 16 bits are twice as much work a byte: small tiles do that beside others' loads.
  constexpr std::int64_t kMaxKeysOfSmall = 128;
  return problem.K > kMaxKeysOfSmall ? large_tile(problem, device, 2)
                                     : small_tile(problem, device, 2);
}

DecodeConfig config_of_any_gpu(const Problem& problem) {
  DeviceInfo device;
  device.l1_bytes = 99 << 10;  // a block's on the GPUs from sm_80 on that have the least
  return best_tile(problem, device);
}

}  // namespace attune::cuda::decode
