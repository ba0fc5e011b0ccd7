// The naive C++ loop on a problem of recurrent_attention or recurrent_decode.
#pragma once

#include <attune/core/params.hpp>
#include <attune/core/tensor.hpp>

#include "suites/host_samples.hpp"
#include "yardsticks/loops.hpp"

namespace attune::cli {

/// A number among a problem's fields; 1 where it has none of that name, as a decode step has one
/// token.
std::int64_t field_or_one(const Params& problem, std::string_view name);

/// The same sizes and states as a problem's, whatever its types and gates: fp32, dense, heads not
/// grouped, with a decay for every key channel that is already exponentiated. Its inputs are its
/// own.
class NaiveLoop {
 public:
  /// `problem` holds the fields: B, T, H, K, V, h0 and ht.
  explicit NaiveLoop(const Params& problem);

  /// On equal shares of the heads, as long as this lives.
  HostWork work(int threads) const;

  /// The arguments of the loop for sequence `n`.
  yardsticks::NaiveRecurrentArgs args_of(std::int64_t n) const;

 private:
  std::int64_t sequences_ = 0;
  yardsticks::NaiveRecurrentArgs args_;  // of the first sequence
  Tensor q_, k_, v_, decay_, o_, initial_, state_;
};

}  // namespace attune::cli
