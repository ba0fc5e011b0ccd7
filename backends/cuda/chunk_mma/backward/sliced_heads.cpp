#include "cuda/chunk_mma/backward/sliced_heads.hpp"

#include <type_traits>

namespace attune::cuda::chunk_mma::backward {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

std::int64_t sliced_rows(const Problem& problem) {
  return problem.B * problem.T * problem.H * slices_of(problem);
}
std::int64_t state_bytes(const Problem& problem) {
  return problem.sequences() * problem.H * slices_of(problem) * kSliceChannels * kSliceChannels *
         kFloat;
}

}  // namespace

bool SlicedHeads::are_wanted(const Problem& problem) {
  constexpr std::int64_t kMultiprocessors = 132;  // workspaces do not ask a device
  constexpr std::int64_t kFewestSlices = 4;       // that pay for their copies
  const std::int64_t chunks = parts_of(problem, kTokens) * problem.H;
  return slices_of(problem) >= kFewestSlices && kFewestSlices * chunks <= kMultiprocessors;
}

Problem SlicedHeads::made_of(Problem problem) {
  problem.H *= slices_of(problem);
  problem.Hkv = problem.H;
  problem.K = kSliceChannels;
  problem.V = kSliceChannels;
  problem.layout = ops::Layout::kBthd;
  problem.aligned = true;
  return problem;
}

std::optional<double> SlicedHeads::expected_us(const Problem& problem, std::optional<double> own) {
  constexpr double kLaunches = 8;
  constexpr double kBytesPerUs = 2e6;
  constexpr double kTensors = 14;  // each of seven written, and read
  if (!own) return own;
  return *own + kLaunches +
         kTensors * static_cast<double>(sliced_rows(problem) * kSliceChannels * kFloat) /
             kBytesPerUs;
}

std::size_t SlicedHeads::bytes(const Problem& problem) {
  WorkspaceParts parts(nullptr);
  const std::int64_t rows = sliced_rows(problem);
  const auto take = [&](std::int64_t elements) { parts.take(elements * kFloat); };
  for (int tensor = 0; tensor < 7; ++tensor)
    take(rows * kSliceChannels);  // q, k, v, do; dq, dk, dv
  for (const int gate : {ops::kGateGk, ops::kGateGv}) {
    for (int tensor = 0; tensor < 2 && (problem.gates & gate) != 0; ++tensor) {
      take(rows * kSliceChannels);
    }
  }
  for (int tensor = 0; tensor < 2 && (problem.gates & ops::kGateG) != 0; ++tensor) take(rows);
  for (int state = 0; state < 2 * problem.h0 + problem.ht; ++state) {
    parts.take(state_bytes(problem));
  }
  for (int tensor = 0; tensor < 2 && (problem.gates & ops::kGateGamma) != 0; ++tensor) {
    take(problem.sequences() * problem.H * slices_of(problem));
  }
  return parts.used();
}

SlicedHeads::SlicedHeads(const Problem& problem, Args& args, std::byte* workspace) {
  slices_ = {.batches = problem.B,
             .tokens = problem.T,
             .sequences = problem.sequences(),
             .heads = static_cast<int>(problem.H),
             .keys = static_cast<int>(problem.K),
             .values = static_cast<int>(problem.V),
             .key_slices = static_cast<int>(slices_of(problem.K)),
             .value_slices = static_cast<int>(slices_of(problem.V))};
  WorkspaceParts parts(workspace);
  slice_rows(problem, args, parts);
  slice_states(problem, args, parts);
  slice_gamma(problem, args, parts);
}

void SlicedHeads::slice_rows(const Problem& problem, Args& args, WorkspaceParts& parts) {
  using enum SlicedChannels;
  const std::int64_t heads = slices_.sliced_heads();
  const auto replace = [&](SlicedTensors& tensors, auto& tensor, SlicedChannels sliced) {
    SlicedTensor& made = tensors.of[static_cast<std::size_t>(tensors.count++)];
    made.rows = static_cast<float*>(const_cast<void*>(static_cast<const void*>(tensor.data)));
    made.strides = {tensor.stride(0), tensor.stride(1), tensor.stride(2)};
    made.sliced = sliced;
    made.group = static_cast<int>(problem.H / tensor.size(2));
    if (sliced != kNone) made.channels = static_cast<int>(tensor.size(3));
    made.slices = parts.take<float>(problem.B * problem.T * heads * made.width() * kFloat);
    Extents shape{problem.B, problem.T, heads};
    if (sliced != kNone) shape = {problem.B, problem.T, heads, std::int64_t{kSliceChannels}};
    tensor =
        std::remove_reference_t<decltype(tensor)>(made.slices, DType::kF32, shape, tensor.device);
  };
  const auto replace_any = [&](SlicedTensors& tensors, auto& tensor, SlicedChannels sliced) {
    if (tensor) replace(tensors, *tensor, sliced);
  };
  replace(inputs_, args.q, kKeys);
  replace(inputs_, args.k, kKeys);
  replace(inputs_, args.v, kValues);
  replace_any(inputs_, args.d_o, kValues);
  replace_any(inputs_, args.g, kNone);
  replace_any(inputs_, args.gk, kKeys);
  replace_any(inputs_, args.gv, kValues);
  replace(outputs_, args.dq, kKeys);
  replace(outputs_, args.dk, kKeys);
  replace(outputs_, args.dv, kValues);
  replace_any(outputs_, args.dg, kNone);
  replace_any(outputs_, args.dgk, kKeys);
  replace_any(outputs_, args.dgv, kValues);
}

void SlicedHeads::slice_states(const Problem& problem, Args& args, WorkspaceParts& parts) {
  const auto replace = [&](SlicedState& made, auto& state) {
    if (!state) return;
    made.state = static_cast<float*>(const_cast<void*>(static_cast<const void*>(state->data)));
    made.strides = {state->stride(0), state->stride(1), state->stride(2), state->stride(3)};
    made.slices = parts.take<float>(state_bytes(problem));
    *state = std::remove_reference_t<decltype(*state)>(
        made.slices, DType::kF32,
        {problem.sequences(), std::int64_t{slices_.sliced_heads()}, std::int64_t{kSliceChannels},
         std::int64_t{kSliceChannels}},
        state->device);
  };
  replace(starts_[0], args.initial_state);
  replace(starts_[1], args.dfinal_state);
  replace(end_, args.dinitial_state);
}

void SlicedHeads::slice_gamma(const Problem& problem, Args& args, WorkspaceParts& parts) {
  using Source = ops::ConstantDecay::Source;
  gamma_ = decay_view(args.gamma, problem.H);
  if (args.gamma.source == Source::kNone) return;
  const std::int64_t heads = slices_.sliced_heads();
  const auto take = [&] { return parts.take<float>(problem.sequences() * heads * kFloat); };
  gamma_values_ = take();
  if (args.gamma.source == Source::kSlopes) dgamma_sign_ = -1.0F;
  args.gamma.source = Source::kValues;
  args.gamma.values =
      ConstTensorView(gamma_values_, DType::kF32, {problem.sequences(), heads}, args.q.device);
  if (!args.dgamma) return;
  dgamma_terms_ = take();
  dgamma_ = {.data = static_cast<float*>(args.dgamma->data),
             .sequence = args.dgamma->stride(0),
             .head = args.dgamma->stride(1)};
  const bool is_shared = dgamma_.sequence == 0;
  dgamma_rows_ = is_shared ? 1 : problem.sequences();
  args.dgamma = TensorView(dgamma_terms_, DType::kF32, {problem.sequences(), heads},
                           {is_shared ? 0 : heads, 1}, args.q.device);
}

}  // namespace attune::cuda::chunk_mma::backward
