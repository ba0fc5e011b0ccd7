#include "distributed/state_exchange.hpp"

#include <algorithm>
#include <numeric>

#include <attune/core/executor.hpp>

#include "operands/call_site.hpp"

namespace attune::ops::distributed {
namespace {

using Direction = SequenceLayout::Direction;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

/// A plan for a part, of the platform that the call asks for. The call's config is the walk's.
template <class Op>
Plan<Op> plan_part(const typename Op::Problem& problem, const CallOptions& options,
                   ShortName platform, const Device& device) {
  CallOptions own = options;
  own.config = {};
  own.platform = platform;
  const CallSite site(Op::kName, Op::kName, own, device.info().id);
  return site.executor().template plan<Op>(problem, site.request());
}

/// States are folded by what the device has: a platform of the walk need not have a fold.
Plan<StateFold> plan_fold(StateFoldProblem problem, const CallOptions& options,
                          const Device& device) {
  StateFold::complete(problem);
  return plan_part<StateFold>(problem, options, kAutoPlatform, device);
}

Tensor on_device(const std::vector<std::int32_t>& values, const Device& device) {
  const Extents shape{static_cast<std::int64_t>(values.size())};
  if (device.info().id == DeviceId{}) return Tensor::of(values, shape);
  Tensor tensor(DType::kI32, shape, device);
  if (values.empty()) return tensor;
  device.copy_to_device(tensor.view().data, values.data(), tensor.bytes(), nullptr);
  device.synchronize(nullptr);
  return tensor;
}

/// Floats that begin `offset` floats into the memory, which there need not be for none.
TensorView floats_at(std::span<std::byte> memory, std::int64_t offset, const Extents& shape,
                     const Extents& strides, const DeviceId& device) {
  if (element_count(shape) == 0) return {nullptr, DType::kF32, shape, strides, device};
  std::byte* const first = memory.data() + offset * static_cast<std::int64_t>(sizeof(float));
  return {first, DType::kF32, shape, strides, device};
}

}  // namespace

// ---- sums over ranks ----

RankSum::RankSum(std::int64_t count, int ranks, const CallOptions& options, const Device& device)
    : count_(count),
      ranks_(ranks),
      offsets_(on_device({0, ranks}, device)),
      order_([&] {
        std::vector<std::int32_t> all(static_cast<std::size_t>(ranks));
        std::iota(all.begin(), all.end(), 0);
        return on_device(all, device);
      }()),
      fold_(plan_fold({.F = 1, .M = ranks, .L = ranks, .H = count, .K = 1, .V = 1, .gk_sum = false},
                      options, device)) {}

std::size_t RankSum::bytes() const {
  const auto sent = static_cast<std::size_t>(count_) * sizeof(float);
  const auto ranks = static_cast<std::size_t>(ranks_);
  return aligned(sent) + aligned(ranks * sent) + fold_.workspace_bytes();
}

float* RankSum::summands(std::span<std::byte> memory) {
  return reinterpret_cast<float*>(memory.data());  // aligned by contract
}

void RankSum::run(const TensorView& to, Exchange& exchange, void* stream,
                  std::span<std::byte> memory) const {
  const auto sent = static_cast<std::size_t>(count_) * sizeof(float);
  const std::span<std::byte> all = memory.subspan(aligned(sent));
  exchange.all_gather(memory.data(), all.data(), sent, stream);
  StateFoldArgs args;
  args.final_state =
      floats_at(all, 0, {ranks_, count_, 1, 1}, {count_, 1, 1, 1}, fold_.device().info().id);
  args.fold_offsets = offsets_;
  args.fold_order = order_;
  const std::int64_t step = to.stride(to.rank() - 1);
  args.folded =
      TensorView(to.data, DType::kF32, {1, count_, 1, 1}, {count_ * step, step, 1, 1}, to.device);
  fold_.launch(args, stream, all.subspan(aligned(static_cast<std::size_t>(ranks_) * sent)));
}

// ---- states ----

StateExchange::StateExchange(const Pass& pass, const SequenceLayout& layout,
                             const CallOptions& options, const Device& device)
    : pass_(pass),
      direction_(pass.problem.reverse == pass.backward ? Direction::kForward
                                                       : Direction::kBackward),
      ranks_(layout.ranks()),
      slots_(layout.slots(direction_)),
      bounds_(layout.local_cu_seqlens().begin(), layout.local_cu_seqlens().end()) {
  const RecurrentAttentionProblem& walk = pass_.problem;
  const auto fragments = layout.fragments();
  for (std::size_t f = 0; f < fragments.size(); ++f) {
    const int slot = layout.slot(f, direction_);
    if (slot < 0) continue;
    const bool begins =
        direction_ == Direction::kForward ? fragments[f].is_first : fragments[f].is_last;
    StateSummaryProblem problem;
    problem.T = bounds_[f + 1] - bounds_[f];
    problem.H = walk.H;
    problem.Hkv = pass_.backward ? walk.H : walk.Hkv;
    problem.K = walk.K;
    problem.V = walk.V;
    problem.dtype = walk.dtype;
    problem.gates = walk.gates;
    problem.gate_dtype = walk.gate_dtype;
    problem.h0 = begins && pass_.starts;
    problem.reverse = direction_ == Direction::kBackward;
    problem.inclusive = pass_.backward && walk.gates != 0;
    // A fragment's tokens are dense where all tokens are, but for heads that lie apart.
    problem.layout = walk.layout == Layout::kBthd ? Layout::kBthd : Layout::kStrided;
    problem.aligned = walk.aligned;
    problem.tf32 = walk.tf32;
    senders_.push_back({static_cast<std::int64_t>(f), slot, problem.h0,
                        plan_part<StateSummary>(problem, options, options.platform, device)});
  }
  if (!fragments.empty()) add_folds(layout, options, device);
}

void StateExchange::add_folds(const SequenceLayout& layout, const CallOptions& options,
                              const Device& device) {
  const RecurrentAttentionProblem& walk = pass_.problem;
  std::vector<std::int32_t> offsets{0}, order, starts, sent_slots;
  for (std::size_t f = 0; f < layout.fragments().size(); ++f) {
    const SequenceLayout::Fragment& fragment = layout.fragments()[f];
    const bool begins = direction_ == Direction::kForward ? fragment.is_first : fragment.is_last;
    starts.push_back(begins ? static_cast<std::int32_t>(f) : -1);
    sent_slots.push_back(layout.slot(f, direction_));
    const auto fold = layout.fold(f, direction_);
    order.insert(order.end(), fold.begin(), fold.end());
    offsets.push_back(static_cast<std::int32_t>(order.size()));
  }
  fold_ = plan_fold({.F = static_cast<std::int64_t>(starts.size()),
                     .M = std::int64_t{ranks_} * slots_,
                     .L = static_cast<std::int64_t>(order.size()),
                     .H = walk.H,
                     .K = walk.K,
                     .V = walk.V,
                     .gv_sum = (walk.gates & kGateGv) != 0,
                     .h0 = pass_.starts},
                    options, device);
  offsets_ = on_device(offsets, device);
  order_ = on_device(order, device);
  starts_ = on_device(starts, device);
  sent_slots_ = on_device(sent_slots, device);
}

void StateExchange::add_problems(std::vector<AnyProblem>& to) const {
  for (const Sender& sender : senders_) {
    to.push_back(AnyProblem::of<StateSummary>(sender.summary.problem()));
  }
  if (fold_) to.push_back(AnyProblem::of<StateFold>(fold_->problem()));
}

/// A summary as it is sent: final_state, gk_sum and gv_sum, one after the other.
std::int64_t StateExchange::slot_floats() const {
  const RecurrentAttentionProblem& walk = pass_.problem;
  const std::int64_t values = (walk.gates & kGateGv) != 0 ? walk.V : 0;
  constexpr std::int64_t kLine = kWorkspaceAlignment / sizeof(float);
  return (walk.H * (walk.K * walk.V + walk.K + values) + kLine - 1) / kLine * kLine;
}

std::size_t StateExchange::bytes() const {
  std::size_t most = fold_ ? fold_->workspace_bytes() : 0;
  for (const Sender& sender : senders_) most = std::max(most, sender.summary.workspace_bytes());
  return sent_bytes() * (1 + static_cast<std::size_t>(ranks_)) + most;
}

/// Of the plans, behind what is sent and received.
std::span<std::byte> StateExchange::scratch(std::span<std::byte> memory) const {
  return memory.subspan(sent_bytes() * (1 + static_cast<std::size_t>(ranks_)));
}

StateSummaryArgs StateExchange::summary_args(const Inputs& inputs, const Sender& sender,
                                             std::span<std::byte> memory) const {
  const RecurrentAttentionProblem& walk = pass_.problem;
  const std::int64_t f = sender.fragment;
  const auto at = static_cast<std::size_t>(f);
  const auto tokens = [&](const ConstTensorView& all) {
    return walk.N > 0 ? all.slice(1, bounds_[at], bounds_[at + 1]) : all.slice(0, f, f + 1);
  };
  const auto tokens_if = [&](const std::optional<ConstTensorView>& all) {
    return all ? std::optional(tokens(*all)) : std::nullopt;
  };
  StateSummaryArgs args;
  args.k = tokens(inputs.k);
  args.v = tokens(inputs.v);
  args.g = tokens_if(inputs.g);
  args.gk = tokens_if(inputs.gk);
  args.gv = tokens_if(inputs.gv);
  args.gamma = inputs.gamma;
  if (args.gamma.values.rank() == 2) args.gamma.values = args.gamma.values.slice(0, f, f + 1);
  if (sender.starts) args.initial_state = inputs.starts->slice(0, f, f + 1);
  args.scale = inputs.scale;
  const std::int64_t states = walk.H * walk.K * walk.V, keys = walk.H * walk.K;
  const std::int64_t first = sender.slot * slot_floats();
  const DeviceId& device = inputs.k.device;
  args.final_state = floats_at(memory, first, {1, walk.H, walk.K, walk.V},
                               contiguous_strides({1, walk.H, walk.K, walk.V}), device);
  args.gk_sum = floats_at(memory, first + states, {1, walk.H, walk.K}, {keys, walk.K, 1}, device);
  if (inputs.gv) {
    args.gv_sum = floats_at(memory, first + states + keys, {1, walk.H, walk.V},
                            {walk.H * walk.V, walk.V, 1}, device);
  }
  return args;
}

SummaryOutputs StateExchange::outputs(const Inputs& inputs, std::span<std::byte> memory) const {
  const RecurrentAttentionProblem& walk = pass_.problem;
  const std::int64_t step = slot_floats(), states = walk.H * walk.K * walk.V;
  const DeviceId& device = inputs.k.device;
  SummaryOutputs to;
  to.final_state = floats_at(memory, 0, {slots_, walk.H, walk.K, walk.V},
                             {step, walk.K * walk.V, walk.V, 1}, device);
  to.gk_sum = floats_at(memory, states, {slots_, walk.H, walk.K}, {step, walk.K, 1}, device);
  to.slots = sent_slots_;
  to.initial_state = inputs.starts;
  to.initial_slots = starts_;
  return to;
}

StateFoldArgs StateExchange::fold_args(const Inputs& inputs, const TensorView& folded,
                                       std::span<std::byte> memory) const {
  const RecurrentAttentionProblem& walk = pass_.problem;
  const std::span<std::byte> received = memory.subspan(sent_bytes());
  const std::int64_t count = std::int64_t{ranks_} * slots_, step = slot_floats();
  const std::int64_t states = walk.H * walk.K * walk.V, keys = walk.H * walk.K;
  const DeviceId& device = inputs.k.device;
  StateFoldArgs args;
  args.final_state = floats_at(received, 0, {count, walk.H, walk.K, walk.V},
                               {step, walk.K * walk.V, walk.V, 1}, device);
  args.gk_sum = floats_at(received, states, {count, walk.H, walk.K}, {step, walk.K, 1}, device);
  if (inputs.gv) {
    args.gv_sum =
        floats_at(received, states + keys, {count, walk.H, walk.V}, {step, walk.V, 1}, device);
  }
  if (inputs.starts) {
    args.initial_state = inputs.starts;
    args.initial_slots = starts_;
  }
  args.fold_offsets = offsets_;
  args.fold_order = order_;
  args.folded = folded;
  return args;
}

void StateExchange::check(const Inputs& inputs, const TensorView& folded,
                          std::span<std::byte> memory) const {
  for (const Sender& sender : senders_) {
    StateSummary::check_args(sender.summary.problem(), summary_args(inputs, sender, memory));
  }
  if (fold_) StateFold::check_args(fold_->problem(), fold_args(inputs, folded, memory));
}

void StateExchange::summarise(const Inputs& inputs, void* stream,
                              std::span<std::byte> memory) const {
  for (const Sender& sender : senders_) {
    sender.summary.launch(summary_args(inputs, sender, memory), stream, scratch(memory));
  }
}

void StateExchange::exchange(const Inputs& inputs, const TensorView& folded, Exchange& with,
                             void* stream, std::span<std::byte> memory) const {
  if (slots_ > 0) {
    with.all_gather(memory.data(), memory.data() + sent_bytes(), sent_bytes(), stream);
  }
  if (fold_) fold_->launch(fold_args(inputs, folded, memory), stream, scratch(memory));
}

}  // namespace attune::ops::distributed
