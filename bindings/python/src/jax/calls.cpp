#include "calls.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace attune_jax {

BoundCall::BoundCall(Call call, const Attributes& attributes, std::vector<attune_tensor> arrays)
    : call_(call), attributes_(attributes), arrays_(std::move(arrays)) {
  transposed_.reserve(2 * arrays_.size());  // pointers into it stay
  switch (call_) {
    case Call::kForward:
    case Call::kBackward:
      bind_attention();
      break;
    case Call::kDecode:
      bind_decode();
      break;
    case Call::kPool:
      bind_pool();
      break;
  }
  complete_ = complete_ && (used_ == arrays_.size());
}

const attune_tensor* BoundCall::next(bool is_there) {
  if (!is_there) return nullptr;
  if (used_ == arrays_.size()) {
    complete_ = false;
    return nullptr;
  }
  return &arrays_[used_++];
}

const attune_tensor* BoundCall::next_state(bool is_there) {
  const attune_tensor* const found = next(is_there);
  if (found == nullptr || (attributes_.options & kStateVFirst) == 0 || found->ndim < 2)
    return found;
  attune_tensor& state = arrays_[used_ - 1];
  const auto rank = static_cast<std::size_t>(state.ndim);
  auto& shape = transposed_.emplace_back(state.shape, state.shape + rank);
  auto& strides = transposed_.emplace_back(rank, 1);
  for (std::size_t i = rank - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  std::swap(shape[rank - 1], shape[rank - 2]);
  std::swap(strides[rank - 1], strides[rank - 2]);
  state.shape = shape.data();
  state.strides = strides.data();
  return &state;
}

template <class Args>
void BoundCall::bind_gates(Args& args) {
  const std::int64_t given = attributes_.given;
  args.struct_size = sizeof args;
  args.scale = &attributes_.scale;
  args.layer_idx = attributes_.layer_idx;
  args.num_layers = attributes_.num_layers;
  args.g = next((given & kG) != 0);
  args.g_gamma = next((given & kGGamma) != 0);
  args.gk = next((given & kGk) != 0);
  args.gv = next((given & kGv) != 0);
  args.slopes = next((given & kSlopes) != 0);
}

void BoundCall::bind_attention() {
  const std::int64_t given = attributes_.given;
  attention_.flags = (attributes_.options & kReverse) != 0 ? ATTUNE_REVERSE : 0;
  attention_.q = next();
  attention_.k = next();
  attention_.v = next();
  bind_gates(attention_);
  attention_.initial_state = next_state((given & kInitialState) != 0);
  attention_.cu_seqlens = next((given & kCuSeqlens) != 0);
  if (call_ == Call::kBackward) {
    bind_gradients();
  } else {
    attention_.o = next();
    attention_.final_state = next_state((attributes_.options & kWantFinalState) != 0);
  }
}

void BoundCall::bind_pool() {
  const std::int64_t given = attributes_.given;
  attention_.flags = (attributes_.options & kReverse) != 0 ? ATTUNE_REVERSE : 0;
  attention_.q = next();
  attention_.k = next();
  attention_.v = next();
  attention_.states = next_state(true);
  bind_gates(attention_);
  attention_.cu_seqlens = next((given & kCuSeqlens) != 0);
  attention_.initial_slots = next((given & kInitialSlots) != 0);
  attention_.final_slots = next((given & kFinalSlots) != 0);
  attention_.snapshot_slots = next((given & kSnapshotSlots) != 0);
  attention_.snapshot_every = attributes_.snapshot_every;
  attention_.o = next();
}

void BoundCall::bind_gradients() {
  const std::int64_t given = attributes_.given;
  gradients_.struct_size = sizeof gradients_;
  gradients_.d_o = next((given & kDo) != 0);
  gradients_.dfinal_state = next_state((given & kDFinalState) != 0);
  gradients_.dq = next();
  gradients_.dk = next();
  gradients_.dv = next();
  gradients_.dg = next((given & kG) != 0);
  gradients_.dg_gamma = next((given & kGGamma) != 0);
  gradients_.dgk = next((given & kGk) != 0);
  gradients_.dgv = next((given & kGv) != 0);
  gradients_.dslopes = next((given & kSlopes) != 0);
  gradients_.dinitial_state = next_state((given & kInitialState) != 0);
}

void BoundCall::bind_decode() {
  const std::int64_t given = attributes_.given;
  decode_.q = next();
  decode_.k = next();
  decode_.v = next();
  decode_.state = next_state(true);
  bind_gates(decode_);
  decode_.slot_indices = next((given & kSlotIndices) != 0);
  decode_.kept_slots = next((given & kKeptSlots) != 0);
  decode_.accepted = next((given & kAccepted) != 0);
  decode_.committed_k = next((given & kCommittedK) != 0);
  decode_.committed_v = next((given & kCommittedV) != 0);
  decode_.committed_g = next((given & kCommittedG) != 0);
  decode_.committed_gk = next((given & kCommittedGk) != 0);
  decode_.committed_gv = next((given & kCommittedGv) != 0);
  decode_.committed_accepted = next((given & kCommittedAccepted) != 0);
  decode_.o = next();
}

attune_call BoundCall::call_on(void* stream) const {
  attune_call call{};
  call.struct_size = sizeof call;
  call.flags = (attributes_.options & kAllowTf32) != 0 ? ATTUNE_ALLOW_TF32 : 0;
  call.stream = stream;
  if (*attributes_.platform != '\0') call.platform = attributes_.platform;
  if (*attributes_.config != '\0') call.config = attributes_.config;
  return call;
}

attune_status BoundCall::run(void* stream, void* workspace, std::size_t workspace_bytes) const {
  attune_call call = call_on(stream);
  call.workspace = workspace;
  call.workspace_bytes = workspace_bytes;
  switch (call_) {
    case Call::kForward:
    case Call::kPool:
      return attune_attention(&attention_, &call);
    case Call::kBackward:
      return attune_attention_backward(&attention_, &gradients_, &call);
    case Call::kDecode:
      return attune_decode(&decode_, &call);
  }
  return ATTUNE_INTERNAL;
}

attune_status BoundCall::plan(void* stream, std::size_t limit, std::size_t* bound) const {
  attune_call call = call_on(stream);
  if (bound == nullptr) call.workspace_limit = limit;
  attune_plan* made = nullptr;
  attune_status status = ATTUNE_INTERNAL;
  switch (call_) {
    case Call::kForward:
    case Call::kPool:
      status = attune_attention_plan(&attention_, &call, &made);
      break;
    case Call::kBackward:
      status = attune_attention_backward_plan(&attention_, &gradients_, &call, &made);
      break;
    case Call::kDecode:
      status = attune_decode_plan(&decode_, &call, &made);
      break;
  }
  const std::unique_ptr<attune_plan, decltype(&attune_plan_destroy)> plan(made,
                                                                          attune_plan_destroy);
  if (status != ATTUNE_OK || bound == nullptr) return status;
  // What is chosen where nothing is known can always run.
  const std::size_t least = attune_plan_workspace_bytes(plan.get());
  return attune_plan_workspace_bound(plan.get(), std::max(limit, least), bound);
}

}  // namespace attune_jax
