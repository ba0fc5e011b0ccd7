#include "cuda/gla_wgmma/gla_wgmma.hpp"

#include "cuda/chunks/channels/kernel.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"

namespace attune::cuda {
namespace {

using channels::Gated;
using channels::Problem;

struct GlaWgmma {
  using Config = gla_wgmma::GlaWgmmaConfig;
  static constexpr std::string_view kName = "cuda.gla_wgmma";
  static constexpr int kVersion = 1;
  static constexpr auto kProducts = channels::Products::kWgmma;
  static constexpr Gated kGated[] = {Gated::kKeys, Gated::kValues};

  static std::vector<std::string_view> features() {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  static Support takes(const Problem& problem, const DeviceInfo& device) {
    if (device.id.backend != "gpu" || !device.has("sm_90a")) {
      return Support::no(refused::kDevice, "needs a GPU with sm_90a code");
    }
    const bool keys = (problem.gates & ops::kGateGk) != 0;
    const bool values = (problem.gates & ops::kGateGv) != 0;
    if (keys != values) return Support::yes();
    return Support::no(refused::kFeature, "needs one of gk and gv");
  }
  /// By 210 timings of each number of stages on an H200: a fifth gains nothing, and takes 1 % longer in
  /// wide blocks, 7 to 23 % where two with gates of values would share a multiprocessor.
  static int most_stages(const Problem& problem, int tile_v) {
    const bool is_wide = tile_v > 64;
    const bool has_value_gates = channels::gated_of(problem) == Gated::kValues;
    const bool few_do = channels::is_short(problem) && (is_wide || !has_value_gates);
    return few_do ? channels::kFewestStages : channels::kFewestStages + 1;
  }
  template <class T, Gated kGated>
  static void launch(const channels::Params& params, const Config& config, cudaStream_t stream) {
    gla_wgmma::launch_gla_wgmma<T, kGated>(params, config, stream);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_gla_wgmma() {
  return std::make_unique<
      WithStoredStates<WithPaddedRows<channels::ChannelDecayKernel<GlaWgmma>>>>();
}

}  // namespace attune::cuda
