// Where one NaN or infinity among the inputs of a case shows in its outputs, and whether
// recurrent_attention.hpp says that it may.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "support/kernel_runs.hpp"

namespace attune::test {

/// A kernel's largest chunk is 64 tokens: so many before a token, or after it, share its chunk.
inline constexpr std::int64_t kChunkReach = 63;

/// One value of an input. A row is a token, counted over all sequences; in a decode step, a row of
/// the batch.
struct SpoiltInput {
  std::string name;
  std::int64_t row = 0;
  std::int64_t head = 0;  // of k and v, a key and value head
  float value = 0;

  friend std::ostream& operator<<(std::ostream& out, const SpoiltInput& spoilt) {
    return out << spoilt.name << " = " << spoilt.value << " at row " << spoilt.row << ", head "
               << spoilt.head;
  }
};

/// One row of an output whose bits are not those of the run without the spoilt input.
struct ReachedRow {
  std::string output;
  std::int64_t row = 0;  // of a state: its index
  std::int64_t head = 0;
  bool is_spoilt = false;  // it is not just rounded another way

  friend std::ostream& operator<<(std::ostream& out, const ReachedRow& reached) {
    return out << reached.output << " of row " << reached.row << ", head " << reached.head
               << (reached.is_spoilt ? "" : " (rounding)");
  }
};

/// A case of recurrent_attention, its backward pass or recurrent_decode.
class SpoiltCase {
 public:
  SpoiltCase(const KernelOnDevice& on, ProblemRef problem, std::uint64_t seed);
  ~SpoiltCase();

  /// Inputs that have values for every row: q, k, v, gates, do.
  std::vector<std::string> inputs() const;
  std::int64_t rows() const;
  std::int64_t heads_of(const std::string& input) const;
  std::int64_t sequence_of(std::int64_t row) const;

  /// What changes when one input is spoilt.
  std::vector<ReachedRow> reached(const ConfigBlob& config, const SpoiltInput& spoilt);

  /// Tokens that the value went against the direction in which the formula takes it.
  std::int64_t wrong_way(const SpoiltInput& spoilt, const ReachedRow& reached) const;

  /// Whether the header allows it, were chunks of `reach` + 1 tokens: nothing changes in another
  /// sequence or head, and what is further against the direction is rounded another way at most.
  bool is_allowed(const SpoiltInput& spoilt, const ReachedRow& reached, std::int64_t reach) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Spoils each input of some problems, and holds a kernel with each size of its chunks to the
/// header. `info` says which problems it takes. Returns how many it was held to it on.
int expect_only_the_allowed_is_reached(const KernelOnDevice& on, const DeviceInfo& info);

}  // namespace attune::test
