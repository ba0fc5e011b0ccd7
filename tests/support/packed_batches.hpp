// What packed sequences of one length owe the batch of them.
#pragma once

#include "support/kernel_runs.hpp"

namespace attune::test {

/// Runs a kernel of recurrent attention, or of its backward pass, by its heuristic on batches of
/// short and long sequences, and on the same tensors packed. Outputs are expected to be the same
/// bits: then packing does not show in what a model computes. A gradient of constant decays is
/// summed over sequences, in any order. Returns how many problems it took.
int expect_packed_sequences_are_their_batch(const KernelOnDevice& on);

}  // namespace attune::test
