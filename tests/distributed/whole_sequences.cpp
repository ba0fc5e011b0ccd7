#include "distributed/whole_sequences.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include <attune/distributed/staged_exchange.hpp>
#include <attune/distributed/thread_exchange.hpp>

#include "distributed/counting_exchange.hpp"
#include "distributed/sequence_call.hpp"

namespace attune::test {
namespace {

using ops::CallOptions;
using ops::distributed::SequenceLayout;
using Name = WholeSequences::Name;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

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
  if (of.gamma_rows) {
    piece.gamma.clear();
    for (const auto& fragment : layout.fragments()) {
      const auto begin = of.gamma.begin() + fragment.sequence * of.H;
      piece.gamma.insert(piece.gamma.end(), begin, begin + of.H);
    }
  }
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
    if (name == "dgamma" && !of.gamma_rows) {
      to = values;
      continue;
    }
    if (name == "dgamma") {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto h = i % static_cast<std::size_t>(of.H), f = i / static_cast<std::size_t>(of.H);
        const auto n = static_cast<std::size_t>(layout.fragments()[f].sequence);
        to[n * static_cast<std::size_t>(of.H) + h] += values[i];
      }
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

RankPlans plans_of(const SequenceCall& call, const CallOptions& options,
                   const SequenceLayout& layout, distributed::Exchange& exchange) {
  namespace over_ranks = ops::distributed;
  const ConstTensorView q = call.q(), k = call.k(), v = call.v();
  const auto gradients = call.gradients();
  if (call.in().name == Name::kRecurrent) {
    const auto given = call.recurrent(options);
    return {
        over_ranks::plan_recurrent_attention(q, k, v, given, layout, exchange),
        over_ranks::plan_recurrent_attention_backward(q, k, v, gradients, given, layout, exchange)};
  }
  if (call.in().name == Name::kGated) {
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
  Workspace(std::size_t bytes, const Device& device)
      : device_(device),
        memory_(static_cast<std::byte*>(device.allocate(bytes + 1, nullptr))),
        bytes_(bytes) {
    device.fill(memory_, std::byte{0xff}, bytes, nullptr);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { device_.deallocate(memory_, nullptr); }
  std::span<std::byte> span() const { return {memory_, bytes_}; }

 private:
  const Device& device_;
  std::byte* memory_;
  std::size_t bytes_;
};

Results by_rank(const WholeSequences& of, const SequenceLayout& layout,
                distributed::Exchange& exchange, const Device& device, Context& context) {
  const WholeSequences piece = piece_of(of, layout);
  const CallOptions options{.context = &context};
  const SequenceCall call(piece, device);
  const RankPlans plans = plans_of(call, options, layout, exchange);
  Tensor carried(DType::kF32, plans.forward.carried_shape(), device);
  const TensorView state = carried;
  if (carried.bytes() > 0) {
    device.fill(state.data, std::byte{0xff}, carried.bytes(), nullptr);  // NaN
  }
  distributed::StagedExchange staged(exchange, device);
  distributed::Exchange& states = device.info().id == DeviceId{} ? exchange : staged;
  const Workspace forward(plans.forward.workspace_bytes(), device);
  plans.forward.launch(call.forward_args(options), state, states, nullptr, forward.span());
  const Workspace backward(plans.backward.workspace_bytes(), device);
  plans.backward.launch(call.backward_args(options), state, states, nullptr, backward.span());
  return call.results();
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
  std::vector<double> sums(of.gamma.size());
  for (std::int64_t n = 0; n < of.sequences(); ++n) {
    const auto at = static_cast<std::size_t>(n);
    for (std::int64_t i = of.cu_seqlens[at] * of.H; i < of.cu_seqlens[at + 1] * of.H; ++i) {
      sums[static_cast<std::size_t>((of.gamma_rows ? n : 0) * of.H + i % of.H)] +=
          heads[static_cast<std::size_t>(i)];
    }
  }
  return rms_of(sums);
}

}  // namespace

void fill(WholeSequences& of, const WholeGates& gates, bool strong, unsigned seed) {
  of.gates = gates;
  std::mt19937 random(seed);
  const auto values = [&](std::int64_t count, float least, float most) {
    std::uniform_real_distribution<float> uniform(least, most);
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& value : all) {
      value = uniform(random);
      if (of.dtype == DType::kBF16) value = static_cast<float>(bf16(value));
    }
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
  const std::int64_t decays = of.gamma_rows ? of.sequences() * of.H : of.H;
  if (gates.gamma) of.gamma = slopes ? values(decays, 0, 0.3F) : values(decays, -0.3F, 0);
  if (!of.states) return;
  of.initial_state = values(states, -1, 1);
  of.dfinal_state = values(states, -1, 1);
}

Results by_one_walk(const WholeSequences& of) {
  const CallOptions options{.platform = kReferencePlatform, .context = &heuristic_context()};
  const SequenceCall call(of);
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
  return call.results();
}

Results by_ranks(const WholeSequences& of, const ops::distributed::TokenOwners& owners,
                 std::vector<int>* collectives, const Device& device, Context& context) {
  Results whole = SequenceCall(of).results();
  for (auto& [name, values] : whole) {
    if (name == "dgamma") std::ranges::fill(values, 0.0F);  // rows of fragments are added up
  }
  std::mutex writing;
  auto exchanges = distributed::ThreadExchange::make(static_cast<int>(owners.size()));
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < owners.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const SequenceLayout layout(of.cu_seqlens, owners, static_cast<int>(rank));
      CountingExchange exchange(std::move(exchanges[rank]));
      const Results own = by_rank(of, layout, exchange, device, context);
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
    const bool is_f32 = of.dtype == DType::kF32;
    const double tensor = is_f32 ? 2e-5 : 5e-3, gate = is_f32 ? 1e-4 : 2e-2;
    const double allowed = summands > 0 ? std::max(gate * size, tensor * summands) : tensor * size;
    const double error = rms_of(errors);
    if (error > std::max(allowed, 1e-30)) {
      return str(name, ": RMS error ", error, ", expected at most ", allowed);
    }
  }
  return "";
}

}  // namespace attune::test
