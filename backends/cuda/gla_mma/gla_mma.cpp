#include "gla_mma.hpp"

#include <algorithm>
#include <limits>

#include "cuda/chunks/segment_walk.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "launch.hpp"

namespace attune::cuda::gla_mma {
namespace {

using Config = GlaMmaConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

/// A token's product with itself is rounded as all others are. A few tokens have too few of them
/// for the roundings to even out: at T = 1 a problem in a hundred missed the tolerance. They are
/// faster one by one besides.
constexpr std::int64_t kFewestTokens = 16;
constexpr int kMostStages = 5;
constexpr int kLeastStages = 3;

Gated gated_of(const Problem& problem) {
  const bool keys = (problem.gates & ops::kGateGk) != 0;
  const bool values = (problem.gates & ops::kGateGv) != 0;
  return keys && values ? Gated::kBoth : keys ? Gated::kKeys : Gated::kValues;
}

/// Calls f.operator()<Shape>() for the shape that a problem and config have.
template <Products kProducts, class F>
auto with_shape_of(const Problem& problem, const Config& config, F&& f) {
  const int keys = padded_keys(problem.K);
  if constexpr (kProducts == Products::kWgmma) {
    return with_shape<kProducts, Gated::kKeys>(keys, config.values, f);
  } else {
    switch (gated_of(problem)) {
      case Gated::kKeys:
        return with_shape<kProducts, Gated::kKeys>(keys, config.values, f);
      case Gated::kValues:
        return with_shape<kProducts, Gated::kValues>(keys, config.values, f);
      default:
        return with_shape<kProducts, Gated::kBoth>(keys, config.values, f);
    }
  }
}

/// Blocks of the kernel that makes the outputs.
std::int64_t block_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * value_tiles(problem, config.values) * config.segments;
}

template <Products kProducts>
std::int64_t bytes_of_block(const Problem& problem, const Config& config) {
  return with_shape_of<kProducts>(problem, config, [&]<class Shape>() {
    return static_cast<std::int64_t>(shared_bytes<Shape>(config.stages));
  });
}

/// As many as there is room for, of no fewer tokens than take longer than a launch.
template <Products kProducts>
int segments_for(const Problem& problem, const DeviceInfo& device, Config config) {
  constexpr std::int64_t kLeastTokens = 256;
  config.segments = 1;
  const int by_registers = with_shape_of<kProducts>(
      problem, config, []<class Shape>() { return Shape::kResidentBlocks; });
  const std::int64_t room =
      room_for_blocks(device, bytes_of_block<kProducts>(problem, config), by_registers);
  return cuda::segments_for(problem, block_count(problem, config), room, kLeastTokens);
}

/// Whether all rows start at multiples of 16 bytes.
bool has_aligned_rows(const std::optional<ConstTensorView>& gate) {
  if (!gate) return true;
  constexpr std::int64_t kBytes = 16;
  const auto width = static_cast<std::int64_t>(size_of(gate->dtype));
  bool aligned = reinterpret_cast<std::uintptr_t>(gate->data) % kBytes == 0;
  for (int dim = 0; dim + 1 < 4; ++dim) {
    aligned = aligned && (gate->size(dim) == 1 || gate->stride(dim) * width % kBytes == 0);
  }
  return aligned;
}

/// Places the segments' states and decays; returns the bytes they take.
std::size_t place_workspace(Params& params, const Problem& problem, const Config& config,
                            std::byte* workspace) {
  if (config.segments == 1) return 0;
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t slots = problem.sequences() * problem.H * slots_of(config.segments);
  const std::int64_t keys = padded_keys(problem.K);
  const std::int64_t values = value_tiles(problem, config.values) * config.values;
  WorkspaceParts parts(workspace);
  params.segment_states = parts.take<float4>(slots * keys * values * kFloat);
  params.segment_decays = parts.take<float>(slots * keys * kFloat);
  params.segment_value_decays = parts.take<float>(slots * values * kFloat);
  return parts.used();
}

Params params_of(const Problem& problem, const Args& args, const Config& config) {
  return {walk_params(problem, args, config.values, config.stages, config.segments),
          {gate_view(args.gk), has_aligned_rows(args.gk)},
          {gate_view(args.gv), has_aligned_rows(args.gv)}};
}

template <Products kProducts, class T>
void launch_gated(Gated gated, const Params& params, const Config& config, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if constexpr (kProducts == Products::kWgmma) {
    launch_gla_mma<T, Gated::kKeys, kProducts>(params, config, on);
  } else {
    switch (gated) {
      case Gated::kKeys:
        return launch_gla_mma<T, Gated::kKeys, kProducts>(params, config, on);
      case Gated::kValues:
        return launch_gla_mma<T, Gated::kValues, kProducts>(params, config, on);
      case Gated::kBoth:
        return launch_gla_mma<T, Gated::kBoth, kProducts>(params, config, on);
    }
  }
}

/// What depends on the products that a kernel is made of.
Support has_products(const Problem& problem, const DeviceInfo& device, Products products) {
  const bool gpu = device.id.backend == "gpu";
  if (products == Products::kMma) {
    if (!gpu || !device.has("sm_80")) return Support::no(refused::kDevice, "needs sm_80");
    const bool gated = (problem.gates & (ops::kGateGk | ops::kGateGv)) != 0;
    return gated ? Support::yes()
                 : Support::no(refused::kFeature, "takes a gate per channel, gk or gv");
  }
  if (!gpu || !device.has("sm_90a"))
    return Support::no(refused::kDevice, "needs a GPU with sm_90a code");
  const bool gated = (problem.gates & (ops::kGateGk | ops::kGateGv)) == ops::kGateGk;
  return gated ? Support::yes() : Support::no(refused::kFeature, "takes gk, without gv");
}

template <Products kProducts>
class GlaMma final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override {
    return kProducts == Products::kMma ? "cuda.gla_mma" : "cuda.gla_wgmma";
  }
  int version() const noexcept override { return kProducts == Products::kMma ? 3 : 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (const Support support = has_products(problem, device, kProducts); !support) return support;
    if (problem.dtype == DType::kF32) return Support::no(refused::kDType, "takes f16 and bf16");
    if (problem.K > kMostKeys) return Support::no(refused::kShape, str("takes K <= ", kMostKeys));
    if (problem.K % kChannelsPerCopy != 0 || problem.V % kChannelsPerCopy != 0) {
      return Support::no(refused::kShape,
                         str("takes K and V that are multiples of ", kChannelsPerCopy));
    }
    if (problem.T < kFewestTokens * std::max<std::int64_t>(problem.N, 1)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kFewestTokens, " tokens or more"));
    }
    if (problem.T > kMostTokens)
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    if (!problem.aligned)
      return Support::no(refused::kAlignment, "takes rows that start at multiples of 16 bytes");
    if (problem.H > std::numeric_limits<int>::max() ||
        block_count(problem, {.values = 64}) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "has more heads than a launch has blocks");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (!is_compiled(padded_keys(problem.K), config.values, gated_of(problem))) {
      return Support::no(refused::kInstance, "values=128 is for K <= 128 without gv");
    }
    const std::int64_t bytes = bytes_of_block<kProducts>(problem, config);
    if (bytes > device.l1_bytes) {
      return Support::no(
          refused::kMemory,
          str("needs ", bytes, " bytes of shared memory a block, of which there are ",
              device.l1_bytes));
    }
    if (block_count(problem, config) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "needs more blocks than a launch may have");
    }
    return Support::yes();
  }

  /// Wide blocks make the operands of a head once. Three slots suffice where a chunk takes long; of
  /// short ones, as many as there is memory for.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config config{.values = 64, .stages = kMostStages};
    if (problem.V > 64 && is_compiled(padded_keys(problem.K), 128, gated_of(problem))) {
      config.values = 128;
    }
    if (kProducts == Products::kMma && gated_of(problem) == Gated::kKeys && config.values == 128 &&
        problem.K > 64) {
      config.stages = kLeastStages;
    }
    while (config.stages > kLeastStages && !fits(problem, device, config)) --config.stages;
    config.segments = segments_for<kProducts>(problem, device, config);
    return config;
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const int values : {64, 128}) {
      if (values > 64 && problem.V <= 64) continue;
      for (const int stages : {3, 4, 5}) {
        Config config{.values = values, .stages = stages};
        if (!fits(problem, device, config)) continue;
        const int segments = segments_for<kProducts>(problem, device, config);
        for (const int count : {segments / 2, segments, segments * 2}) {
          config.segments = count;
          if (count >= 1 && count <= kMostSegments && fits(problem, device, config)) {
            configs.push_back(config);
          }
        }
      }
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    Params unplaced;
    return place_workspace(unplaced, problem, config, nullptr);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    Params params = params_of(problem, args, config);
    place_workspace(params, problem, config, site.workspace.data());
    if (problem.dtype == DType::kF16) {
      launch_gated<kProducts, __half>(gated_of(problem), params, config, site.stream);
    } else {
      launch_gated<kProducts, __nv_bfloat16>(gated_of(problem), params, config, site.stream);
    }
  }
};

}  // namespace
}  // namespace attune::cuda::gla_mma

namespace attune::cuda {
std::unique_ptr<const ErasedKernel> make_gla_mma() {
  return std::make_unique<gla_mma::GlaMma<gla_mma::Products::kMma>>();
}
std::unique_ptr<const ErasedKernel> make_gla_wgmma() {
  return std::make_unique<gla_mma::GlaMma<gla_mma::Products::kWgmma>>();
}
}  // namespace attune::cuda
