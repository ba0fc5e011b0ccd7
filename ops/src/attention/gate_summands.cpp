#include "gate_summands.hpp"

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

/// q dq summed over channels: [B, T, H].
std::vector<double> head_sums(const Problem& problem, const Args& args,
                              const std::vector<double>& dq) {
  return row_sums(products(to_doubles(args.q), dq), problem.K);
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

double summand_rms_of_g(const Problem& problem, const Args& args, const std::vector<double>& dq) {
  return rms(head_sums(problem, args, dq));
}

double summand_rms_of_gk(const Args& args, const std::vector<double>& dq) {
  return rms(products(to_doubles(args.q), dq));
}

double summand_rms_of_gamma(const Problem& problem, const Args& args, const std::vector<double>& dq,
                            bool each_sequence) {
  const std::vector<double> terms = head_sums(problem, args, dq);
  const std::int64_t rows = each_sequence ? problem.sequences() : 1;
  std::vector<double> sums(static_cast<std::size_t>(rows * problem.H));
  for (std::int64_t n = 0; n < problem.sequences(); ++n) {
    const SequenceSpan span = sequence_span(problem, args, n);
    for (std::int64_t t = span.begin; t < span.end; ++t) {
      for (std::int64_t h = 0; h < problem.H; ++h) {
        const std::int64_t from = (span.batch * problem.T + t) * problem.H + h;
        const std::int64_t to = (each_sequence ? n : 0) * problem.H + h;
        sums[static_cast<std::size_t>(to)] += terms[static_cast<std::size_t>(from)];
      }
    }
  }
  return rms(sums);
}

double summand_rms_of_gv(const Problem& problem, const Args& args) {
  if (!args.d_o) return 0;
  return rms(products(forward_in_double(problem, args), to_doubles(*args.d_o)));
}

}  // namespace attune::ops
