#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/window/sums.hpp"
#include "cuda/window/window_kernel.hpp"

namespace attune::cuda::window {
namespace {

using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

/// The memory of a backward pass, of which none is there while its bytes are counted.
struct BackwardMemory {
  BackwardMemory(const AttentionProblem& problem, int tokens, std::byte* memory) : parts(memory) {
    const std::int64_t rows = problem.B * problem.T * problem.H;
    const bool several = has_several(problem, tokens);
    const std::int32_t gates = problem.gates;
    const std::int64_t tiles = key_parts(problem, tokens);
    if (problem.H != problem.Hkv) {
      dk_of_heads = floats(rows * problem.K);
      dv_of_heads = floats(rows * problem.V);
    }
    if ((gates & ops::kGateG) != 0 && tiles > 1) dg_of_tiles = floats(rows * tiles);
    if (adds_up_gamma(problem, tokens))
      gamma_terms = floats(problem.sequences() * problem.H * tiles);
    if (several && (gates & (kSharedGates | ops::kGateGk)) != 0)
      key_terms = floats(rows * problem.K);
    if (several && (gates & ops::kGateGv) != 0) value_terms = floats(rows * problem.V);
  }
  float* floats(std::int64_t count) {
    return parts.take<float>(count * static_cast<std::int64_t>(sizeof(float)));
  }

  WorkspaceParts parts;
  float* dk_of_heads = nullptr;
  float* dv_of_heads = nullptr;
  float* dg_of_tiles = nullptr;
  float* gamma_terms = nullptr;
  float* key_terms = nullptr;
  float* value_terms = nullptr;
};

class WindowBackward final : public WindowKernel<ops::RecurrentAttentionBackward> {
 public:
  std::string_view name() const noexcept override { return "cuda.window.backward"; }

  std::size_t workspace_bytes(const AttentionProblem& problem,
                              const Config& config) const override {
    return BackwardMemory(problem, config.tokens, nullptr).parts.used();
  }

  void run(const AttentionProblem& problem, const BackwardArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const BackwardMemory memory(problem, config.tokens, site.workspace.data());
    const bool several = has_several(problem, config.tokens);
    Params p = params_of(problem, args);
    p.tiles_per_block = config.tiles;
    p.teams = config.teams;
    p.warps = config.warps;
    p.side_count = 2;
    p.sides[0] = keys(key_side(problem, several), args, memory);
    p.sides[1] = values(value_side(problem, true, several), args, memory);
    Sums left = sums(p, args, memory, key_parts(problem, config.tokens));
    if (config.tokens == 1 && args.dgamma) place_gamma(p, left.gamma);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      if (config.tokens == 1) {
        launch_single_tokens<T>(p, stream);
      } else {
        launch_backward<T>(p, config.tokens, stream);
      }
      launch_sums<T>(left, stream);
    });
  }

 private:
  static Side keys(Side side, const BackwardArgs& args, const BackwardMemory& memory) {
    side.read = token_view(args.q);
    side.write = token_view(args.k);
    side.other_read = token_view(args.d_o);
    side.other_write = token_view(args.v);
    side.gate = gate_view(args.gk);
    side.other_gate = gate_view(args.gv);
    side.initial = state_view(args.initial_state);
    side.final_gradient = state_view(args.dfinal_state);
    side.x = token_view(args.dq);
    side.y = token_view(args.dk);
    side.y_of_heads = memory.dk_of_heads;
    side.gate_gradient = token_view(args.dgk);
    side.shared_gradient = token_view(args.dg);
    side.shared_terms = args.dg ? memory.dg_of_tiles : nullptr;
    side.gamma_terms = args.dgamma ? memory.gamma_terms : nullptr;
    side.read_terms = memory.key_terms;
    return side;
  }

  static Side values(Side side, const BackwardArgs& args, const BackwardMemory& memory) {
    side.read = token_view(args.d_o);
    side.write = token_view(args.v);
    side.other_read = token_view(args.q);
    side.other_write = token_view(args.k);
    side.gate = gate_view(args.gv);
    side.other_gate = gate_view(args.gk);
    side.initial = with_own_along_k(state_view(args.initial_state), false);
    side.final_gradient = with_own_along_k(state_view(args.dfinal_state), false);
    side.initial_gradient = with_own_along_k(state_view(args.dinitial_state), false);
    side.y = token_view(args.dv);
    side.y_of_heads = memory.dv_of_heads;
    side.gate_gradient = token_view(args.dgv);
    side.read_terms = memory.value_terms;
    return side;
  }

  /// Single tokens: where a block's sum is all of a gradient, it is written as such, and is a term
  /// of it elsewhere.
  static void place_gamma(Params& p, GammaGradient& gamma) {
    if (gamma.shared() && p.sequence_count > 1) {
      p.gamma_gradient = {.data = p.sides[0].gamma_terms, .sequence = p.heads, .head = 1};
    } else {
      p.gamma_gradient = gamma.out;
      p.gamma_sign = gamma.sign;
      gamma = {};  // nothing is left to add up
    }
  }

  static Sums sums(const Params& p, const BackwardArgs& args, const BackwardMemory& memory,
                   std::int64_t key_parts) {
    const auto planes = [&](const float* from, std::int64_t columns, const TensorView& out) {
      return PlaneSumParams{.planes = from,
                            .batches = p.batches,
                            .tokens = p.sequences.tokens,
                            .heads = p.heads,
                            .columns = columns,
                            .group = p.heads_per_kv,
                            .out = token_view(out),
                            .sequences = p.sequences,
                            .sequence_count = p.sequence_count};
    };
    Sums left;
    left.keys = planes(memory.dk_of_heads, p.sides[0].channels, args.dk);
    left.values = planes(memory.dv_of_heads, p.sides[1].channels, args.dv);
    if (args.dg) {
      left.shared = planes(memory.dg_of_tiles, 1, *args.dg);
      left.shared.plane_count = key_parts;
      left.shared.group = 1;
    }
    if (args.dgamma) {
      const bool negated = args.gamma.source == ops::ConstantDecay::Source::kSlopes;
      left.gamma = {.terms = memory.gamma_terms,
                    .out = {.data = static_cast<float*>(args.dgamma->data),
                            .sequence = args.dgamma->stride(0),
                            .head = args.dgamma->stride(1)},
                    .sign = negated ? -1.0F : 1.0F,
                    .heads = p.heads,
                    .sequences = p.sequences,
                    .sequence_count = p.sequence_count};
      left.gamma_terms = key_parts;
    }
    return left;
  }
};

}  // namespace
}  // namespace attune::cuda::window

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_window_backward() {
  return std::make_unique<window::WindowBackward>();
}
