#include "support/double_recurrence.hpp"

#include <cmath>
#include <numeric>

namespace attune::test {
namespace {

double at_or_zero(const std::vector<double>& values, std::int64_t index) {
  return values.empty() ? 0.0 : values[static_cast<std::size_t>(index)];
}

/// One head of one sequence: tokens begin .. end - 1 of batch b. `look` sees the states before,
/// between and after them.
void run_head(const DoubleRecurrence& in, std::int64_t n, std::int64_t b, std::int64_t begin,
              std::int64_t end, std::int64_t h, DoubleOutputs& out, const LookAtStates& look) {
  const std::int64_t kv_head = h * in.Hkv / in.H;
  const std::int64_t state_at = (n * in.H + h) * in.K * in.V;
  for (std::int64_t ij = 0; ij < in.K * in.V; ++ij) {
    out.final_state[state_at + ij] = at_or_zero(in.initial_state, state_at + ij);
  }
  const auto show = [&](std::int64_t tokens) {
    const std::span<const double> all(out.final_state);
    if (look) look(n, tokens, h, all.subspan(std::size_t(state_at), std::size_t(in.K * in.V)));
  };
  show(0);
  for (std::int64_t step = 0; step < end - begin; ++step) {
    const std::int64_t t = in.reverse ? end - 1 - step : begin + step;
    const std::int64_t token = (b * in.T + t) * in.H + h;
    const std::int64_t kv_token = (b * in.T + t) * in.Hkv + kv_head;
    for (std::int64_t i = 0; i < in.K; ++i) {
      const double of_row = at_or_zero(in.g, token) + at_or_zero(in.gamma, n * in.H + h) +
                            at_or_zero(in.gk, token * in.K + i);
      const double decay = std::exp(of_row);
      for (std::int64_t j = 0; j < in.V; ++j) {
        double& s = out.final_state[state_at + i * in.V + j];
        const double of_both = in.gv.empty() ? decay : std::exp(of_row + in.gv[token * in.V + j]);
        s = of_both * s + in.k[kv_token * in.K + i] * in.v[kv_token * in.V + j];
        out.o[token * in.V + j] += in.scale * in.q[token * in.K + i] * s;
      }
    }
    show(step + 1);
  }
}

/// The same head's part of the gradients.
void differentiate_head(const DoubleRecurrence& in, std::int64_t n, std::int64_t b,
                        std::int64_t begin, std::int64_t end, std::int64_t h, DoubleOutputs& out,
                        DoubleGradients& to) {
  const std::int64_t kv_head = h * in.Hkv / in.H, size = in.K * in.V;
  std::vector<double> states;
  run_head(in, n, b, begin, end, h, out, [&](auto, auto, auto, std::span<const double> state) {
    states.insert(states.end(), state.begin(), state.end());
  });
  for (std::int64_t ij = 0; ij < size; ++ij) {
    to.initial_state[(n * in.H + h) * size + ij] =
        at_or_zero(in.dfinal_state, (n * in.H + h) * size + ij);
  }
  for (std::int64_t step = end - begin - 1; step >= 0; --step) {
    const std::int64_t t = in.reverse ? end - 1 - step : begin + step;
    const std::int64_t token = (b * in.T + t) * in.H + h;
    const std::int64_t kv_token = (b * in.T + t) * in.Hkv + kv_head;
    for (std::int64_t i = 0; i < in.K; ++i) {
      for (std::int64_t j = 0; j < in.V; ++j) {
        double& ds = to.initial_state[(n * in.H + h) * size + i * in.V + j];
        const double before = states[step * size + i * in.V + j];
        const double after = states[(step + 1) * size + i * in.V + j];
        const double d_o = at_or_zero(in.d_o, token * in.V + j);
        to.q[token * in.K + i] += in.scale * after * d_o;
        ds += in.scale * in.q[token * in.K + i] * d_o;
        to.k[kv_token * in.K + i] += ds * in.v[kv_token * in.V + j];
        to.v[kv_token * in.V + j] += ds * in.k[kv_token * in.K + i];
        const double decay =
            std::exp(at_or_zero(in.g, token) + at_or_zero(in.gamma, n * in.H + h) +
                     at_or_zero(in.gk, token * in.K + i) + at_or_zero(in.gv, token * in.V + j));
        const double through = decay == 0 ? 0 : ds * decay * before;
        to.g[token] += through;
        to.gamma[n * in.H + h] += through;
        to.gk[token * in.K + i] += through;
        to.gv[token * in.V + j] += through;
        ds *= decay;
      }
    }
  }
}

double loss(const DoubleRecurrence& in) {
  const DoubleOutputs out = run(in);
  double sum = 0;
  if (!in.d_o.empty()) sum = std::inner_product(out.o.begin(), out.o.end(), in.d_o.begin(), sum);
  if (!in.dfinal_state.empty()) {
    sum = std::inner_product(out.final_state.begin(), out.final_state.end(),
                             in.dfinal_state.begin(), sum);
  }
  return sum;
}

}  // namespace

DoubleOutputs run(const DoubleRecurrence& in, const LookAtStates& look) {
  const bool packed = !in.cu_seqlens.empty();
  DoubleOutputs out;
  out.o.assign(static_cast<std::size_t>(in.B * in.T * in.H * in.V), 0.0);
  out.final_state.assign(static_cast<std::size_t>(in.sequences() * in.H * in.K * in.V), 0.0);
  for (std::int64_t n = 0; n < in.sequences(); ++n) {
    const std::int64_t begin = packed ? in.cu_seqlens[n] : 0;
    const std::int64_t end = packed ? in.cu_seqlens[n + 1] : in.T;
    for (std::int64_t h = 0; h < in.H; ++h) {
      run_head(in, n, packed ? 0 : n, begin, end, h, out, look);
    }
  }
  return out;
}

DoubleGradients gradients(const DoubleRecurrence& in) {
  const bool packed = !in.cu_seqlens.empty();
  const auto zeros = [](std::int64_t count) {
    return std::vector<double>(static_cast<std::size_t>(count), 0.0);
  };
  const std::int64_t rows = in.B * in.T * in.H, kv_rows = in.B * in.T * in.Hkv;
  const std::int64_t heads = in.sequences() * in.H;
  DoubleOutputs out{.o = zeros(rows * in.V), .final_state = zeros(heads * in.K * in.V)};
  DoubleGradients to{.q = zeros(rows * in.K),
                     .k = zeros(kv_rows * in.K),
                     .v = zeros(kv_rows * in.V),
                     .g = zeros(rows),
                     .gk = zeros(rows * in.K),
                     .gv = zeros(rows * in.V),
                     .gamma = zeros(heads),
                     .initial_state = zeros(heads * in.K * in.V)};
  for (std::int64_t n = 0; n < in.sequences(); ++n) {
    const std::int64_t begin = packed ? in.cu_seqlens[n] : 0;
    const std::int64_t end = packed ? in.cu_seqlens[n + 1] : in.T;
    for (std::int64_t h = 0; h < in.H; ++h) {
      differentiate_head(in, n, packed ? 0 : n, begin, end, h, out, to);
    }
  }
  return to;
}

std::vector<double> finite_differences(DoubleRecurrence inputs,
                                       std::vector<double> DoubleRecurrence::*input) {
  constexpr double kStep = 1e-5;
  std::vector<double> gradient;
  for (std::size_t i = 0; i < (inputs.*input).size(); ++i) {
    double& x = (inputs.*input)[i];
    const double value = x;
    x = value + kStep;
    const double above = loss(inputs);
    x = value - kStep;
    const double below = loss(inputs);
    x = value;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

}  // namespace attune::test
