#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <attune/core/parallel_for.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/kernels.hpp"
#include "recurrence.hpp"
#include "reference_kernel.hpp"
#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

using ops::ConstantDecay;
using ops::RecurrentAttentionBackward;
using Problem = RecurrentAttentionBackward::Problem;
using Args = RecurrentAttentionBackward::Args;

/// The gradient of a group's shared k and v, by position, summed over its query heads before it is
/// rounded.
struct GroupSums {
  std::vector<double> dk, dv;  // [count, K], [count, V]
};

/// A head's tokens in about sqrt(count) segments of as many. Only the states at their starts are
/// kept, and those of one segment at a time: memory for 2 sqrt(count) states instead of `count`.
class Segments {
 public:
  explicit Segments(std::int64_t tokens)
      : tokens_(tokens),
        length_(std::max<std::int64_t>(
            1, static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(tokens)))))) {}

  std::int64_t count() const { return (tokens_ + length_ - 1) / length_; }
  std::int64_t begin(std::int64_t segment) const { return segment * length_; }
  std::int64_t length(std::int64_t segment) const {
    return std::min(length_, tokens_ - begin(segment));
  }

 private:
  std::int64_t tokens_;
  std::int64_t length_;
};

void add_to(std::vector<double>& sums, std::int64_t offset, const std::vector<double>& terms) {
  std::transform(terms.begin(), terms.end(), sums.begin() + offset, sums.begin() + offset,
                 std::plus<>());
}

/// The backward pass of one query head.
class HeadBackward {
 public:
  HeadBackward(const Problem& problem, const Args& args, const HeadTokens& tokens)
      : problem_(problem), args_(args), tokens_(tokens), segments_(tokens.count) {}

  /// Writes the gradients that the head has to itself, adds to those it shares, and returns that of
  /// gamma.
  double run(GroupSums& sums) const {
    const std::vector<std::vector<double>> starts = states_at_starts();
    std::vector<double> dstate =
        load_state(args_.dfinal_state, tokens_.sequence, tokens_.head, problem_.K, problem_.V);
    double dgamma = 0;
    for (std::int64_t segment = segments_.count() - 1; segment >= 0; --segment) {
      const std::int64_t first = segments_.begin(segment);
      const TokenGradients gradients = segment_gradients(segment, starts[segment], dstate);
      store(gradients, first);
      add_to(sums.dk, first * problem_.K, gradients.k);
      add_to(sums.dv, first * problem_.V, gradients.v);
      dgamma = std::accumulate(gradients.g.begin(), gradients.g.end(), dgamma);
    }
    if (args_.dinitial_state) {
      store_state(*args_.dinitial_state, tokens_.sequence, tokens_.head, dstate);
    }
    return dgamma;
  }

 private:
  TokenBlock load(std::int64_t segment) const {
    return load_tokens(problem_, args_, tokens_, segments_.begin(segment),
                       segments_.length(segment));
  }

  std::vector<std::vector<double>> states_at_starts() const {
    std::vector<double> state =
        load_state(args_.initial_state, tokens_.sequence, tokens_.head, problem_.K, problem_.V);
    std::vector<std::vector<double>> starts;
    for (std::int64_t segment = 0; segment < segments_.count(); ++segment) {
      starts.push_back(state);
      advance(load(segment), state);
    }
    return starts;
  }

  TokenGradients segment_gradients(std::int64_t segment, const std::vector<double>& start,
                                   std::vector<double>& dstate) const {
    const TokenBlock block = load(segment);
    std::vector<double> d_o;
    if (args_.d_o) {
      d_o = load_rows(*args_.d_o, tokens_, tokens_.head, segments_.begin(segment), block.count);
    }
    return backpropagate(block, d_o, states_through(block, start), dstate);
  }

  void store(const TokenGradients& gradients, std::int64_t first) const {
    const auto store_to = [&](const TensorView& to, const std::vector<double>& rows) {
      store_rows(to, tokens_, tokens_.head, first, rows);
    };
    store_to(args_.dq, gradients.q);
    if (args_.dg) store_to(*args_.dg, gradients.g);
    if (args_.dgk) store_to(*args_.dgk, gradients.gk);
    if (args_.dgv) store_to(*args_.dgv, gradients.gv);
  }

  const Problem& problem_;
  const Args& args_;
  HeadTokens tokens_;
  Segments segments_;
};

/// All query heads of a kv head, one after the other, so that the sums over them have one order.
/// Sets dgamma[h] for each of them.
void run_group(const Problem& problem, const Args& args, std::int64_t sequence,
               std::int64_t kv_head, std::span<double> dgamma) {
  const std::int64_t group = problem.H / problem.Hkv;
  HeadTokens tokens = head_tokens(problem, args.cu_seqlens, sequence, kv_head * group);
  GroupSums sums{.dk = std::vector<double>(static_cast<std::size_t>(tokens.count * problem.K)),
                 .dv = std::vector<double>(static_cast<std::size_t>(tokens.count * problem.V))};
  for (; tokens.head < (kv_head + 1) * group; ++tokens.head) {
    dgamma[tokens.head] = HeadBackward(problem, args, tokens).run(sums);
  }
  store_rows(args.dk, tokens, kv_head, 0, sums.dk);
  store_rows(args.dv, tokens, kv_head, 0, sums.dv);
}

/// Writes the gradient of gamma.values from `of_gamma` [N, H].
void store_dgamma(const TensorView& to, ConstantDecay::Source source, std::int64_t sequences,
                  std::int64_t heads, std::vector<double> of_gamma) {
  if (source == ConstantDecay::Source::kSlopes) {
    for (double& value : of_gamma) value = -value;
  }
  const bool shared_by_sequences = to.stride(0) == 0;
  if (shared_by_sequences) {
    std::vector<double> sums(static_cast<std::size_t>(heads), 0.0);
    for (std::int64_t i = 0; i < sequences * heads; ++i) sums[i % heads] += of_gamma[i];
    store_row(to, {0}, sums);
    return;
  }
  for (std::int64_t n = 0; n < sequences; ++n) {
    store_row(to, {n}, std::span(of_gamma).subspan(n * heads, heads));
  }
}

/// One task a sequence and kv head.
class RecurrentAttentionBackwardKernel final : public ReferenceKernel<RecurrentAttentionBackward> {
 public:
  std::string_view name() const noexcept override {
    return "reference.recurrent_attention.backward";
  }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    const std::int64_t sequences = problem.sequences();
    std::vector<double> dgamma(static_cast<std::size_t>(sequences * problem.H));
    parallel_for(sequences * problem.Hkv, usable_cores(), [&](std::int64_t task) {
      const std::int64_t sequence = task / problem.Hkv;
      run_group(problem, args, sequence, task % problem.Hkv,
                std::span(dgamma).subspan(sequence * problem.H, problem.H));
    });
    const HeadTokens padding = padded_tokens(problem, args.cu_seqlens);
    for (const TensorView& gradient : {args.dq, args.dk, args.dv}) {
      fill_padded_rows(gradient, padding);
    }
    for (const std::optional<TensorView>& gradient : {args.dg, args.dgk, args.dgv}) {
      if (gradient) fill_padded_rows(*gradient, padding);
    }
    if (args.dgamma) {
      store_dgamma(*args.dgamma, args.gamma.source, sequences, problem.H, std::move(dgamma));
    }
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward() {
  return std::make_unique<RecurrentAttentionBackwardKernel>();
}

}  // namespace attune::cpu::reference
