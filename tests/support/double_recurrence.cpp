#include "support/double_recurrence.hpp"

#include <cmath>
#include <numeric>

namespace attune::test {
namespace {

double at_or_zero(const std::vector<double>& values, std::int64_t index) {
  return values.empty() ? 0.0 : values[static_cast<std::size_t>(index)];
}

/// One head of one sequence: tokens begin .. end - 1 of batch b.
void run_head(const DoubleRecurrence& in, std::int64_t n, std::int64_t b, std::int64_t begin,
              std::int64_t end, std::int64_t h, DoubleOutputs& out) {
  const std::int64_t kv_head = h * in.Hkv / in.H;
  const std::int64_t state_at = (n * in.H + h) * in.K * in.V;
  for (std::int64_t ij = 0; ij < in.K * in.V; ++ij) {
    out.final_state[state_at + ij] = at_or_zero(in.initial_state, state_at + ij);
  }
  for (std::int64_t step = 0; step < end - begin; ++step) {
    const std::int64_t t = in.reverse ? end - 1 - step : begin + step;
    const std::int64_t token = (b * in.T + t) * in.H + h;
    const std::int64_t kv_token = (b * in.T + t) * in.Hkv + kv_head;
    for (std::int64_t i = 0; i < in.K; ++i) {
      for (std::int64_t j = 0; j < in.V; ++j) {
        double& s = out.final_state[state_at + i * in.V + j];
        const double log_decay = at_or_zero(in.g, token) + at_or_zero(in.gamma, n * in.H + h) +
                                 at_or_zero(in.gk, token * in.K + i) +
                                 at_or_zero(in.gv, token * in.V + j);
        s = std::exp(log_decay) * s + in.k[kv_token * in.K + i] * in.v[kv_token * in.V + j];
        out.o[token * in.V + j] += in.scale * in.q[token * in.K + i] * s;
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

DoubleOutputs run(const DoubleRecurrence& in) {
  const bool packed = !in.cu_seqlens.empty();
  DoubleOutputs out;
  out.o.assign(static_cast<std::size_t>(in.B * in.T * in.H * in.V), 0.0);
  out.final_state.assign(static_cast<std::size_t>(in.sequences() * in.H * in.K * in.V), 0.0);
  for (std::int64_t n = 0; n < in.sequences(); ++n) {
    const std::int64_t begin = packed ? in.cu_seqlens[n] : 0;
    const std::int64_t end = packed ? in.cu_seqlens[n + 1] : in.T;
    for (std::int64_t h = 0; h < in.H; ++h) run_head(in, n, packed ? 0 : n, begin, end, h, out);
  }
  return out;
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
