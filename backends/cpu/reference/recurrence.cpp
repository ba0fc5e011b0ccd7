#include "recurrence.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace attune::cpu::reference {
namespace {

/// The decay of one token, a row of L_t[i, :] at a time.
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

// ---- forward ----

/// S = L_t S + k_t v_t, or L_t (S + k_t v_t)
void decay_and_write(const TokenBlock& block, std::int64_t t, DecayRows& decay, double* state) {
  const std::int64_t width = block.value_dim;
  const double* const k = block.k.data() + t * block.key_dim;
  const double* const v = block.v.data() + t * width;
  for (std::int64_t i = 0; i < block.key_dim; ++i) {
    const double* __restrict const l = decay.row(t, i);
    double* __restrict const s = state + i * width;
    if (block.inclusive) {
      for (std::int64_t j = 0; j < width; ++j) s[j] = l[j] * (s[j] + k[i] * v[j]);
    } else {
      for (std::int64_t j = 0; j < width; ++j) s[j] = l[j] * s[j] + k[i] * v[j];
    }
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

// ---- backward ----

/// The sum of term(0) ... term(count - 1), in eight interleaved parts: one running sum would keep
/// the compiler from using vectors.
template <class Term>
double sum_of(std::int64_t count, const Term& term) {
  constexpr std::int64_t kParts = 8;
  std::array<double, kParts> sums{};
  std::int64_t j = 0;
  for (; j + kParts <= count; j += kParts) {
    for (std::int64_t part = 0; part < kParts; ++part) sums[part] += term(j + part);
  }
  for (; j < count; ++j) sums[0] += term(j);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double dot(const double* a, const double* b, std::int64_t count) {
  return sum_of(count, [&](std::int64_t j) { return a[j] * b[j]; });
}

/// The gradient of o_t = scale q_t S_t.
void gradients_of_read(const TokenBlock& block, std::int64_t t, const double* d_o,
                       const double* state, double* dstate, TokenGradients& out) {
  const std::int64_t width = block.value_dim;
  const double* const q = block.q.data() + t * block.key_dim;
  double* const dq = out.q.data() + t * block.key_dim;
  for (std::int64_t i = 0; i < block.key_dim; ++i) {
    dq[i] = block.scale * dot(state + i * width, d_o, width);
    double* __restrict const ds = dstate + i * width;
    const double weight = block.scale * q[i];
    for (std::int64_t j = 0; j < width; ++j) ds[j] += weight * d_o[j];
  }
}

/// The gradient of S_t = ... + k_t v_t.
void gradients_of_write(const TokenBlock& block, std::int64_t t, const double* dstate,
                        TokenGradients& out) {
  const std::int64_t width = block.value_dim;
  const double* const k = block.k.data() + t * block.key_dim;
  const double* const v = block.v.data() + t * width;
  double* const dk = out.k.data() + t * block.key_dim;
  double* __restrict const dv = out.v.data() + t * width;
  for (std::int64_t i = 0; i < block.key_dim; ++i) {
    const double* const ds = dstate + i * width;
    dk[i] = dot(ds, v, width);
    for (std::int64_t j = 0; j < width; ++j) dv[j] += k[i] * ds[j];
  }
}

/// The gradient of S_t = L_t S_{t-1} + ...; turns dS_t into dS_{t-1}.
void gradients_of_decay(const TokenBlock& block, std::int64_t t, DecayRows& decay,
                        const double* previous, double* dstate, TokenGradients& out) {
  const std::int64_t width = block.value_dim;
  double* const dgk = out.gk.data() + t * block.key_dim;
  double* __restrict const dgv = out.gv.data() + t * width;
  for (std::int64_t i = 0; i < block.key_dim; ++i) {
    const double* const l = decay.row(t, i);
    const double* const s = previous + i * width;
    double* __restrict const ds = dstate + i * width;
    const auto z = [&](std::int64_t j) { return l[j] == 0.0 ? 0.0 : ds[j] * l[j] * s[j]; };
    dgk[i] = sum_of(width, z);
    for (std::int64_t j = 0; j < width; ++j) dgv[j] += z(j);
    for (std::int64_t j = 0; j < width; ++j) ds[j] *= l[j];
    out.g[t] += dgk[i];
  }
}

TokenGradients zeros_for(const TokenBlock& block) {
  const auto keys = static_cast<std::size_t>(block.count * block.key_dim);
  const auto values = static_cast<std::size_t>(block.count * block.value_dim);
  TokenGradients out;
  for (auto* of_keys : {&out.q, &out.k, &out.gk}) of_keys->assign(keys, 0.0);
  for (auto* of_values : {&out.v, &out.gv}) of_values->assign(values, 0.0);
  out.g.assign(static_cast<std::size_t>(block.count), 0.0);
  return out;
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

TokenGradients backpropagate(const TokenBlock& block, std::span<const double> d_o,
                             std::span<const double> states, std::span<double> dstate) {
  const std::int64_t size = block.key_dim * block.value_dim;
  TokenGradients out = zeros_for(block);
  DecayRows decay(block);
  for (std::int64_t t = block.count - 1; t >= 0; --t) {
    const double* const before = states.data() + t * size;
    if (!d_o.empty()) {
      const double* const d_o_t = d_o.data() + t * block.value_dim;
      gradients_of_read(block, t, d_o_t, before + size, dstate.data(), out);
    }
    gradients_of_write(block, t, dstate.data(), out);
    gradients_of_decay(block, t, decay, before, dstate.data(), out);
  }
  return out;
}

}  // namespace attune::cpu::reference
