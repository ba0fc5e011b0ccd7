// What packed sequences of one length owe the batch of them.
#pragma once

#include "support/kernel_runs.hpp"

namespace attune::test {

/// How a kernel cuts packed sequences of one length: as their batch, or as if one may be longer.
enum class PackedCuts { kAsBatch, kByLongest };

/// Runs a kernel of recurrent attention, or of its backward pass, by its heuristic on batches of
/// short and long sequences, and on the same tensors packed. Cut alike, outputs are expected to be
/// the same bits, but for gradients of constant decays, which are sums over sequences: then packing
/// does not show in what a model computes. Else they are within tolerances of each other. Returns
/// how many problems it took.
int expect_packed_sequences_are_their_batch(const KernelOnDevice& on,
                                            PackedCuts cuts = PackedCuts::kAsBatch);

}  // namespace attune::test
