#include "distributed/whole_sequences.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include <attune/distributed/thread_exchange.hpp>

#include "distributed/counting_exchange.hpp"
#include "support/heuristic_context.hpp"

namespace attune::test {
namespace {

using ops::CallOptions;
using ops::distributed::SequenceLayout;
using Name = WholeSequences::Name;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kLayer = 1, kLayers = 3;

/// A view of a vector as [1, T, heads, width]; without a width, [1, T, heads].
ConstTensorView tokens_of(const std::vector<float>& values, std::int64_t tokens, std::int64_t heads,
                          std::int64_t width) {
  if (width == 0) return {values.data(), {1, tokens, heads}};
  return {values.data(), {1, tokens, heads, width}};
}

/// The tensors of one rank, or of all ranks, and their outputs.
struct Call {
  explicit Call(const WholeSequences& of) : in(of) {
    const auto size = [&](std::int64_t rows, std::int64_t width) {
      return std::vector<float>(static_cast<std::size_t>(rows * width), kNaN);
    };
    const std::int64_t T = in.tokens(), state = in.H * in.K * in.V;
    out["o"] = size(T, in.H * in.V);
    out["final_state"] = size(in.sequences(), state);
    out["dq"] = size(T, in.H * in.K);
    out["dk"] = size(T, in.Hkv * in.K);
    out["dv"] = size(T, in.Hkv * in.V);
    if (in.gates.g) out["dg"] = size(T, in.H);
    if (in.gates.gk) out["dgk"] = size(T, in.H * in.K);
    if (in.gates.gv) out["dgv"] = size(T, in.H * in.V);
    if (in.gates.gamma) out["dgamma"] = size(1, in.H);
    if (in.states) out["dinitial_state"] = size(in.sequences(), state);
  }

  bool packed() const { return in.sequences() > 0; }
  Extents state_shape() const { return {in.sequences(), in.H, in.K, in.V}; }
  ConstTensorView q() const { return tokens_of(in.q, in.tokens(), in.H, in.K); }
  ConstTensorView k() const { return tokens_of(in.k, in.tokens(), in.Hkv, in.K); }
  ConstTensorView v() const { return tokens_of(in.v, in.tokens(), in.Hkv, in.V); }

  ConstTensorView gate(const std::vector<float>& values, std::int64_t width) const {
    return tokens_of(values, in.tokens(), in.H, width);
  }
  TensorView output(std::string_view name, std::int64_t heads, std::int64_t width) {
    float* const data = out.find(name)->second.data();
    if (width == 0) return {data, {1, in.tokens(), heads}};
    return {data, {1, in.tokens(), heads, width}};
  }
  OptionalTensorView output_if(std::string_view name, std::int64_t heads, std::int64_t width) {
    if (!out.contains(name)) return {};
    return output(name, heads, width);
  }

  /// Options that all ops have.
  template <class Options>
  Options shared_options(const CallOptions& call) const {
    Options options;
    if (packed()) {
      options.cu_seqlens = ConstTensorView(in.cu_seqlens.data(), {in.sequences() + 1});
      if (in.states)
        options.initial_state = ConstTensorView(in.initial_state.data(), state_shape());
      options.want_final_state = true;
    }
    options.reverse = in.reverse;
    options.call = call;
    return options;
  }
  ops::RecurrentAttentionOptions recurrent(const CallOptions& call) const {
    auto options = shared_options<ops::RecurrentAttentionOptions>(call);
    if (in.gates.g) options.g = gate(in.g, 0);
    if (in.gates.gk) options.gk = gate(in.gk, in.K);
    if (in.gates.gv) options.gv = gate(in.gv, in.V);
    if (in.gates.gamma) options.g_gamma = ConstTensorView(in.gamma.data(), {in.H});
    return options;
  }
  ops::GatedLinearAttentionOptions gated(const CallOptions& call) const {
    auto options = shared_options<ops::GatedLinearAttentionOptions>(call);
    if (in.gates.gamma) options.g_gamma = ConstTensorView(in.gamma.data(), {in.H});
    return options;
  }
  ConstTensorView gk() const { return tokens_of(in.gk, in.tokens(), in.H, in.K); }
  ops::LightningAttentionOptions lightning(const CallOptions& call) const {
    auto options = shared_options<ops::LightningAttentionOptions>(call);
    if (in.name == Name::kLayer) {
      options.layer_idx = kLayer;
      options.num_layers = kLayers;
    } else {
      options.slopes = ConstTensorView(in.gamma.data(), {in.H});
    }
    return options;
  }

  ops::RecurrentAttentionOutputs outputs() {
    ops::RecurrentAttentionOutputs to{.o = output("o", in.H, in.V)};
    if (packed()) to.final_state = TensorView(out["final_state"].data(), state_shape());
    return to;
  }
  ops::RecurrentAttentionOutputGradients gradients() const {
    ops::RecurrentAttentionOutputGradients from;
    from.d_o = tokens_of(in.d_o, in.tokens(), in.H, in.V);
    if (in.states && packed()) {
      from.dfinal_state = ConstTensorView(in.dfinal_state.data(), state_shape());
    }
    return from;
  }
  ops::RecurrentAttentionGradientOutputs gradient_outputs() {
    ops::RecurrentAttentionGradientOutputs to{.dq = output("dq", in.H, in.K),
                                              .dk = output("dk", in.Hkv, in.K),
                                              .dv = output("dv", in.Hkv, in.V)};
    to.dg = output_if("dg", in.H, 0);
    to.dgk = output_if("dgk", in.H, in.K);
    to.dgv = output_if("dgv", in.H, in.V);
    if (in.gates.gamma) to.dg_gamma = TensorView(out["dgamma"].data(), {in.H});
    if (in.states && packed()) {
      to.dinitial_state = TensorView(out["dinitial_state"].data(), state_shape());
    }
    return to;
  }
  ops::LightningAttentionGradientOutputs lightning_outputs() {
    const auto to = gradient_outputs();
    ops::LightningAttentionGradientOutputs named{.dq = to.dq, .dk = to.dk, .dv = to.dv};
    if (in.name == Name::kSlopes) named.dslopes = to.dg_gamma;
    named.dinitial_state = to.dinitial_state;
    return named;
  }

  ops::RecurrentAttentionArgs forward_args(const CallOptions& call) {
    if (in.name == Name::kRecurrent) {
      return ops::recurrent_attention_args(outputs(), q(), k(), v(), recurrent(call));
    }
    if (in.name == Name::kGated) {
      return ops::recurrent_attention_args(outputs(), q(), k(), v(),
                                           ops::lowered(gk(), gated(call)));
    }
    return ops::lightning_attention_args(outputs(), q(), k(), v(), lightning(call));
  }
  ops::RecurrentAttentionBackwardArgs backward_args(const CallOptions& call) {
    if (in.name == Name::kRecurrent) {
      return ops::recurrent_attention_backward_args(gradient_outputs(), q(), k(), v(), gradients(),
                                                    recurrent(call));
    }
    if (in.name == Name::kGated) {
      return ops::recurrent_attention_backward_args(gradient_outputs(), q(), k(), v(), gradients(),
                                                    ops::lowered(gk(), gated(call)));
    }
    return ops::lightning_attention_backward_args(lightning_outputs(), q(), k(), v(), gradients(),
                                                  lightning(call));
  }

  const WholeSequences& in;
  Results out;
};

// ---- pieces ----

/// Rows of the layout's tokens.
std::vector<float> rows_of(const std::vector<float>& all, std::int64_t width,
                           const SequenceLayout& layout) {
  std::vector<float> own;
  if (all.empty()) return own;
  for (const auto& fragment : layout.fragments()) {
    own.insert(own.end(), all.begin() + fragment.tokens.begin * width,
               all.begin() + fragment.tokens.end * width);
  }
  return own;
}

/// States of the fragments that have them, by `has`; NaN elsewhere.
template <class Has>
std::vector<float> states_of(const std::vector<float>& all, std::int64_t size,
                             const SequenceLayout& layout, const Has& has) {
  std::vector<float> own;
  for (const auto& fragment : layout.fragments()) {
    const auto begin = all.begin() + fragment.sequence * size;
    if (has(fragment)) {
      own.insert(own.end(), begin, begin + size);
    } else {
      own.insert(own.end(), static_cast<std::size_t>(size), kNaN);
    }
  }
  return own;
}

struct Ends {
  bool reverse;
  bool begins(const SequenceLayout::Fragment& fragment) const {
    return reverse ? fragment.is_last : fragment.is_first;
  }
  bool ends(const SequenceLayout::Fragment& fragment) const {
    return reverse ? fragment.is_first : fragment.is_last;
  }
};

WholeSequences piece_of(const WholeSequences& of, const SequenceLayout& layout) {
  WholeSequences piece = of;
  const auto bounds = layout.local_cu_seqlens();
  piece.cu_seqlens.assign(bounds.begin(), bounds.end());
  piece.q = rows_of(of.q, of.H * of.K, layout);
  piece.k = rows_of(of.k, of.Hkv * of.K, layout);
  piece.v = rows_of(of.v, of.Hkv * of.V, layout);
  piece.d_o = rows_of(of.d_o, of.H * of.V, layout);
  piece.g = rows_of(of.g, of.H, layout);
  piece.gk = rows_of(of.gk, of.H * of.K, layout);
  piece.gv = rows_of(of.gv, of.H * of.V, layout);
  if (!of.states) return piece;
  const std::int64_t state = of.H * of.K * of.V;
  const Ends ends{of.reverse};
  piece.initial_state = states_of(of.initial_state, state, layout,
                                  [&](const auto& fragment) { return ends.begins(fragment); });
  piece.dfinal_state = states_of(of.dfinal_state, state, layout,
                                 [&](const auto& fragment) { return ends.ends(fragment); });
  return piece;
}

/// A rank's results to where they belong.
void put(const Results& own, const WholeSequences& of, const SequenceLayout& layout,
         Results& whole) {
  const Ends ends{of.reverse};
  const auto T = static_cast<std::size_t>(of.tokens());
  for (const auto& [name, values] : own) {
    std::vector<float>& to = whole[name];
    if (name == "dgamma") {
      to = values;
      continue;
    }
    const bool is_state = name.ends_with("state");
    const std::size_t rows = is_state ? static_cast<std::size_t>(of.sequences()) : T;
    const auto width = static_cast<std::ptrdiff_t>(rows == 0 ? 0 : to.size() / rows);
    for (std::size_t f = 0; f < layout.fragments().size(); ++f) {
      const auto& fragment = layout.fragments()[f];
      const auto first = static_cast<std::ptrdiff_t>(is_state ? f : layout.local_cu_seqlens()[f]);
      const auto count = is_state ? 1 : fragment.tokens.end - fragment.tokens.begin;
      const auto at = is_state ? fragment.sequence : fragment.tokens.begin;
      if (name == "final_state" && !ends.ends(fragment)) continue;
      if (name == "dinitial_state" && !ends.begins(fragment)) continue;
      std::copy_n(values.begin() + first * width, count * width, to.begin() + at * width);
    }
  }
}

struct RankPlans {
  ops::distributed::SequencePlan<ops::RecurrentAttention> forward;
  ops::distributed::SequencePlan<ops::RecurrentAttentionBackward> backward;
};

RankPlans plans_of(const Call& call, const CallOptions& options, const SequenceLayout& layout,
                   distributed::Exchange& exchange) {
  namespace over_ranks = ops::distributed;
  const ConstTensorView q = call.q(), k = call.k(), v = call.v();
  const auto gradients = call.gradients();
  if (call.in.name == Name::kRecurrent) {
    const auto given = call.recurrent(options);
    return {
        over_ranks::plan_recurrent_attention(q, k, v, given, layout, exchange),
        over_ranks::plan_recurrent_attention_backward(q, k, v, gradients, given, layout, exchange)};
  }
  if (call.in.name == Name::kGated) {
    const auto given = call.gated(options);
    return {over_ranks::plan_gated_linear_attention(q, k, v, call.gk(), given, layout, exchange),
            over_ranks::plan_gated_linear_attention_backward(q, k, v, call.gk(), gradients, given,
                                                             layout, exchange)};
  }
  const auto given = call.lightning(options);
  return {
      over_ranks::plan_lightning_attention(q, k, v, given, layout, exchange),
      over_ranks::plan_lightning_attention_backward(q, k, v, gradients, given, layout, exchange)};
}

/// Memory of a workspace's alignment, full of what must not matter.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes)
      : memory_(static_cast<std::byte*>(cpu_device().allocate(bytes + 1, nullptr))), bytes_(bytes) {
    std::fill_n(memory_, bytes, std::byte{0xff});
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { cpu_device().deallocate(memory_, nullptr); }
  std::span<std::byte> span() const { return {memory_, bytes_}; }

 private:
  std::byte* memory_;
  std::size_t bytes_;
};

Results by_rank(const WholeSequences& of, const SequenceLayout& layout,
                distributed::Exchange& exchange) {
  const WholeSequences piece = piece_of(of, layout);
  const CallOptions options{.context = &heuristic_context()};
  Call call(piece);
  const RankPlans plans = plans_of(call, options, layout, exchange);
  std::vector<float> carried(static_cast<std::size_t>(element_count(plans.forward.carried_shape())),
                             kNaN);
  const TensorView state(carried.data(), plans.forward.carried_shape());
  const Workspace forward(plans.forward.workspace_bytes());
  plans.forward.launch(call.forward_args(options), state, exchange, nullptr, forward.span());
  const Workspace backward(plans.backward.workspace_bytes());
  plans.backward.launch(call.backward_args(options), state, exchange, nullptr, backward.span());
  return std::move(call.out);
}

// ---- errors ----

double rms_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

/// a b, summed over runs of `width`.
std::vector<double> summed_products(const std::vector<float>& a, const std::vector<float>& b,
                                    std::int64_t width) {
  std::vector<double> sums(a.size() / static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums[i / static_cast<std::size_t>(width)] +=
        static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sums;
}

/// RMS of what the gradient of a gate sums up, as recurrent_attention.hpp has it; 0 for no gate's.
double summand_rms(const WholeSequences& of, const std::string& name, const Results& expected) {
  if (name == "dgv") return rms_of(summed_products(expected.find("o")->second, of.d_o, 1));
  const std::vector<float>& dq = expected.find("dq")->second;
  if (name == "dgk") return rms_of(summed_products(of.q, dq, 1));
  if (name == "dg") return rms_of(summed_products(of.q, dq, of.K));
  if (name != "dgamma") return 0;
  const std::vector<double> heads = summed_products(of.q, dq, of.K);
  std::vector<double> sums(static_cast<std::size_t>(of.H));
  for (std::size_t i = 0; i < heads.size(); ++i) sums[i % sums.size()] += heads[i];
  return rms_of(sums);
}

}  // namespace

void fill(WholeSequences& of, const WholeGates& gates, bool strong, unsigned seed) {
  of.gates = gates;
  std::mt19937 random(seed);
  const auto values = [&](std::int64_t count, float least, float most) {
    std::uniform_real_distribution<float> uniform(least, most);
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& value : all) value = uniform(random);
    return all;
  };
  const auto gate = [&](std::int64_t count) {
    std::vector<float> all = values(count, strong ? -30.0F : -0.2F, 0);
    for (float& value : all) {
      if (strong && random() % 16 == 0) value = -std::numeric_limits<float>::infinity();
    }
    return all;
  };
  const std::int64_t T = of.tokens(), states = of.sequences() * of.H * of.K * of.V;
  of.q = values(T * of.H * of.K, -1, 1);
  of.k = values(T * of.Hkv * of.K, -1, 1);
  of.v = values(T * of.Hkv * of.V, -1, 1);
  of.d_o = values(T * of.H * of.V, -1, 1);
  if (gates.g) of.g = gate(T * of.H);
  if (gates.gk) of.gk = gate(T * of.H * of.K);
  if (gates.gv) of.gv = gate(T * of.H * of.V);
  const bool slopes = of.name == WholeSequences::Name::kSlopes;
  if (gates.gamma) of.gamma = slopes ? values(of.H, 0, 0.3F) : values(of.H, -0.3F, 0);
  if (!of.states) return;
  of.initial_state = values(states, -1, 1);
  of.dfinal_state = values(states, -1, 1);
}

Results by_one_walk(const WholeSequences& of) {
  const CallOptions options{.platform = kReferencePlatform, .context = &heuristic_context()};
  Call call(of);
  const ConstTensorView q = call.q(), k = call.k(), v = call.v();
  if (of.name == Name::kRecurrent || of.name == Name::kGated) {
    const auto given = of.name == Name::kGated ? ops::lowered(call.gk(), call.gated(options))
                                               : call.recurrent(options);
    ops::recurrent_attention_into(call.outputs(), q, k, v, given);
    ops::recurrent_attention_backward_into(call.gradient_outputs(), q, k, v, call.gradients(),
                                           given);
  } else {
    const auto given = call.lightning(options);
    ops::lightning_attention_into(call.outputs(), q, k, v, given);
    ops::lightning_attention_backward_into(call.lightning_outputs(), q, k, v, call.gradients(),
                                           given);
  }
  return std::move(call.out);
}

Results by_ranks(const WholeSequences& of, const ops::distributed::TokenOwners& owners,
                 std::vector<int>* collectives) {
  Results whole = Call(of).out;
  std::mutex writing;
  auto exchanges = distributed::ThreadExchange::make(static_cast<int>(owners.size()));
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < owners.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const SequenceLayout layout(of.cu_seqlens, owners, static_cast<int>(rank));
      CountingExchange exchange(std::move(exchanges[rank]));
      const Results own = by_rank(of, layout, exchange);
      const std::lock_guard lock(writing);
      if (collectives != nullptr) (*collectives)[rank] = exchange.collectives;
      put(own, of, layout, whole);
    });
  }
  threads.clear();
  return whole;
}

std::string first_fault(const WholeSequences& of, const Results& got, const Results& expected) {
  for (const auto& [name, values] : expected) {
    const std::vector<float>& own = got.find(name)->second;
    std::vector<double> errors(values.size()), sizes(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      errors[i] = static_cast<double>(own[i]) - static_cast<double>(values[i]);
      if (!std::isfinite(errors[i])) return str(name, "[", i, "] is ", own[i]);
    }
    const double summands = summand_rms(of, name, expected), size = rms_of(sizes);
    const double allowed = summands > 0 ? std::max(1e-4 * size, 2e-5 * summands) : 2e-5 * size;
    const double error = rms_of(errors);
    if (error > std::max(allowed, 1e-30)) {
      return str(name, ": RMS error ", error, ", expected at most ", allowed);
    }
  }
  return "";
}

}  // namespace attune::test
