#include <algorithm>
#include <cstring>
#include <exception>
#include <type_traits>
#include <vector>

#include <attune/core/count_text.hpp>
#include <attune/core/executor.hpp>
#include <attune/ops/distributed_attention.hpp>
#include <attune/ops/summarising_walk.hpp>

#include "attention/attention_run.hpp"
#include "distributed/distributed_run.hpp"
#include "distributed/sequence_rules.hpp"
#include "distributed/state_exchange.hpp"
#include "operands/call_site.hpp"
#include "operands/host_indices.hpp"

namespace attune::ops::distributed {
namespace {

std::size_t floats_of(const Extents& shape) {
  return static_cast<std::size_t>(element_count(shape)) * sizeof(float);
}

/// Takes memory bit by bit, each aligned as the whole.
class Carver {
 public:
  explicit Carver(std::span<std::byte> memory) : memory_(memory) {}
  std::span<std::byte> take(std::size_t bytes) {
    const std::span<std::byte> taken = memory_.first(bytes);
    memory_ = memory_.subspan(rounded(bytes));
    return taken;
  }
  static std::size_t rounded(std::size_t bytes) {
    return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  }

 private:
  std::span<std::byte> memory_;
};

}  // namespace

template <class Op>
class SequencePlan<Op>::Parts {
 public:
  using Args = typename Op::Args;

  /// `site` is where the walk's plan is made.
  Parts(AttentionCall<Op> call, const CallSite& site, const CallOptions& options,
        const SequenceLayout& layout)
      : name_(call.rules.name),
        rank_(layout.rank()),
        ranks_(layout.ranks()),
        bounds_(layout.local_cu_seqlens().begin(), layout.local_cu_seqlens().end()),
        fragments_(static_cast<std::int64_t>(layout.fragments().size())),
        shares_decay_(kIsBackward<Op> && is_shared(call.args.gamma)),
        starts_(starts_of(call.args).has_value() && fragments_ > 0),
        problem_(walk_problem(call, layout)),
        states_({problem_, kIsBackward<Op>, starts_}, layout, options, *site.request().device),
        walk_(site.executor().template plan<Op>(problem_, site.request())),
        summarising_(fragments_ > 0 && states_.is_needed() ? summarising(walk_) : nullptr) {
    if (shares_decay_) gamma_sum_.emplace(problem_.H, ranks_, options, walk_.device());
  }

  const Plan<Op>& walk() const { return walk_; }
  std::size_t sent_bytes() const { return states_.sent_bytes(); }
  Extents carried_shape() const { return {fragments_, problem_.H, problem_.K, problem_.V}; }
  std::vector<AnyProblem> problems() const {
    std::vector<AnyProblem> all{AnyProblem::of<Op>(problem_)};
    states_.add_problems(all);
    if (gamma_sum_) all.push_back(AnyProblem::of<StateFold>(gamma_sum_->problem()));
    return all;
  }
  /// Equal where ranks may exchange.
  std::uint64_t digest() const {
    const RecurrentAttentionProblem& p = problem_;
    return op_id(str(Op::kName, ' ', p.H, ' ', p.Hkv, ' ', p.K, ' ', p.V, ' ', p.dtype, ' ',
                     p.gates, ' ', p.reverse, ' ', shares_decay_));
  }

  std::size_t workspace_bytes() const {
    std::size_t bytes = 0;
    for (const std::size_t part : parts()) bytes += Carver::rounded(part);
    return bytes;
  }

  void launch(const Args& given, const CarriedState& carried, Exchange& exchange, void* stream,
              std::span<std::byte> workspace) const {
    check_exchange(name_, exchange, rank_, ranks_);
    check_workspace(name_, workspace, workspace_bytes());
    Memory memory(*this, workspace);
    Args args = given;
    const StateExchange::Inputs inputs = inputs_of(given);
    TensorView folded;
    if (fragments_ > 0) {
      if (inputs.starts.has_value() != starts_) {
        refuse(name_, kStarts, starts_ ? "not given" : "given", ", unlike when the plan was made");
      }
      folded = set_states(args, carried, memory);
    }
    TensorView gamma_gradient;
    if constexpr (kIsBackward<Op>) {
      if (shares_decay_) {
        if (!args.dgamma || args.dgamma->stride(0) != 0) {
          refuse(name_, "dg_gamma", "expected [H], as when the plan was made");
        }
        gamma_gradient = *args.dgamma;
        args.dgamma->data = RankSum::summands(memory.gamma);
        args.dgamma->strides = {0, 1};
      }
    }
    check_device(args);
    Op::check_args(problem_, args);
    check_bounds(args);
    if (fragments_ > 0) states_.check(inputs, folded, memory.states);

    walk_from_others(args, inputs, folded, exchange, stream, memory);
    if constexpr (kIsBackward<Op>) {
      if (gamma_sum_) gamma_sum_->run(gamma_gradient, exchange, stream, memory.gamma);
    }
  }

 private:
  static constexpr std::string_view kStarts = kIsBackward<Op> ? "dfinal_state" : "initial_state";

  struct Memory {
    Memory(const Parts& of, std::span<std::byte> workspace) {
      Carver carver(workspace);
      const std::array sizes = of.parts();
      states = carver.take(sizes[0]);
      walk = carver.take(sizes[1]);
      gamma = carver.take(sizes[2]);
      folded = carver.take(sizes[3]);
      dinitial_state = carver.take(sizes[4]);
    }
    std::span<std::byte> states, walk, gamma;
    std::span<std::byte> folded, dinitial_state;  // the backward pass's
  };
  /// Summaries, what comes of those of others, and the walk from there.
  void walk_from_others(const Args& args, const StateExchange::Inputs& inputs,
                        const TensorView& folded, Exchange& exchange, void* stream,
                        const Memory& memory) const {
    if (summarising_ == nullptr || ends_where_it_is_carried(args)) {
      states_.summarise(inputs, stream, memory.states);
      states_.exchange(inputs, folded, exchange, stream, memory.states);
      walk_.launch(args, stream, memory.walk);
      return;
    }
    const ProfilerRange range(ProfilerRanges::kLaunches, [&] {
      return call_label(Op::kName, walk_.choice(), problem_text<Op>(problem_));
    });
    const LaunchSite site{stream, memory.walk, walk_.choice().prepared, walk_.device().threads()};
    const ConfigBlob& config = walk_.choice().config;
    summarising_->summarise(problem_, args, states_.outputs(inputs, memory.states), config, site);
    states_.exchange(inputs, folded, exchange, stream, memory.states);
    summarising_->walk_on(problem_, args, config, site);
  }

  /// Bytes of the members of Memory.
  std::array<std::size_t, 5> parts() const {
    const std::size_t state = kIsBackward<Op> ? floats_of(carried_shape()) : 0;
    return {states_.bytes(), walk_bytes(), gamma_sum_ ? gamma_sum_->bytes() : 0, state, state};
  }

  /// The kernel of a walk that can make summaries on its way; null where it cannot.
  static const SummarisingWalk<Op>* summarising(const Plan<Op>& walk) {
    const Choice& choice = walk.choice();
    const auto* const kernel = dynamic_cast<const SummarisingWalk<Op>*>(choice.kernel);
    const bool does = kernel != nullptr && kernel->summarises(walk.problem(), choice.config);
    return does ? kernel : nullptr;
  }

  /// Of either way to walk.
  std::size_t walk_bytes() const {
    if (summarising_ == nullptr) return walk_.workspace_bytes();
    return std::max(walk_.workspace_bytes(),
                    summarising_->summarising_bytes(problem_, walk_.choice().config));
  }

  /// Whether final states overwrite what the walk starts from. Kernels take that in run() alone.
  static bool ends_where_it_is_carried(const Args& args) {
    if constexpr (kIsBackward<Op>) {
      return false;
    } else {
      return args.final_state && args.final_state->data == args.initial_state->data;
    }
  }

  static std::optional<ConstTensorView> starts_of(const Args& args) {
    if constexpr (kIsBackward<Op>) {
      return args.dfinal_state;
    } else {
      return args.initial_state;
    }
  }

  /// What is summarised: in the backward pass q and d_o, as they write to the gradient of the
  /// state.
  static StateExchange::Inputs inputs_of(const Args& args) {
    StateExchange::Inputs inputs{.k = args.k,
                                 .v = args.v,
                                 .g = args.g,
                                 .gk = args.gk,
                                 .gv = args.gv,
                                 .gamma = args.gamma,
                                 .starts = starts_of(args)};
    if constexpr (kIsBackward<Op>) {
      inputs.k = args.q;
      if (args.d_o) inputs.v = *args.d_o;
      inputs.scale = args.scale;
    }
    return inputs;
  }

  /// Gives the walk the states that come to its fragments. Returns where they are folded to.
  TensorView set_states(Args& args, const CarriedState& carried, const Memory& memory) const {
    args.initial_state = carried;
    if constexpr (kIsBackward<Op>) {
      const auto in = [&](std::span<std::byte> part) {
        return TensorView(part.data(), DType::kF32, carried_shape(), args.q.device);
      };
      if (!args.dinitial_state) args.dinitial_state = in(memory.dinitial_state);
      const TensorView folded = in(memory.folded);
      args.dfinal_state = folded;
      return folded;
    } else {
      return carried;
    }
  }

  void check_device(const Args& args) const {
    const DeviceId& at = Op::device_of(args);
    const DeviceId& of_plan = walk_.device().info().id;
    if (at != of_plan) refuse(name_, "q", "on ", at, ", the plan is for ", of_plan);
  }

  /// Throws InvalidArgument where cu_seqlens can be read and are not the layout's.
  void check_bounds(const Args& args) const {
    if (!args.cu_seqlens || args.cu_seqlens->device != DeviceId{}) return;
    for (std::size_t i = 0; i < bounds_.size(); ++i) {
      const std::int64_t is = index_at(*args.cu_seqlens, static_cast<std::int64_t>(i));
      if (is == bounds_[i]) continue;
      refuse(name_, "cu_seqlens", "[", i, "] is ", is, ", expected the layout's ", bounds_[i]);
    }
  }

  std::string name_;
  int rank_;
  int ranks_;
  std::vector<std::int64_t> bounds_;
  std::int64_t fragments_;
  bool shares_decay_;  // and has a gradient of it
  bool starts_;        // of sequences are given
  RecurrentAttentionProblem problem_;
  StateExchange states_;  // made before the walk: it may be what a device cannot do
  Plan<Op> walk_;
  const SummarisingWalk<Op>* summarising_;  // the walk's kernel, where it is one
  std::optional<RankSum> gamma_sum_;
};

namespace {

template <class Op>
SequencePlan<Op> plan_on_ranks(const AttentionCall<Op>& call, const CallOptions& options,
                               const SequenceLayout& layout, Exchange& exchange) {
  std::shared_ptr<const typename SequencePlan<Op>::Parts> parts;
  std::exception_ptr failure;
  Announcement own;
  try {
    check_exchange(call.rules.name, exchange, layout.rank(), layout.ranks());
    const CallSite site(call.rules.name, Op::kName, options, call.args.q.device);
    parts = std::make_shared<const typename SequencePlan<Op>::Parts>(call, site, options, layout);
    own = {.made = 1, .layout = layout.digest(), .problem = parts->digest()};
  } catch (...) {
    failure = std::current_exception();  // told to the others first
  }
  std::vector<Announcement> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(&own, all.data(), sizeof own, options.stream);
  if (failure) std::rethrow_exception(failure);
  check_alike(call.rules.name, all, exchange.rank());
  return SequencePlan<Op>(std::move(parts));
}

}  // namespace

template <class Op>
std::size_t SequencePlan<Op>::workspace_bytes() const {
  return parts_->workspace_bytes();
}
template <class Op>
std::size_t SequencePlan<Op>::sent_bytes() const {
  return parts_->sent_bytes();
}
template <class Op>
Extents SequencePlan<Op>::carried_shape() const {
  return parts_->carried_shape();
}
template <class Op>
const Plan<Op>& SequencePlan<Op>::walk() const {
  return parts_->walk();
}
template <class Op>
std::vector<AnyProblem> SequencePlan<Op>::problems() const {
  return parts_->problems();
}
template <class Op>
void SequencePlan<Op>::launch(const typename Op::Args& args, const CarriedState& carried_state,
                              Exchange& exchange, void* stream,
                              std::span<std::byte> workspace) const {
  parts_->launch(args, carried_state, exchange, stream, workspace);
}
template class SequencePlan<RecurrentAttention>;
template class SequencePlan<RecurrentAttentionBackward>;

SequencePlan<RecurrentAttention> plan_forward(const ForwardCall& call, const CallOptions& options,
                                              const SequenceLayout& layout, Exchange& exchange) {
  return plan_on_ranks(call, options, layout, exchange);
}

SequencePlan<RecurrentAttentionBackward> plan_backward(
    BackwardCall call, const RecurrentAttentionOutputGradients& gradients,
    const CallOptions& options, const SequenceLayout& layout, Exchange& exchange) {
  call.args.d_o = gradients.d_o;
  call.args.dfinal_state = gradients.dfinal_state;
  return plan_on_ranks(call, options, layout, exchange);
}

}  // namespace attune::ops::distributed
