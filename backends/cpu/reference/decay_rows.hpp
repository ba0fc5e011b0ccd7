// The decay of one token, a row of L_t[i, :] at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "recurrence.hpp"

namespace attune::cpu::reference {

class DecayRows {
 public:
  explicit DecayRows(const TokenBlock& block)
      : block_(block), row_(static_cast<std::size_t>(block.value_dim)) {}

  /// L_t[i, :], valid until the next call. Rows of a token are asked for in order.
  const double* row(std::int64_t t, std::int64_t i) {
    const bool rows_differ = !block_.gk.empty();
    if (i > 0 && !rows_differ) return row_.data();

    const double shared = block_.g[t] + (rows_differ ? block_.gk[t * block_.key_dim + i] : 0.0);
    if (block_.gv.empty()) {
      std::fill(row_.begin(), row_.end(), std::exp(shared));
    } else {
      const double* const gv = block_.gv.data() + t * block_.value_dim;
      for (std::int64_t j = 0; j < block_.value_dim; ++j) row_[j] = std::exp(shared + gv[j]);
    }
    return row_.data();
  }

 private:
  const TokenBlock& block_;
  std::vector<double> row_;
};

}  // namespace attune::cpu::reference
