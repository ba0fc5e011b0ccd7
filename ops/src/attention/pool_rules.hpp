// A pool of states in a call of the forward pass: what its slots may be, and those of random cases.
#pragma once

#include <cstdint>

#include <attune/core/operand_check.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// Throws InvalidArgument for slots and snapshots that break a rule. Of indices in host memory, the
/// values are looked at. `bounds_host` are those of packed sequences where cu_seqlens is on a
/// device, or null.
void check_pool(OperandCheck& check, const RecurrentAttentionArgs& args,
                std::int64_t snapshot_every, const ConstTensorView* bounds_host);

/// The slots of a random case, in no order. Every fifth final state is not kept. Of sequences with
/// initial slots a third starts in place, a third from a slot of its own, a third from zero. No
/// sequence's snapshots are more than the average one has, so that a pool stays small.
class RandomSlots {
 public:
  explicit RandomSlots(const RecurrentAttentionProblem& problem);

  std::int64_t pool_size() const { return size_; }
  Tensor initial() const;
  Tensor final() const;
  Tensor snapshots() const;

 private:
  std::int64_t final_of(std::int64_t n) const { return n % 5 == 4 ? -1 : slot(n); }
  std::int64_t slot(std::int64_t i) const { return (i + 1) * step_ % size_; }

  std::int64_t sequences_ = 0;
  std::int64_t most_ = 0;  // snapshots that a sequence may reach
  std::int64_t kept_ = 0;  // of which are kept
  std::int64_t size_ = 0;
  std::int64_t step_ = 1;  // between the slots of neighbours; no divisor of it divides the size
};

}  // namespace attune::ops
