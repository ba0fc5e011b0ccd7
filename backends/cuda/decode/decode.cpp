#include "cuda/decode/decode.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/decode/product_shape.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::decode {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;
using Args = ops::RecurrentDecodeArgs;

constexpr int kMinWarpColumns = std::ranges::min(kAxisValues<&Config::warp_columns>);

/// [B, H, D] or, for g, [B, H]; with a dimension of tokens after the first where there is one.
template <class View, class Tensor>
View rows_view(const Tensor& rows, bool has_tokens) {
  return {.data = rows.data,
          .batch = rows.stride(0),
          .token = has_tokens ? rows.stride(1) : 0,
          .head = rows.stride(has_tokens ? 2 : 1)};
}
GateView gate_rows_view(const std::optional<ConstTensorView>& gate, bool has_tokens) {
  if (!gate) return {};
  return {.rows = rows_view<ConstTokenView>(*gate, has_tokens),
          .is_f32 = gate->dtype == DType::kF32};
}

DecodeParams params_of(const Problem& problem, const Args& args) {
  const bool has_tokens = problem.T > 0;
  return {.q = rows_view<ConstTokenView>(args.q, has_tokens),
          .fresh = {.k = rows_view<ConstTokenView>(args.k, has_tokens),
                    .v = rows_view<ConstTokenView>(args.v, has_tokens),
                    .g = gate_rows_view(args.g, has_tokens),
                    .gk = gate_rows_view(args.gk, has_tokens),
                    .gv = gate_rows_view(args.gv, has_tokens)},
          .gamma = decay_view(args.gamma, problem.H),
          .slots = indices_view(args.slot_indices),
          .state = pool_view(args.state),
          .o = rows_view<TokenView>(args.o, has_tokens),
          .rows = problem.B,
          .pool = problem.S,
          .heads = problem.H,
          .heads_per_kv = problem.H / problem.Hkv,
          .keys = problem.K,
          .values = problem.V,
          .scale = static_cast<float>(args.scale)};
}

StepParams step_params_of(const Problem& problem, const Args& args) {
  StepParams params;
  static_cast<DecodeParams&>(params) = params_of(problem, args);
  if (problem.R > 0) {
    params.committed = {.k = rows_view<ConstTokenView>(*args.committed_k, true),
                        .v = rows_view<ConstTokenView>(*args.committed_v, true),
                        .g = gate_rows_view(args.committed_g, true),
                        .gk = gate_rows_view(args.committed_gk, true),
                        .gv = gate_rows_view(args.committed_gv, true)};
    params.accepted = indices_view(args.committed_accepted);
  }
  if (problem.kept) {
    params.kept = indices_view(args.kept_slots);
    params.kept_token = problem.T > 0 ? args.kept_slots->stride(1) : 0;
    params.accepted = indices_view(args.accepted);
  }
  params.rounding = args.rounding;
  params.tokens = static_cast<std::int32_t>(problem.tokens());
  params.committed_tokens = static_cast<std::int32_t>(problem.R);
  return params;
}

/// Whether a row of so many elements is made of whole vectors of 16 bits.
bool is_of_vectors(std::int64_t elements) {
  return elements % Config::thread_columns(sizeof(std::uint16_t)) == 0;
}

/// Columns of a thread side by side, where states' rows are vectors.
int thread_columns(const Problem& problem) {
  return is_one_token(problem) ? Config::thread_columns(size_of(problem.state_dtype))
                               : Config::kStepColumns;
}

/// Warps that `extent` needs when each takes `of_warp` of it: a power of two, at most `most`.
int warps_for(std::int64_t extent, int of_warp, int most) {
  const std::int64_t wanted = std::min<std::int64_t>((extent - 1) / of_warp + 1, most);
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
}

/// As many threads as columns.
constexpr int kMinStepWarps = Config::kStepWarpColumns / Config::kWarpThreads;

/// Of shared memory, that the kernel of any step needs.
int step_bytes(const Problem& problem, Config config) {
  config.rows = Config::kStepRows;
  config.warp_columns = Config::kStepWarpColumns;
  return Config::step_shared_bytes(config.tile_rows(Config::kStepColumns), config.tile_columns(),
                                   config.warps_k, static_cast<int>(problem.tokens()),
                                   static_cast<int>(problem.R),
                                   (problem.gates & ops::kGateGv) != 0);
}

/// Of shared memory, that products on tensor cores need.
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

/// Many threads that hold little each, whose states make room in the L2 cache for what follows.
Config small_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  const bool is_f32 = problem.state_dtype == DType::kF32;
  return tile_of(
      problem, device,
      {.rows = 8, .warp_columns = is_f32 ? 32 : Config::kStepWarpColumns, .evict_first = true},
      max_warps_v);
}
/// Fewer threads that hold more each, in longer rows.
Config large_tile(const Problem& problem, const DeviceInfo& device, int max_warps_v) {
  return with_bounded_bytes(
      tile_of(problem, device, {.rows = 16, .warp_columns = 64}, max_warps_v));
}
/// The tile of the kernel of any step. All of a row's tokens have their place in shared memory: a
/// block takes less of K where that is not enough.
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

/// The tile of products on tensor cores: all of K, where that has room in a block.
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

Config heuristic_of(const Problem& problem, const DeviceInfo& device) {
  if (takes_products(problem)) return best_product_tile(problem, device);
  if (!is_one_token(problem)) return step_tile(problem, device, 1);
  if (problem.state_dtype == DType::kF32) return best_f32_tile(problem, device);
  // Elements of 16 bits are twice as much work a byte: small tiles do that beside others' loads.
  constexpr std::int64_t kMaxKeysOfSmall = 128;
  return problem.K > kMaxKeysOfSmall ? large_tile(problem, device, 2)
                                     : small_tile(problem, device, 2);
}

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
    return heuristic_of(problem, device);
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

PoolView pool_view(const TensorView& states) {
  return {states.data, states.stride(0), states.stride(1), states.stride(2), states.stride(3)};
}

bool has_row_vectors(const TensorView& states) {
  const auto columns = static_cast<std::int64_t>(Config::thread_columns(size_of(states.dtype)));
  if (states.size(3) % columns != 0 || states.stride(3) != 1) return false;
  if (reinterpret_cast<std::uintptr_t>(states.data) % Config::kVectorBytes != 0) return false;
  for (int dim = 0; dim < 3; ++dim) {
    if (states.size(dim) > 1 && states.stride(dim) % columns != 0) return false;
  }
  return true;
}

bool is_one_token(const Problem& problem) {
  return problem.T == 0 && problem.R == 0 && !problem.kept &&
         problem.rounding == StateRounding::Kind::kNearest;
}

bool takes_products(const Problem& problem) {
  // Offsets of tokens are numbers of 32 bits there.
  const double elements = static_cast<double>(problem.B) * static_cast<double>(problem.H) *
                          static_cast<double>(std::max(problem.K, problem.V)) *
                          Config::kProductTokens;
  return !is_one_token(problem) && problem.dtype != DType::kF32 &&
         (problem.gates & ops::kGateGv) == 0 && problem.rounding == StateRounding::Kind::kNearest &&
         problem.T <= Config::kProductTokens && problem.R <= Config::kProductTokens &&
         elements < std::numeric_limits<std::int32_t>::max() && problem.aligned &&
         problem.layout == ops::Layout::kBthd && is_of_vectors(problem.K) &&
         is_of_vectors(problem.V);
}

bool has_aligned_gates(const StepParams& params) {
  const auto is_aligned = [](const GateView& gate) {
    return reinterpret_cast<std::uintptr_t>(gate.rows.data) % Config::kVectorBytes == 0;
  };
  return is_aligned(params.fresh.gk) && is_aligned(params.committed.gk);
}

DecodeConfig config_of_any_gpu(const Problem& problem) {
  DeviceInfo device;
  device.l1_bytes = 99 << 10;  // a block's on the GPUs from sm_80 on that have the least
  return heuristic_of(problem, device);
}

}  // namespace attune::cuda::decode

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_decode() {
  return std::make_unique<decode::DecodeKernel>();
}
