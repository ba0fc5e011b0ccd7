#include <algorithm>
#include <bit>
#include <optional>
#include <type_traits>

#include "cuda/chunks/next_walked.cuh"
#include "cuda/chunks/wide_states.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/state_rounding.cuh"
#include "cuda/walks/sequence_parts.cuh"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {
inline namespace wide_states_kernels {  // nvcc names an anonymous one anew in every build

using Params = WideStates::Params;

constexpr int kThreads = 256;
constexpr int kQuad = 4;

/// The view of a tensor whose elements are what they are.
template <class Element, class View>
__device__ __forceinline__ StatesView<Element> view_as(const View& view) {
  return {
      reinterpret_cast<Element*>(view.data), view.sequence, view.head, view.k, view.v, view.slots};
}

/// Calls visit(i, j, at, offset) for the elements of a head's state that the thread takes, every
/// kStep-th column of it: i and j in the state, `at` in the copy, `offset` from the state's first.
/// Quotients of 64 bits would take longer than the copies.
template <int kStep, class View, class Visit>
__device__ __forceinline__ void for_each_element(const Params& p, const View& state,
                                                 std::int64_t head, Visit&& visit) {
  const auto across = static_cast<unsigned>(p.columns) / kStep;
  const unsigned steps = static_cast<unsigned>(p.rows) * across;
#pragma unroll 4
  for (unsigned e = threadIdx.x; e < steps; e += kThreads) {
    const std::int64_t i = e / across;
    const std::int64_t j = e % across * kStep;
    visit(i, j, i * p.columns + j, head * state.head + i * state.k + j * state.v);
  }
}

template <class Element>
struct alignas(kQuad * sizeof(Element)) Quad {
  Element of[kQuad];
};

/// Four elements that the launch does not write: several such loads may be under way at once.
template <class Element>
__device__ __forceinline__ Quad<Element> load_quad(const Element* from) {
  using Words = std::conditional_t<sizeof(Element) == sizeof(float), uint4, uint2>;
  return std::bit_cast<Quad<Element>>(__ldg(reinterpret_cast<const Words*>(from)));
}

/// The elements of a copy of a head's state; zeros where there is none.
template <class State, int kStep>
__device__ __forceinline__ void widen(const Params& p, const StatesView<const State>& from,
                                      std::int64_t head, float* to) {
  for_each_element<kStep>(
      p, from, head, [&](std::int64_t, std::int64_t, std::int64_t at, std::int64_t offset) {
        if constexpr (kStep == kQuad) {
          Quad<State> bits{};
          if (from.data != nullptr) bits = load_quad(from.data + offset);
          *reinterpret_cast<float4*>(to + at) = {to_float(bits.of[0]), to_float(bits.of[1]),
                                                 to_float(bits.of[2]), to_float(bits.of[3])};
        } else {
          to[at] = from.data == nullptr ? 0.0F : to_float(from.data[offset]);
        }
      });
}

/// `number`: of the state in its tensor or pool.
template <class State, int kStep>
__device__ __forceinline__ void narrow(const Params& p, const float* from, std::int64_t head,
                                       const StatesView<State>& to, std::int64_t number) {
  for_each_element<kStep>(
      p, to, head, [&](std::int64_t i, std::int64_t j, std::int64_t at, std::int64_t offset) {
        const RowRounding row = row_rounding(p.rounding, (number * p.heads + head) * p.rows + i);
        if constexpr (kStep == kQuad) {
          const Quad<float> wide = load_quad(from + at);
          Quad<State> bits;
#pragma unroll
          for (int c = 0; c < kQuad; ++c) {
            bits.of[c] = rounded<State>(wide.of[c], row, static_cast<std::uint32_t>(j + c));
          }
          *reinterpret_cast<Quad<State>*>(to.data + offset) = bits;
        } else {
          to.data[offset] = rounded<State>(from[at], row, static_cast<std::uint32_t>(j));
        }
      });
}

/// Calls visit(number, head) for the heads of `states` states that the block takes: every
/// gridDim.x-th, those of sequences first, but for sequences that are left out. There are fewer than
/// 2^31.
template <class Visit>
__device__ __forceinline__ void for_each_state(const Params& p, std::int64_t states,
                                               Visit&& visit) {
  const auto heads = static_cast<unsigned>(p.heads);
  const unsigned of_sequences = static_cast<unsigned>(p.sequence_count) * heads;
  const unsigned all = static_cast<unsigned>(states) * heads;
  for (unsigned at = blockIdx.x; at < all; at += gridDim.x) {
    if (p.sequences.most_left_out > 0) {
      at = next_walked(p.sequences, at, gridDim.x, of_sequences,
                       [&](unsigned i) { return i / heads; });
      if (at >= all) return;
    }
    visit(at / heads, at % heads);
  }
}

/// What is copied of a sequence and head. Head 0 numbers the sequence's snapshots, too.
template <class State>
__device__ __forceinline__ void load_state(const Params& p, std::int64_t sequence,
                                           std::int64_t head) {
  const SequenceSpan span = span_of(p.sequences, sequence);
  if (p.own != nullptr && head == 0 && threadIdx.x == 0) {
    p.own[sequence] = static_cast<std::int32_t>(sequence);
  }
  if (p.states != nullptr) {
    const auto from = state_of(view_as<const State>(p.initial), sequence);
    float* const to = p.states + (sequence * p.heads + head) * p.rows * p.columns;
    p.quads ? widen<State, kQuad>(p, from, head, to) : widen<State, 1>(p, from, head, to);
  }
  if (p.kept_at == nullptr || head > 0) return;
  const std::int64_t first =
      p.sequence_count + first_part(p.sequences, sequence, span, p.snapshots.every);
  for (std::int64_t m = threadIdx.x; m < p.kept_of_sequence; m += kThreads) {
    const bool is_passed = (m + 1) * p.snapshots.every <= span.length;
    p.kept_at[sequence * p.kept_of_sequence + m] =
        is_passed ? static_cast<std::int32_t>(first + m) : -1;
  }
}

template <class State>
__global__ __launch_bounds__(kThreads) void load_states(const __grid_constant__ Params p) {
  for_each_state(p, p.sequence_count, [&](std::int64_t sequence, std::int64_t head) {
    load_state<State>(p, sequence, head);
  });
}

/// Of a head of a state: the final ones of sequences, then their snapshots.
template <class State>
__device__ __forceinline__ void store_state(const Params& p, std::int64_t number,
                                            std::int64_t head) {
  const std::int64_t part = number - p.sequence_count;
  StateView to;
  std::int64_t at = number;  // of the state in its tensor or pool
  const auto find = [&](const StateView& states, std::int64_t sequence, std::int64_t m) {
    to = states;
    if (states.slots.data == nullptr) return;
    at = slot_of(states.slots, sequence, m);
    if (at < 0) to.data = nullptr;
  };
  if (part < 0) {
    find(p.final, number, 0);
  } else {
    const std::int64_t sequence =
        sequence_of_part(p.sequences, p.sequence_count, part, p.snapshots.every);
    const SequenceSpan span = span_of(p.sequences, sequence);
    const std::int64_t m = part - first_part(p.sequences, sequence, span, p.snapshots.every);
    const bool is_kept =
        m >= 0 && m < p.snapshots.most && (m + 1) * p.snapshots.every <= span.length;
    if (!is_kept) return;
    find(p.snapshots.states, sequence, m);
  }
  if (to.data == nullptr) return;
  auto view = view_as<State>(to);
  view.data += at * view.sequence;
  const float* const from = p.states + (number * p.heads + head) * p.rows * p.columns;
  p.quads ? narrow<State, kQuad>(p, from, head, view, at)
          : narrow<State, 1>(p, from, head, view, at);
}

template <class State>
__global__ __launch_bounds__(kThreads) void store_states(const __grid_constant__ Params p) {
  for_each_state(p, p.sequence_count + p.parts, [&](std::int64_t number, std::int64_t head) {
    store_state<State>(p, number, head);
  });
}

}  // namespace wide_states_kernels

namespace {

/// Snapshots that the tokens of a problem may have, and those of one sequence.
std::int64_t parts_of(const ops::RecurrentAttentionProblem& problem) {
  if (problem.snapshot_every == 0) return 0;
  return part_count(problem.sequences(), problem.T, problem.N > 0, problem.snapshot_every);
}
std::int64_t kept_of_sequence(const ops::RecurrentAttentionProblem& problem) {
  return problem.snapshot_every == 0 ? 0 : problem.T / problem.snapshot_every;
}

bool has_states(const ops::RecurrentAttentionProblem& problem) {
  return problem.reads_states() || problem.writes_states();
}

void place(WorkspaceParts& parts, const ops::RecurrentAttentionProblem& problem, Params& params) {
  constexpr std::int64_t kWidth = 4;  // of f32 and of i32
  const std::int64_t of_state = problem.H * problem.K * problem.V * kWidth;
  const std::int64_t sequences = problem.sequences();
  if (has_states(problem))
    params.states = parts.take<float>((sequences + parts_of(problem)) * of_state);
  if (problem.pool) params.own = parts.take<std::int32_t>(sequences * kWidth);
  if (problem.snapshot_every == 0) return;
  params.kept_at = parts.take<std::int32_t>(sequences * kept_of_sequence(problem) * kWidth);
}

/// Whether four columns of any row of the states, where there are any, may be moved at once.
template <class Tensor>
bool has_quads(const std::optional<Tensor>& states) {
  if (!states) return true;
  return states->stride(3) == 1 && states->size(3) % kQuad == 0 && moves_in_quads(*states);
}

}  // namespace

ops::RecurrentAttentionProblem with_wide_states(ops::RecurrentAttentionProblem problem) {
  problem.initial_slots = false;
  problem.state_dtype = DType::kF32;
  problem.rounding = StateRounding::Kind::kNearest;
  return problem;
}

std::size_t WideStates::bytes(const ops::RecurrentAttentionProblem& problem) {
  WorkspaceParts parts(nullptr);
  Params unplaced;
  place(parts, problem, unplaced);
  return parts.used();
}

WideStates::WideStates(const ops::RecurrentAttentionProblem& problem,
                       ops::RecurrentAttentionArgs& args, std::byte* workspace)
    : dtype_(problem.state_dtype) {
  params_ = {.initial = initial_states(args),
             .final = final_states(args),
             .snapshots = snapshots_view(args),
             .sequences = walked_sequences(args, problem.T),
             .sequence_count = problem.sequences(),
             .parts = parts_of(problem),
             .heads = problem.H,
             .rows = problem.K,
             .columns = problem.V,
             .quads = has_quads(args.states) && has_quads(args.initial_state) &&
                      has_quads(args.final_state),
             .rounding = args.state_rounding,
             .kept_of_sequence = kept_of_sequence(problem)};
  WorkspaceParts parts(workspace);
  place(parts, problem, params_);

  const auto states = [&](std::int64_t count) {
    return TensorView(params_.states, DType::kF32, {count, problem.H, problem.K, problem.V},
                      args.q.device);
  };
  const auto indices = [&](const std::int32_t* data, const Extents& shape) {
    return ConstTensorView(data, DType::kI32, shape, args.q.device);
  };
  const std::int64_t sequences = problem.sequences();
  if (problem.h0) args.initial_state = states(sequences);
  if (problem.ht) args.final_state = states(sequences);
  if (!problem.pool) return;
  args.states = states(sequences + params_.parts);
  args.initial_slots.reset();
  args.final_slots = indices(params_.own, {sequences});
  if (problem.snapshot_every == 0) return;
  args.snapshot_slots = indices(params_.kept_at, {sequences, params_.kept_of_sequence});
}

namespace {

/// For heads of so many states. Where most of them may be left out, two rounds of what a device has
/// room for: a block for each would take longer to find that than prompts' states take.
dim3 blocks_of(const Params& params, std::int64_t states) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  constexpr int kRounds = 2;
  constexpr int kResidentBlocks = 8;
  const bool may_be_few = params.sequences.most_left_out > 0;
  const std::int64_t most =
      may_be_few ? kRounds * kResidentBlocks * multiprocessor_count() : kMostBlocks;
  return dim3(static_cast<unsigned>(std::min(states * params.heads, most)));
}

}  // namespace

void WideStates::load(cudaStream_t stream) const {
  with_element<__half, __nv_bfloat16>(dtype_, [&]<class State>() {
    launch<load_states<State>>(
        {.grid = blocks_of(params_, params_.sequence_count), .block = kThreads}, stream, params_);
  });
}

void WideStates::store(cudaStream_t stream) const {
  if (params_.final.data == nullptr && params_.parts == 0) return;
  const std::int64_t states = params_.sequence_count + params_.parts;
  with_element<__half, __nv_bfloat16>(dtype_, [&]<class State>() {
    launch<store_states<State>>({.grid = blocks_of(params_, states), .block = kThreads}, stream,
                                params_);
  });
}

}  // namespace attune::cuda
