// What the forward kernels on wgmma with scalar decays have alike: rows and devices that they take.
#pragma once

#include <string_view>
#include <vector>

#include <attune/core/axis_values.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/padded_rows.hpp"

namespace attune::cuda::chunk_wgmma {

template <class KernelConfig>
class ForwardKernel : public Kernel<KernelConfig> {
 public:
  using Config = KernelConfig;
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionArgs;

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) {
    return problem.aligned && problem.layout != ops::Layout::kStrided;
  }
  static bool takes_rows(const Problem& problem, const Args& args) {
    return problem.aligned && has_tensor_maps(args);
  }

  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "packed", "h0", "ht", "reverse"};
  }

 protected:
  /// Whether a config has the narrowest tile of all key channels.
  static Support has_narrowest_tile(const Problem& problem, const Config& config) {
    const int tile_k = axis_value_for(&Config::tile_k, problem.K);
    if (config.tile_k == tile_k) return Support::yes();
    return Support::no(refused::kConfig,
                       str("tile_k=", config.tile_k, ": K=", problem.K, " takes ", tile_k));
  }
  /// Whether it takes the device and rows of so many key channels.
  static Support takes(const Problem& p, const DeviceInfo& device, std::int64_t most_keys) {
    if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a GPU");
    if (!device.has("sm_90a"))
      return Support::no(refused::kDevice, "needs wgmma (compute capability 9.0)");
    if (p.dtype == DType::kF32) return Support::no(refused::kDType, "f32: its operands are 16-bit");
    if (p.K > most_keys) {
      return Support::no(refused::kShape, str("K=", p.K, ": at most ", most_keys));
    }
    if (!p.aligned)
      return Support::no(refused::kAlignment, "rows that do not start at multiples of 16 bytes");
    if (p.layout == ops::Layout::kStrided) {
      return Support::no(refused::kLayout, "strided rows: strides of 0 or less have no tensor map");
    }
    if (p.B == 0 || p.T == 0) return Support::no(refused::kShape, "no tokens");
    return Support::yes();
  }
};

}  // namespace attune::cuda::chunk_wgmma
