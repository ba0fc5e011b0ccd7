#include "cuda/gla_mma/gla_mma.hpp"

#include "cuda/chunks/channels/kernel.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"

namespace attune::cuda {
namespace {

using channels::Gated;
using channels::Problem;

struct GlaMma {
  using Config = gla_mma::GlaMmaConfig;
  static constexpr std::string_view kName = "cuda.gla_mma";
  static constexpr int kVersion = 3;
  static constexpr auto kProducts = channels::Products::kMma;
  static constexpr Gated kGated[] = {Gated::kKeys, Gated::kValues, Gated::kBoth};

  static std::vector<std::string_view> features() {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  static Support takes(const Problem& problem, const DeviceInfo& device) {
    if (device.id.backend != "gpu" || !device.has("sm_80")) {
      return Support::no(refused::kDevice, "needs sm_80");
    }
    if ((problem.gates & (ops::kGateGk | ops::kGateGv)) == 0) {
      return Support::no(refused::kFeature, "takes a gate per channel, gk or gv");
    }
    return Support::yes();
  }
  static int most_stages(const Problem& problem, int tile_v) {
    const bool is_large = tile_v > 64 && problem.K > 64;
    const bool few_do = channels::gated_of(problem) == Gated::kKeys && is_large;
    return few_do || channels::is_short(problem) ? channels::kFewestStages
                                                 : largest_value(&Config::stages);
  }
  template <class T, Gated kGated>
  static void launch(const channels::Params& params, const Config& config, cudaStream_t stream) {
    gla_mma::launch_gla_mma<T, kGated>(params, config, stream);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_gla_mma() {
  return std::make_unique<WithStoredStates<WithPaddedRows<channels::ChannelDecayKernel<GlaMma>>>>();
}

}  // namespace attune::cuda
