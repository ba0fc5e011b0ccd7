// The backward pass, token by token: two sides, one after the other in the same workspace. The key
// side computes dq, dk and the gradients of gk, g and gamma; the value side computes dv and the
// gradient of gv. Each is a walk with the state and one back with its gradient (walk.hpp); on the
// value side the first is only needed for gv.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <span>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/fused_recurrent/gate_gradients.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;
using Config = FusedRecurrentBackwardConfig;

constexpr std::int32_t kGatesOfKeySide = ops::kGateG | ops::kGateGamma | ops::kGateGk;

/// Floats of the workspace that a side uses, by what for.
struct SideSizes {
  std::int64_t first = 0;   // planes of the walk with the state
  std::int64_t second = 0;  // planes of the walk back
  std::int64_t states = 0;
  std::int64_t products = 0;

  std::int64_t total() const { return first + second + states + products; }
};

std::int64_t checkpoints_of(const Problem& problem, const Config& config) {
  return checkpoint_count(problem.sequences(), problem.T, problem.N > 0, config.interval);
}

/// `gates`: whether gradients of gates come from this side. `rows` and `columns` of its walks.
SideSizes side_sizes(const Problem& problem, const Config& config, std::int64_t rows,
                     std::int64_t columns, bool gates) {
  const WalkShape shape = config.shape();
  const std::int64_t blocks = row_blocks(shape, rows);
  const std::int64_t planes = blocks * problem.B * problem.T * problem.H * columns;
  const bool shares_heads = problem.H != problem.Hkv;
  SideSizes sizes;
  if (gates || blocks > 1) sizes.first = planes;
  if (gates || blocks > 1 || shares_heads) sizes.second = planes;
  if (gates) {
    const std::int64_t checkpoints = checkpoints_of(problem, config);
    sizes.states = checkpoints * checkpoint_floats(shape, problem.H, rows, columns);
    sizes.products = blocks * shape.row_warps * checkpoints * problem.H * columns;
  }
  return sizes;
}

SideSizes key_side_sizes(const Problem& problem, const Config& config) {
  const bool gates = (problem.gates & kGatesOfKeySide) != 0;
  return side_sizes(problem, config, problem.V, problem.K, gates);
}
SideSizes value_side_sizes(const Problem& problem, const Config& config) {
  const bool gates = (problem.gates & ops::kGateGv) != 0;
  SideSizes sizes = side_sizes(problem, config, problem.K, problem.V, gates);
  if (!gates) sizes.first = 0;  // o is not recomputed
  return sizes;
}

std::int64_t gamma_floats(const Problem& problem, const Config& config) {
  return (problem.gates & ops::kGateGamma) != 0 ? checkpoints_of(problem, config) * problem.H : 0;
}

/// A state as the walks of the key side have it: with V's channels as rows.
template <class View>
View transposed(View view) {
  std::swap(view.k, view.v);
  return view;
}

/// The memory of one side; null for what the side does without.
struct SideMemory {
  SideMemory(const SideSizes& sizes, float* at) {
    const auto take = [&at](std::int64_t floats) {
      float* const taken = floats > 0 ? at : nullptr;
      at += floats;
      return taken;
    };
    states = take(sizes.states);  // first: they are moved 16 bytes at a time
    first = take(sizes.first);
    second = take(sizes.second);
    products = take(sizes.products);
  }
  float* states = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  float* products = nullptr;
};

template <class T>
class BackwardPasses {
 public:
  BackwardPasses(const Problem& problem, const Args& args, const Config& config,
                 std::span<std::byte> workspace, cudaStream_t stream)
      : problem_(problem),
        args_(args),
        config_(config),
        gamma_terms_(reinterpret_cast<float*>(workspace.data())),
        side_memory_(gamma_terms_ + rounded_gamma_floats(problem, config)),
        stream_(stream) {}

  /// The floats before a side's memory, which stays aligned to 64 bytes.
  static std::int64_t rounded_gamma_floats(const Problem& problem, const Config& config) {
    constexpr std::int64_t kFloats = 16;
    return ceil_div(gamma_floats(problem, config), kFloats) * kFloats;
  }

  void key_side() const {
    const SideMemory memory(key_side_sizes(problem_, config_), side_memory_);
    WalkParams dq = walk(problem_.V, problem_.K, memory);
    dq.read = rows(args_.d_o);
    dq.write = shared_rows(args_.v);
    dq.value = shared_rows(args_.k);
    dq.read_scale = scale();
    dq.initial = transposed(state_view(args_.initial_state));
    set_channel_gates(dq, args_.gv, args_.gk);
    run(dq, memory.first, &args_.dq, 1);

    WalkParams dk = walk_back(problem_.V, problem_.K, memory);
    dk.read = shared_rows(args_.v);
    dk.write = rows(args_.d_o);
    dk.value = rows(args_.q);
    dk.initial = transposed(state_view(args_.dfinal_state));
    set_channel_gates(dk, args_.gv, args_.gk);
    run(dk, memory.second, &args_.dk, heads_per_kv());

    if (memory.products == nullptr) return;
    GateGradientParams gates = gate_gradients(dq, memory);
    gates.gained = {token_view(args_.q), 1, memory.first};
    gates.lost = {token_view(args_.k), heads_per_kv(), memory.second};
    gates.channel_gate = gate_view(args_.gk);
    gates.channels = token_view(args_.dgk);
    gates.shared = token_view(args_.dg);
    gates.gamma_terms = args_.dgamma ? gamma_terms_ : nullptr;
    launch_gate_gradients<T>(gates, stream_);
    if (args_.dgamma) gamma_gradient(*args_.dgamma);
  }

  void value_side() const {
    const SideMemory memory(value_side_sizes(problem_, config_), side_memory_);
    WalkParams o = walk(problem_.K, problem_.V, memory);
    if (memory.products != nullptr) {
      o.read = rows(args_.q);
      o.write = shared_rows(args_.k);
      o.value = shared_rows(args_.v);
      o.read_scale = scale();
      o.initial = state_view(args_.initial_state);
      set_channel_gates(o, args_.gk, args_.gv);
      run(o, memory.first, nullptr, 1);
    }

    WalkParams dv = walk_back(problem_.K, problem_.V, memory);
    dv.read = shared_rows(args_.k);
    dv.write = rows(args_.q);
    dv.value = rows(args_.d_o);
    dv.initial = state_view(args_.dfinal_state);
    dv.final = state_view(args_.dinitial_state);
    dv.decays_last = args_.dinitial_state.has_value();
    set_channel_gates(dv, args_.gk, args_.gv);
    run(dv, memory.second, &args_.dv, heads_per_kv());

    if (memory.products == nullptr) return;
    GateGradientParams gates = gate_gradients(o, memory);
    gates.gained = {token_view(args_.d_o), 1, memory.first};
    gates.lost = {token_view(args_.v), heads_per_kv(), memory.second};
    gates.channel_gate = gate_view(args_.gv);
    gates.channels = token_view(args_.dgv);
    launch_gate_gradients<T>(gates, stream_);
  }

 private:
  std::int64_t heads_per_kv() const { return problem_.H / problem_.Hkv; }
  float scale() const { return static_cast<float>(args_.scale); }

  WalkRows rows(const std::optional<ConstTensorView>& tensor) const {
    return tensor ? walk_rows(*tensor, 1) : WalkRows{};
  }
  WalkRows shared_rows(const ConstTensorView& tensor) const {
    return walk_rows(tensor, heads_per_kv());
  }

  static void set_channel_gates(WalkParams& params, const std::optional<ConstTensorView>& rows,
                                const std::optional<ConstTensorView>& columns) {
    params.row_gate = walk_gate(rows);
    params.column_gate = walk_gate(columns);
  }

  /// What all walks have alike; this one goes with the state.
  WalkParams walk(std::int64_t rows, std::int64_t columns, const SideMemory& memory) const {
    WalkParams params;
    params.sequences = sequences_view(args_.cu_seqlens, problem_.T);
    params.batches = problem_.B;
    params.sequence_count = problem_.sequences();
    params.heads = problem_.H;
    params.rows = rows;
    params.columns = columns;
    params.descending = problem_.reverse;
    params.shared_gate = gate_view(args_.g);
    params.gamma = decay_view(args_.gamma, problem_.H);
    if (memory.states != nullptr) {
      params.checkpoints = {.use = WalkCheckpoints::Use::kKeep,
                            .interval = config_.interval,
                            .states = memory.states,
                            .products = memory.products,
                            .count = checkpoints_of(problem_, config_)};
    }
    return params;
  }

  /// This one goes back with the state's gradient.
  WalkParams walk_back(std::int64_t rows, std::int64_t columns, const SideMemory& memory) const {
    WalkParams params = walk(rows, columns, memory);
    params.descending = !params.descending;
    params.lags = true;
    params.write_scale = scale();
    if (memory.states != nullptr) params.checkpoints.use = WalkCheckpoints::Use::kMeet;
    return params;
  }

  /// Walks, and writes `out` if there is one: at once where each of its rows is read by one block.
  void run(WalkParams& params, float* planes, const TensorView* out,
           std::int64_t heads_per_row) const {
    const WalkShape shape = config_.shape();
    const std::int64_t blocks = row_blocks(shape, params.rows);
    const bool at_once = blocks == 1 && heads_per_row == 1;
    params.planes = planes;
    if (at_once && out != nullptr) {
      params.out = token_view(*out);
      params.out_vectors = moves_in_quads(*out);
    }
    launch_walk<T>(shape, params, stream_);
    if (at_once || out == nullptr) return;
    launch_plane_sums<T>({.planes = planes,
                          .plane_count = blocks,
                          .batches = problem_.B,
                          .tokens = problem_.T,
                          .heads = problem_.H,
                          .columns = params.columns,
                          .group = heads_per_row,
                          .out = token_view(*out)},
                         stream_);
  }

  /// Of the channels of the columns of `first`, the walk with the state.
  GateGradientParams gate_gradients(const WalkParams& first, const SideMemory& memory) const {
    const std::int64_t blocks = row_blocks(config_.shape(), first.rows);
    GateGradientParams params;
    params.sequences = first.sequences;
    params.batches = problem_.B;
    params.sequence_count = first.sequence_count;
    params.heads = problem_.H;
    params.columns = first.columns;
    params.descending = first.descending;
    params.has_initial = args_.initial_state.has_value();
    params.plane_count = blocks;
    params.products = memory.products;
    params.product_planes = blocks * config_.row_warps;
    params.checkpoints = first.checkpoints.count;
    params.interval = config_.interval;
    params.shared_gate = gate_view(args_.g);
    params.gamma = first.gamma;
    return params;
  }

  void gamma_gradient(const TensorView& out) const {
    using Source = ops::ConstantDecay::Source;
    launch_gamma_gradient({.sequences = sequences_view(args_.cu_seqlens, problem_.T),
                           .sequence_count = problem_.sequences(),
                           .heads = problem_.H,
                           .terms = gamma_terms_,
                           .checkpoints = checkpoints_of(problem_, config_),
                           .interval = config_.interval,
                           .out = static_cast<float*>(out.data),
                           .sequence_stride = out.stride(0),
                           .head_stride = out.stride(1),
                           .sign = args_.gamma.source == Source::kSlopes ? -1.0F : 1.0F},
                          stream_);
  }

  const Problem& problem_;
  const Args& args_;
  const Config& config_;
  float* gamma_terms_;  // [checkpoints, H]
  float* side_memory_;
  cudaStream_t stream_;
};

std::size_t backward_workspace_bytes(const Problem& problem, const Config& config) {
  const std::int64_t side =
      std::max(key_side_sizes(problem, config).total(), value_side_sizes(problem, config).total());
  const std::int64_t gamma = BackwardPasses<float>::rounded_gamma_floats(problem, config);
  return static_cast<std::size_t>(gamma + side) * sizeof(float);
}

Config config_of(const WalkShape& shape, int interval) {
  return {.rows_per_lane = shape.rows_per_lane,
          .row_warps = shape.row_warps,
          .column_warps = shape.column_warps,
          .tokens = shape.tokens,
          .interval = interval};
}

/// Of both sides' walks: of the one that has V's channels as rows, and the one that has K's.
WalkExtents extents_of(const Problem& problem) {
  const int gates = channel_gates(problem);
  const bool one_sided = gates == kRowGates || gates == kColumnGates;
  const std::int64_t larger = std::max(problem.K, problem.V);
  return {.heads = problem.sequences() * problem.H,
          .rows = larger,
          .columns = larger,
          .gates = one_sided ? kRowGates : gates,  // of which there are more than of columns
          .exact = problem.dtype == DType::kF32};
}

static_assert(std::ranges::max(kAxisValues<&Config::interval>) <= kMaxInterval);

/// A gate's gradient is a sum from the next checkpoint on, of terms that cancel: over 256 tokens
/// f32 loses more than its tolerance allows.
int longest_interval(const Problem& problem) {
  return problem.dtype == DType::kF32 ? 64 : Config{}.interval;
}

class FusedRecurrentBackwardKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.fused_recurrent.backward"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return needs_gpu(device);
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.interval > longest_interval(problem)) {
      return Support::no(refused::kConfig, str("interval=", config.interval, ": f32 takes at most ",
                                               longest_interval(problem)));
    }
    const WalkExtents extents = extents_of(problem);
    if (extents.gates == kRowGates) {  // on one of the sides they are the columns'
      WalkExtents other_side = extents;
      other_side.gates = kColumnGates;
      if (const Support fit = walk_fits(config.shape(), other_side, device); !fit) return fit;
    }
    return walk_fits(config.shape(), extents, device);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return config_of(heuristic_shape(extents_of(problem), device), longest_interval(problem));
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkShape& shape : candidate_shapes(extents_of(problem), device)) {
      const Config config = config_of(shape, longest_interval(problem));
      if (fits(problem, device, config)) configs.push_back(config);
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return backward_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      const BackwardPasses<T> passes(problem, args, config, site.workspace, stream);
      passes.key_side();
      passes.value_side();
    });
  }
};

}  // namespace
}  // namespace attune::cuda::fused_recurrent

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_fused_recurrent_backward() {
  return std::make_unique<fused_recurrent::FusedRecurrentBackwardKernel>();
}
