#include "cuda/decode/decode.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::decode {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;
using Args = ops::RecurrentDecodeArgs;

constexpr std::int64_t kVector = Config::kThreadColumns;  // floats of a 16-byte access
constexpr int kMinWarpColumns = std::ranges::min(kAxisValues<&Config::warp_columns>);

/// [B, H, D] or, for g, [B, H].
ConstTokenView row_view(const ConstTensorView& rows) {
  return {.data = rows.data, .batch = rows.stride(0), .head = rows.stride(1)};
}
TokenView row_view(const TensorView& rows) {
  return {.data = rows.data, .batch = rows.stride(0), .head = rows.stride(1)};
}
GateView row_gate_view(const std::optional<ConstTensorView>& gate) {
  if (!gate) return {};
  return {.rows = row_view(*gate), .is_f32 = gate->dtype == DType::kF32};
}

SlotsView slots_view(const std::optional<ConstTensorView>& slots) {
  if (!slots) return {};
  return {slots->data, slots->stride(0), slots->dtype == DType::kI64};
}

DecodeParams params_of(const Problem& problem, const Args& args) {
  return {.q = row_view(args.q),
          .k = row_view(args.k),
          .v = row_view(args.v),
          .g = row_gate_view(args.g),
          .gk = row_gate_view(args.gk),
          .gv = row_gate_view(args.gv),
          .gamma = decay_view(args.gamma, problem.H),
          .slots = slots_view(args.slot_indices),
          .state = state_view(std::optional<TensorView>(args.state)),
          .o = row_view(args.o),
          .rows = problem.B,
          .pool = problem.S,
          .heads = problem.H,
          .heads_per_kv = problem.H / problem.Hkv,
          .keys = problem.K,
          .values = problem.V,
          .scale = static_cast<float>(args.scale)};
}

/// Whether the states' rows are made of whole aligned vectors.
bool has_row_vectors(const TensorView& state) {
  if (state.size(3) % kVector != 0 || state.stride(3) != 1) return false;
  if (reinterpret_cast<std::uintptr_t>(state.data) % (kVector * sizeof(float)) != 0) return false;
  for (int dim = 0; dim < 3; ++dim) {
    if (state.size(dim) > 1 && state.stride(dim) % kVector != 0) return false;
  }
  return true;
}

template <class T>
void launch_on(const TensorView& state, const Config& config, const DecodeParams& params,
               cudaStream_t stream) {
  if (has_row_vectors(state)) {
    launch_decode_row_tiles<T>(config, params, stream);
  } else {
    launch_decode_any_strides<T>(config, params, stream);
  }
}

/// Warps that `extent` needs when each takes `of_warp` of it: a power of two, at most `most`.
int warps_for(std::int64_t extent, int of_warp, int most) {
  const std::int64_t wanted = std::min<std::int64_t>((extent - 1) / of_warp + 1, most);
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
}

/// The config with all of K to a block, where that has the threads for it, and a thread for each
/// column.
Config tile_of(const Problem& problem, const DeviceInfo& device, Config config, int max_warps_v) {
  constexpr int kMaxWarps = Config::kMaxThreads / Config::kWarpThreads;
  config.warps_v = warps_for(problem.V, config.warp_columns, max_warps_v);
  config.warps_k =
      std::max(warps_for(problem.K, config.warp_rows() * config.rows, kMaxWarps / config.warps_v),
               config.warp_columns / Config::kWarpThreads);
  config.overlap = device.has("sm_90a");
  return config;
}

/// Many threads that hold little each, whose states make room in the L2 cache for what follows.
Config small_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  return tile_of(problem, device, {.rows = 8, .warp_columns = 32, .evict_first = true},
                 max_warps_v);
}
/// Fewer threads that hold more each, in longer rows, and no more bytes under way than the DRAM
/// takes well: 128 KB a multiprocessor.
Config large_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  constexpr int kThreadsOf32KB = 128;
  Config config = tile_of(problem, device, {.rows = 16, .warp_columns = 64}, max_warps_v);
  if (config.threads() == kThreadsOf32KB) config.shared_kb = 44;
  if (config.threads() == 2 * kThreadsOf32KB) config.shared_kb = 90;
  return config;
}

/// Traffic from which on the large tile is the faster one: on an H200 between 4 and 34 MB.
constexpr double kLargeBytes = 1e7;

class DecodeKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.decode"; }
  int version() const noexcept override { return 2; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "slots"};
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

  Support fits(const Problem&, const DeviceInfo& device, const Config& config) const override {
    if (config.threads() > Config::kMaxThreads) {
      return Support::no(refused::kConfig,
                         str("a block has at most ", Config::kMaxThreads, " threads"));
    }
    if (config.threads() < config.tile_columns()) {
      return Support::no(refused::kConfig, str("a block of ", config.threads(),
                                               " threads takes at most as many columns"));
    }
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
    constexpr std::int64_t kMaxKeysOfSmall = 128;
    constexpr std::int64_t kMinKeysOfLarge = 65;
    const bool heavy = ops::RecurrentDecode::bytes(problem) > kLargeBytes;
    const bool large = problem.K > kMaxKeysOfSmall || (heavy && problem.K >= kMinKeysOfLarge);
    return large ? large_tile(problem, device, 1) : small_tile(problem, device, 2);
  }

  /// The two tiles, with and without their ways with the caches. Tiles of less than K, and of more
  /// warps along V, were best nowhere.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    // The kernel for states of any strides has but one tile.
    if (problem.V % kVector != 0) return {heuristic_config(problem, device)};
    std::vector<Config> configs;
    for (const int warps_v : {1, 2}) {
      if (warps_v == 1 || problem.V > kMinWarpColumns) {
        configs.push_back(small_tile(problem, device, warps_v));
        configs.push_back(configs.back());
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
    const DecodeParams params = params_of(problem, args);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { launch_on<T>(args.state, config, params, stream); });
  }
};

}  // namespace
}  // namespace attune::cuda::decode

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_decode() {
  return std::make_unique<decode::DecodeKernel>();
}
