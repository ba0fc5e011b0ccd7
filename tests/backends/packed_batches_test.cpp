// Packed sequences of one length are their batch to the bit, by each kernel of a host.
#include "support/packed_batches.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "support/host_kernels.hpp"

namespace attune::test {
namespace {

std::vector<KernelOnDevice> attention_kernels() {
  std::vector<KernelOnDevice> kernels = host_kernels("recurrent_attention");
  for (const KernelOnDevice& on : host_kernels("recurrent_attention.backward")) {
    kernels.push_back(on);
  }
  std::erase_if(kernels, [](const KernelOnDevice& on) {  // token by token, and slow
    return on.kernel->name().starts_with("reference.");
  });
  return kernels;
}

class PackedBatches : public HostKernel {};
INSTANTIATE_TEST_SUITE_P(EveryHostKernel, PackedBatches, testing::ValuesIn(attention_kernels()),
                         host_kernel_name);

TEST_P(PackedBatches, SequencesOfOneLengthAreTheirBatch) {
  EXPECT_GT(expect_packed_sequences_are_their_batch(GetParam()), 0);
}

}  // namespace
}  // namespace attune::test
