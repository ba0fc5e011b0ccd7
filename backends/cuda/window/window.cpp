#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/window/window_kernel.hpp"

namespace attune::cuda::window {
namespace {

using ForwardArgs = ops::RecurrentAttentionArgs;

class Window : public WindowKernel<ops::RecurrentAttention> {
 public:
  std::string_view name() const noexcept override { return "cuda.window"; }

  void run(const AttentionProblem& problem, const ForwardArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    Params p = params_of(problem, args);
    p.sequences = walked_sequences(args, problem.T);
    p.tiles_per_block = config.tiles;
    p.teams = config.teams;
    p.warps = config.warps;
    Side& side = p.sides[0];
    side = value_side(problem, false, has_several(problem, config.tokens));
    side.write = token_view(args.v);
    side.other_read = token_view(args.q);
    side.other_write = token_view(args.k);
    side.gate = gate_view(args.gv);
    side.other_gate = gate_view(args.gk);
    side.initial = with_own_along_k(initial_states(args), false);
    side.final = with_own_along_k(final_states(args), false);
    side.x = token_view(args.o);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      launch_forward<T>(p, config.tokens, static_cast<cudaStream_t>(site.stream));
    });
  }
};

}  // namespace
}  // namespace attune::cuda::window

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_window() {
  return std::make_unique<WithStoredStates<window::Window>>();
}
