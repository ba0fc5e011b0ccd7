// The sides of a problem that have gates, and their parts of the workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/gla/gla_backward_config.hpp"
#include "cuda/gla/params.hpp"

namespace attune::cuda::gla_backward {

constexpr std::int64_t kChunk = 64;  // tokens
constexpr std::int64_t kSmallPart = 64;
constexpr std::int64_t kLargePart = 128;
constexpr std::int64_t kMostChannels = kLargePart * kMostParts;

bool keys_have_gates(const ops::RecurrentAttentionProblem& problem);
bool values_have_gates(const ops::RecurrentAttentionProblem& problem);

/// Of one head: one a chunk, however the tokens of packed sequences are divided.
std::int64_t chunk_slots(const ops::RecurrentAttentionProblem& problem);

/// A problem as one of its sides sees it, without tensors and workspace.
GlaBackwardParams side_of(const ops::RecurrentAttentionProblem& problem,
                          const GlaBackwardConfig& config, bool of_values);

/// The sides with gates: one, or the keys' and the values'. Their tensors are not set.
struct Sides {
  GlaBackwardParams first;   // of the keys if both have gates
  GlaBackwardParams second;  // of the values if both have
  bool first_of_values = false;
  bool both = false;
  std::size_t workspace_bytes = 0;

  /// Divides `workspace` among them; without one, only counts its bytes.
  Sides(const ops::RecurrentAttentionProblem& problem, const GlaBackwardConfig& config,
        std::byte* workspace);

 private:
  /// What one side has and the other one needs.
  void exchange();
};

}  // namespace attune::cuda::gla_backward
