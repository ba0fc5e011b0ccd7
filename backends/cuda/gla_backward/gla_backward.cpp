#include "cuda/gla_backward/gla_backward.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/attention/group_sums.hpp"
#include "cuda/chunk/tensor_map.hpp"
#include "cuda/gla_backward/launch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::gla_backward {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr std::int64_t kChunk = 64;  // tokens
constexpr std::int64_t kSmallTile = 64;
constexpr std::int64_t kLargeTile = 128;
constexpr std::int64_t kRowElements = 8;  // of 16 bytes
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 29;

/// Nothing to tune yet: chunks are of 64 tokens, a block has a sequence and head.
struct Config {
  using Op = ops::RecurrentAttentionBackward;
  friend constexpr bool operator==(const Config&, const Config&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

bool values_have_gates(const Problem& problem) { return (problem.gates & ops::kGateGv) != 0; }

std::int64_t tile_channels(const Problem& problem) {
  return std::max(problem.K, problem.V) <= kSmallTile ? kSmallTile : kLargeTile;
}

/// Of one head: one a chunk, however the tokens of packed sequences are divided.
std::int64_t chunk_slots(const Problem& problem) {
  if (problem.N > 0) return problem.T / kChunk + problem.N;
  return problem.B * ((problem.T + kChunk - 1) / kChunk);
}

CUtensorMap map_of(const ConstTensorView& tensor) {
  return tensor.empty() ? CUtensorMap{} : head_map(tensor, kChunk);
}

/// Strides of a state with the gated side's channels first.
template <class View>
View own_first(View view, bool values_first) {
  if (values_first) std::swap(view.k, view.v);
  return view;
}

/// Whether rows start at multiples of two elements.
bool in_pairs(const ConstTensorView& tensor) {
  bool even = reinterpret_cast<std::uintptr_t>(tensor.data) % (2 * size_of(tensor.dtype)) == 0;
  for (int dim = 0; dim + 1 < 4; ++dim) {
    even = even && (tensor.size(dim) == 1 || tensor.stride(dim) % 2 == 0);
  }
  return even;
}

void set_key_side(GlaBackwardParams& params, const Args& args) {
  params.x = token_view(args.q);
  params.y = token_view(args.k);
  params.u = token_view(*args.d_o);
  params.z = token_view(args.v);
  params.dx = token_view(args.dq);
  params.dy = token_view(args.dk);
  params.dz = token_view(args.dv);
  params.u_map = map_of(*args.d_o);
  params.z_map = map_of(args.v);
  params.channel_gate = gate_view(args.gk);
  params.dchannel_gate = token_view(args.dgk);
  params.gate_in_pairs = in_pairs(*args.gk) && in_pairs(*args.dgk);
}

void set_value_side(GlaBackwardParams& params, const Args& args) {
  params.x = token_view(*args.d_o);
  params.y = token_view(args.v);
  params.u = token_view(args.q);
  params.z = token_view(args.k);
  params.dy = token_view(args.dv);
  params.dz = token_view(args.dk);
  params.du = token_view(args.dq);
  params.u_map = map_of(args.q);
  params.z_map = map_of(args.k);
  params.channel_gate = gate_view(args.gv);
  params.dchannel_gate = token_view(args.dgv);
  params.gate_in_pairs = in_pairs(*args.gv) && in_pairs(*args.dgv);
}

std::size_t place_workspace(GlaBackwardParams& params, const Problem& problem,
                            std::byte* workspace) {
  constexpr std::int64_t kElement = 2;  // bytes of f16 and bf16
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t channels = tile_channels(problem);
  params.slots = chunk_slots(problem);
  const std::int64_t chunks = params.slots * problem.H;
  const std::int64_t tiles = chunks * kChunk * channels * kElement;
  WorkspaceParts parts(workspace);
  params.entering_x = parts.take(tiles);
  params.leaving_y = parts.take(tiles);
  params.x_flow = parts.take(tiles);
  params.y_flow = parts.take(tiles);
  params.z_flow = parts.take(tiles);
  if (values_have_gates(problem)) params.u_flow = parts.take(tiles);
  params.states = parts.take(chunks * channels * channels * kElement);
  params.through = parts.take<float>(chunks * channels * kFloat);
  params.strong = parts.take<unsigned>(chunks * (channels / kSmallTile) * kFloat);
  params.anchors = parts.take<float>(chunks * channels * kFloat);
  if ((problem.gates & ops::kGateGamma) != 0) {
    params.dgamma_parts = parts.take<float>(chunks * kFloat);
  }
  if (problem.H != problem.Hkv) {
    const std::int64_t rows = std::max<std::int64_t>(problem.B, 1) * problem.T * problem.H;
    const bool on_values = values_have_gates(problem);
    params.dy_shares = parts.take(rows * (on_values ? problem.V : problem.K) * kElement);
    params.dz_shares = parts.take(rows * (on_values ? problem.K : problem.V) * kElement);
  }
  return parts.used();
}

/// Rows of the workspace for each token and head.
TokenView rows_of_shares(const Problem& problem, void* shares, std::int64_t channels) {
  return {shares, problem.T * problem.H * channels, problem.H * channels, channels};
}

GlaBackwardParams params_of(const Problem& problem, const Args& args, const LaunchSite& site) {
  using Source = ops::ConstantDecay::Source;
  GlaBackwardParams params;
  const bool on_values = values_have_gates(problem);
  on_values ? set_value_side(params, args) : set_key_side(params, args);
  params.own = static_cast<int>(on_values ? problem.V : problem.K);
  params.other = static_cast<int>(on_values ? problem.K : problem.V);
  params.g = gate_view(args.g);
  params.gamma = decay_view(args.gamma, problem.H);
  params.dg = token_view(args.dg);
  if (args.dgamma) {
    params.dgamma = {static_cast<float*>(args.dgamma->data), args.dgamma->stride(0),
                     args.dgamma->stride(1)};
  }
  if (args.gamma.source == Source::kSlopes) params.dgamma_sign = -1.0F;
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.sequence_count = problem.sequences();
  params.initial_state = own_first(state_view(args.initial_state), on_values);
  params.dfinal_state = own_first(state_view(args.dfinal_state), on_values);
  params.dinitial_state = own_first(state_view(args.dinitial_state), on_values);
  params.heads = problem.H;
  params.group = static_cast<int>(problem.Hkv > 0 ? problem.H / problem.Hkv : 1);
  params.scale = static_cast<float>(args.scale);
  params.reverse = problem.reverse;
  place_workspace(params, problem, site.workspace.data());
  if (!args.dgamma) params.dgamma_parts = nullptr;
  if (params.group > 1) {
    params.dy = rows_of_shares(problem, params.dy_shares, params.own);
    params.dz = rows_of_shares(problem, params.dz_shares, params.other);
  }
  return params;
}

template <class T>
void sum_shares(const void* shares, const Problem& problem, const TensorView& out,
                cudaStream_t stream) {
  launch_group_sums<T>({.shares = shares,
                        .rows = problem.B * problem.T,
                        .tokens = problem.T,
                        .heads = problem.Hkv,
                        .group = problem.H / problem.Hkv,
                        .columns = out.size(3),
                        .out = token_view(out)},
                       stream);
}

template <class T, int kD>
void run_as(const GlaBackwardParams& params, const Problem& problem, const Args& args,
            cudaStream_t stream) {
  launch_prepare<T, kD>(params, stream);
  launch_state_walks<T, kD>(params, stream);
  launch_pairs<T, kD>(params, stream);
  if (params.group > 1) {
    const bool on_values = values_have_gates(problem);
    sum_shares<T>(params.dy_shares, problem, on_values ? args.dv : args.dk, stream);
    sum_shares<T>(params.dz_shares, problem, on_values ? args.dk : args.dv, stream);
  }
  if (params.dgamma.data != nullptr) launch_sum_dgamma(params, stream);
}

class GlaBackwardKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.gla.backward"; }
  int version() const noexcept override { return 2; }

  Support supports(const Problem& p, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_90a")) {
      return Support::no("needs a GPU with sm_90a code");
    }
    if (p.dtype == DType::kF32) return Support::no("takes f16 and bf16 only");
    const bool keys = (p.gates & ops::kGateGk) != 0;
    if (keys == values_have_gates(p)) return Support::no("takes one of gk and gv");
    if (!p.d_o) return Support::no("needs the gradient of o");
    if (!p.aligned || p.K % kRowElements != 0 || p.V % kRowElements != 0) {
      return Support::no("needs rows aligned to 16 bytes");
    }
    if (p.K > kLargeTile || p.V > kLargeTile) return Support::no("takes K, V up to 128");
    if (p.T > kMostTokens || (chunk_slots(p) + p.sequences()) * p.H > kMostBlocks) {
      return Support::no("takes up to 2^30 tokens and 2^29 chunks x heads");
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }

  std::size_t workspace_bytes(const Problem& problem, const Config&) const override {
    GlaBackwardParams unused;
    return place_workspace(unused, problem, nullptr);
  }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const GlaBackwardParams params = params_of(problem, args, site);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const bool small = tile_channels(problem) == kSmallTile;
    if (problem.dtype == DType::kBF16) {
      small ? run_as<__nv_bfloat16, kSmallTile>(params, problem, args, stream)
            : run_as<__nv_bfloat16, kLargeTile>(params, problem, args, stream);
    } else {
      small ? run_as<__half, kSmallTile>(params, problem, args, stream)
            : run_as<__half, kLargeTile>(params, problem, args, stream);
    }
  }
};

}  // namespace
}  // namespace attune::cuda::gla_backward

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_gla_backward() {
  return std::make_unique<gla_backward::GlaBackwardKernel>();
}

}  // namespace attune::cuda
