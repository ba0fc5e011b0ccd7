// One sequence of random tokens, whole on one GPU or in parts on several: B = 1, H = 32,
// K = V = 128, bf16, all inputs of tokens of 16 bits.
#pragma once

#include <optional>

#include <attune/ops/distributed_attention.hpp>

#include "gpu_ranks.hpp"

namespace attune::bench {

inline constexpr std::int64_t kHeads = 32, kWidth = 128, kRow = kHeads * kWidth;

enum class Kind { kGamma, kKeys, kTraining };
inline constexpr const char* kNames[] = {"gamma forward", "gk forward", "gamma forward+backward"};

/// 16 bits of numbers in [low, high) that are the same for a token wherever it is. Tokens repeat
/// after a prime number of them, which is longer than a state remembers.
Tensor tokens_of(int stream, std::int64_t first, std::int64_t count, float low, float high,
                 const Rank& rank);

/// Tensors of some tokens of a kind of pass.
struct Tokens {
  Tokens(Kind of, std::int64_t first, std::int64_t count, Rank& on);

  ops::RecurrentAttentionOptions options() {
    ops::RecurrentAttentionOptions given;
    if (kind == Kind::kKeys) {
      given.gk = ConstTensorView(gk);
    } else {
      given.g_gamma = ConstTensorView(gamma);
    }
    given.call.context = &rank.context();
    given.call.stream = rank.stream();
    return given;
  }
  ops::RecurrentAttentionArgs forward() {
    auto given = options();
    given.want_final_state = true;
    return ops::recurrent_attention_args({.o = o, .final_state = TensorView(final_state)}, q, k, v,
                                         given);
  }
  ops::RecurrentAttentionBackwardArgs backward() {
    return ops::recurrent_attention_backward_args(
        {.dq = dq, .dk = dk, .dv = dv, .dg_gamma = TensorView(dgamma)}, q, k, v,
        {.d_o = ConstTensorView(d_o)}, options());
  }
  /// What one pass leaves, token by token.
  std::vector<const Tensor*> results() const {
    if (kind == Kind::kTraining) return {&o, &dq, &dk, &dv};
    return {&o};
  }

  Kind kind;
  Rank& rank;
  Tensor q, k, v, gk, d_o, o, dq, dk, dv, dgamma, gamma, final_state;
};

inline Tensor memory_of(std::size_t bytes, const Rank& rank) {
  return Tensor(DType::kF32, {static_cast<std::int64_t>(bytes / sizeof(float) + 1)}, rank.device());
}
inline std::span<std::byte> bytes_of(Tensor& memory) {
  return {static_cast<std::byte*>(memory.view().data), memory.bytes()};
}

/// The pass on one GPU.
class Whole {
 public:
  explicit Whole(Tokens& tokens)
      : tokens_(tokens), forward_([&] {
          auto options = tokens.options();
          options.want_final_state = true;
          return ops::plan_recurrent_attention(tokens.q, tokens.k, tokens.v, options);
        }()) {
    std::size_t most = forward_.workspace_bytes();
    if (tokens.kind == Kind::kTraining) {
      backward_.emplace(ops::plan_recurrent_attention_backward(
          tokens.q, tokens.k, tokens.v, {.d_o = ConstTensorView(tokens.d_o)}, tokens.options()));
      most = std::max(most, backward_->workspace_bytes());
    }
    memory_ = memory_of(most, tokens.rank);
  }
  void run() {
    forward_.launch(tokens_.forward(), tokens_.rank.stream(), bytes_of(memory_));
    if (backward_) backward_->launch(tokens_.backward(), tokens_.rank.stream(), bytes_of(memory_));
  }

 private:
  Tokens& tokens_;
  Plan<ops::RecurrentAttention> forward_;
  std::optional<Plan<ops::RecurrentAttentionBackward>> backward_;
  Tensor memory_;
};

/// A rank's part of it.
class Part {
 public:
  Part(Tokens& tokens, const ops::distributed::SequenceLayout& layout)
      : tokens_(tokens),
        forward_([&] {
          auto options = tokens.options();
          options.want_final_state = true;
          return plan_recurrent_attention(tokens.q, tokens.k, tokens.v, options, layout,
                                          tokens.rank.exchange());
        }()),
        carried_(DType::kF32, forward_.carried_shape(), tokens.rank.device()) {
    std::size_t most = forward_.workspace_bytes();
    if (tokens.kind == Kind::kTraining) {
      backward_.emplace(plan_recurrent_attention_backward(
          tokens.q, tokens.k, tokens.v, {.d_o = ConstTensorView(tokens.d_o)}, tokens.options(),
          layout, tokens.rank.exchange()));
      most = std::max(most, backward_->workspace_bytes());
    }
    memory_ = memory_of(most, tokens.rank);
  }
  void run() {
    Rank& rank = tokens_.rank;
    forward_.launch(tokens_.forward(), carried_, rank.exchange(), rank.stream(), bytes_of(memory_));
    if (!backward_) return;
    backward_->launch(tokens_.backward(), carried_, rank.exchange(), rank.stream(),
                      bytes_of(memory_));
  }

 private:
  Tokens& tokens_;
  ops::distributed::SequencePlan<ops::RecurrentAttention> forward_;
  std::optional<ops::distributed::SequencePlan<ops::RecurrentAttentionBackward>> backward_;
  Tensor carried_, memory_;
};

}  // namespace attune::bench
