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
  static bool fewest_stages_do(const Problem&, const Config&) { return false; }
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
