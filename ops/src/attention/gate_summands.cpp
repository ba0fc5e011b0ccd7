#include "gate_summands.hpp"

#include <utility>

#include <attune/core/device.hpp>
#include <attune/core/operand_case.hpp>

#include "forward_in_double.hpp"

namespace attune::ops {
namespace {

using Problem = RecurrentAttentionProblem;
using Args = RecurrentAttentionBackwardArgs;

std::vector<double> products(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

/// Sums of consecutive runs of `width` values.
std::vector<double> row_sums(const std::vector<double>& values, std::int64_t width) {
  std::vector<double> sums(values.size() / static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i / static_cast<std::size_t>(width)] += values[i];
  }
  return sums;
}

}  // namespace

HostArguments::HostArguments(const Args& args, const Device& device) : args_(args) {
  for (const OperandInfo& operand : operand_table<RecurrentAttentionBackward>().operands) {
    const ViewRef view = operand.view(&args_);
    if (operand.is_output() || !view.given()) continue;
    copies_.push_back(
        to_host({view.data(), view.dtype(), view.shape(), view.strides(), view.device()}, device));
    operand.set(&args_, copies_.back().view());
  }
}

GateSummands::GateSummands(const Problem& problem, const Args& args, std::vector<double> dq)
    : problem_(problem), args_(args), read_(products(std::move(dq), to_doubles(args.q))) {
  if (!args.dfinal_state && !args.gv) return;
  ForwardInDouble forward = forward_in_double(problem, args);
  o_ = std::move(forward.o);
  if (!args.dfinal_state) return;
  left_ = products(std::move(forward.final_state), to_doubles(*args.dfinal_state));
}

double GateSummands::rms_of_g() const {
  return rms(row_sums(read_, problem_.K)) + rms(left_of_heads());
}

double GateSummands::rms_of_gk() const { return rms(read_) + rms(left_of_keys()); }

double GateSummands::rms_of_gv() const {
  const double read = args_.d_o ? rms(products(o_, to_doubles(*args_.d_o))) : 0;
  return read + rms(left_of_values());
}

double GateSummands::rms_of_gamma(bool each_sequence) const {
  const std::vector<double> terms = row_sums(read_, problem_.K);
  const std::vector<double> left_of_tokens = left_of_heads();
  std::vector<double> read(
      static_cast<std::size_t>((each_sequence ? problem_.sequences() : 1) * problem_.H));
  std::vector<double> left(left_of_tokens.empty() ? 0 : read.size());
  for (std::int64_t n = 0; n < problem_.sequences(); ++n) {
    const SequenceSpan span = sequence_span(problem_, args_, n);
    for (std::int64_t h = 0; h < problem_.H; ++h) {
      const auto to = static_cast<std::size_t>((each_sequence ? n : 0) * problem_.H + h);
      for (std::int64_t t = span.begin; t < span.end; ++t) {
        read[to] += terms[static_cast<std::size_t>((span.batch * problem_.T + t) * problem_.H + h)];
      }
      if (left.empty()) continue;
      left[to] += static_cast<double>(span.end - span.begin) *
                  left_of_tokens[static_cast<std::size_t>(n * problem_.H + h)];
    }
  }
  return rms(read) + rms(left);
}

/// [N, H, K]
std::vector<double> GateSummands::left_of_keys() const { return row_sums(left_, problem_.V); }

/// [N, H, V]
std::vector<double> GateSummands::left_of_values() const {
  const auto values = static_cast<std::size_t>(problem_.V);
  const auto state = values * static_cast<std::size_t>(problem_.K);
  std::vector<double> sums(left_.size() / state * values);
  for (std::size_t i = 0; i < left_.size(); ++i) sums[i / state * values + i % values] += left_[i];
  return sums;
}

/// [N, H]
std::vector<double> GateSummands::left_of_heads() const {
  return row_sums(left_of_keys(), problem_.K);
}

}  // namespace attune::ops
