#include "forward_in_double.hpp"

#include <cmath>
#include <span>

#include "operands/host_indices.hpp"

namespace attune::ops {
namespace {

/// A dense host tensor as doubles, a row at a time.
class Rows {
 public:
  explicit Rows(const ConstTensorView& view)
      : values_(to_doubles(view)),
        heads_(view.size(2)),
        tokens_(view.size(1)),
        width_(view.rank() == 4 ? view.size(3) : 1) {}
  explicit Rows(const std::optional<ConstTensorView>& view) {
    if (view) *this = Rows(*view);
  }

  /// Element j of the row at (b, t, h); 0 where there is no tensor.
  double at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t j) const {
    if (values_.empty()) return 0;
    return values_[static_cast<std::size_t>(((b * tokens_ + t) * heads_ + h) * width_ + j)];
  }

 private:
  std::vector<double> values_;
  std::int64_t heads_ = 0, tokens_ = 0, width_ = 0;
};

/// The recurrence of one head of one sequence.
class Recurrence {
 public:
  Recurrence(const RecurrentAttentionProblem& problem, const RecurrentAttentionBackwardArgs& args)
      : p_(problem),
        args_(args),
        q_(args.q),
        k_(args.k),
        v_(args.v),
        g_(args.g),
        gk_(args.gk),
        gv_(args.gv),
        value_decays_(static_cast<std::size_t>(problem.V)) {}

  /// `state` [K, V] becomes the final one.
  void run(std::int64_t n, std::int64_t h, std::vector<double>& o, std::span<double> state) {
    state_ = state;
    const SequenceSpan span = sequence_span(p_, args_, n);
    load_state(n, h);
    const double gamma = gamma_of(args_.gamma, n, h, p_.H);
    for (std::int64_t step = 0; step < span.end - span.begin; ++step) {
      const std::int64_t t = p_.reverse ? span.end - 1 - step : span.begin + step;
      double* row = &o[static_cast<std::size_t>(((span.batch * p_.T + t) * p_.H + h) * p_.V)];
      advance(span.batch, t, h, gamma, row);
    }
  }

 private:
  void load_state(std::int64_t n, std::int64_t h) {
    if (!args_.initial_state) return;
    const std::int64_t first = (n * p_.H + h) * p_.K * p_.V;
    for (std::int64_t i = 0; i < p_.K * p_.V; ++i) {
      state_[static_cast<std::size_t>(i)] = element_as_double(*args_.initial_state, first + i);
    }
  }

  void advance(std::int64_t b, std::int64_t t, std::int64_t h, double gamma, double* o) {
    const std::int64_t kv_head = h / (p_.H / p_.Hkv);
    const double shared = gamma + g_.at(b, t, h, 0);
    for (std::int64_t j = 0; j < p_.V; ++j) {
      value_decays_[static_cast<std::size_t>(j)] = std::exp(gv_.at(b, t, h, j));
    }
    for (std::int64_t i = 0; i < p_.K; ++i) {
      const double key_decay = std::exp(shared + gk_.at(b, t, h, i));
      for (std::int64_t j = 0; j < p_.V; ++j) {
        double& s = state_[static_cast<std::size_t>(i * p_.V + j)];
        const double decay = key_decay * value_decays_[static_cast<std::size_t>(j)];
        s = decay * s + k_.at(b, t, kv_head, i) * v_.at(b, t, kv_head, j);
        o[j] += args_.scale * q_.at(b, t, h, i) * s;
      }
    }
  }

  const RecurrentAttentionProblem& p_;
  const RecurrentAttentionBackwardArgs& args_;
  Rows q_, k_, v_, g_, gk_, gv_;
  std::vector<double> value_decays_;
  std::span<double> state_;
};

}  // namespace

SequenceSpan sequence_span(const RecurrentAttentionProblem& problem,
                           const RecurrentAttentionBackwardArgs& args, std::int64_t n) {
  if (!args.cu_seqlens) return {.batch = n, .begin = 0, .end = problem.T};
  return {
      .batch = 0, .begin = index_at(*args.cu_seqlens, n), .end = index_at(*args.cu_seqlens, n + 1)};
}

ForwardInDouble forward_in_double(const RecurrentAttentionProblem& problem,
                                  const RecurrentAttentionBackwardArgs& args) {
  const std::int64_t heads = problem.sequences() * problem.H;
  const auto state_size = static_cast<std::size_t>(problem.K * problem.V);
  ForwardInDouble made;
  made.o.resize(static_cast<std::size_t>(problem.B * problem.T * problem.H * problem.V));
  made.final_state.resize(static_cast<std::size_t>(heads) * state_size);
  Recurrence recurrence(problem, args);
  for (std::int64_t row = 0; row < heads; ++row) {
    const std::span<double> states(made.final_state);
    recurrence.run(row / problem.H, row % problem.H, made.o,
                   states.subspan(static_cast<std::size_t>(row) * state_size, state_size));
  }
  return made;
}

}  // namespace attune::ops
