#include <algorithm>

#include "decay_rows.hpp"
#include "recurrence.hpp"

namespace attune::cpu::reference {
namespace {

/// S = L_t S + k_t v_t
void decay_and_write(const TokenBlock& block, std::int64_t t, DecayRows& decay, double* state) {
  const std::int64_t width = block.value_dim;
  const double* const k = block.k.data() + t * block.key_dim;
  const double* const v = block.v.data() + t * width;
  for (std::int64_t i = 0; i < block.key_dim; ++i) {
    const double* __restrict const l = decay.row(t, i);
    double* __restrict const s = state + i * width;
    for (std::int64_t j = 0; j < width; ++j) s[j] = l[j] * s[j] + k[i] * v[j];
  }
}

/// o_t = scale q_t S
void read(const TokenBlock& block, std::int64_t t, const double* state, double* __restrict o) {
  const std::int64_t width = block.value_dim;
  const double* const q = block.q.data() + t * block.key_dim;
  std::fill_n(o, width, 0.0);
  for (std::int64_t i = 0; i < block.key_dim; ++i) {
    const double* const s = state + i * width;
    for (std::int64_t j = 0; j < width; ++j) o[j] += q[i] * s[j];
  }
  for (std::int64_t j = 0; j < width; ++j) o[j] *= block.scale;
}

}  // namespace

void advance(const TokenBlock& block, std::span<double> state) {
  DecayRows decay(block);
  for (std::int64_t t = 0; t < block.count; ++t) decay_and_write(block, t, decay, state.data());
}

void advance(const TokenBlock& block, std::span<double> state, std::vector<double>& o) {
  o.resize(static_cast<std::size_t>(block.count * block.value_dim));
  DecayRows decay(block);
  for (std::int64_t t = 0; t < block.count; ++t) {
    decay_and_write(block, t, decay, state.data());
    read(block, t, state.data(), o.data() + t * block.value_dim);
  }
}

std::vector<double> states_through(const TokenBlock& block, std::span<const double> first) {
  const auto size = static_cast<std::int64_t>(first.size());
  std::vector<double> states(static_cast<std::size_t>((block.count + 1) * size));
  std::copy(first.begin(), first.end(), states.begin());
  DecayRows decay(block);
  for (std::int64_t t = 0; t < block.count; ++t) {
    double* const before = states.data() + t * size;
    std::copy_n(before, size, before + size);
    decay_and_write(block, t, decay, before + size);
  }
  return states;
}

}  // namespace attune::cpu::reference
