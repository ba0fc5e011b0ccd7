#include <vector>

#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

#include "cpu/kernels.hpp"
#include "recurrence.hpp"
#include "reference_kernel.hpp"
#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

using ops::RecurrentDecode;
using Problem = RecurrentDecode::Problem;
using Args = RecurrentDecode::Args;

std::int64_t slot_of(const Args& args, std::int64_t row) {
  return args.slot_indices ? load_integer(*args.slot_indices, row) : row;
}

/// Before any state is touched, and on every launch: a plan's slot indices change between launches.
void check_slots(const Problem& problem, const Args& args) {
  for (std::int64_t row = 0; row < problem.B; ++row) {
    if (const std::int64_t slot = slot_of(args, row); slot >= problem.S) {
      throw InvalidArgument(str("recurrent_decode: slot_indices[", row, "] is ", slot,
                                ", expected less than ", problem.S));
    }
  }
}

/// Head h of row b, a block of one token.
TokenBlock load_token(const Problem& problem, const Args& args, std::int64_t b, std::int64_t h) {
  const std::int64_t kv_head = h / (problem.H / problem.Hkv);
  const auto row = [b](const ConstTensorView& from, std::int64_t head, std::int64_t width) {
    std::vector<double> values(static_cast<std::size_t>(width));
    load_row(from, {b, head}, values);
    return values;
  };
  TokenBlock block{.count = 1,
                   .key_dim = problem.K,
                   .value_dim = problem.V,
                   .scale = args.scale,
                   .q = row(args.q, h, problem.K),
                   .k = row(args.k, kv_head, problem.K),
                   .v = row(args.v, kv_head, problem.V),
                   .g = {0.0}};
  if (args.g) block.g = row(*args.g, h, 1);
  if (args.gk) block.gk = row(*args.gk, h, problem.K);
  if (args.gv) block.gv = row(*args.gv, h, problem.V);
  block.g[0] += ops::gamma_of(args.gamma, 0, h, problem.H);
  return block;
}

void run_head(const Problem& problem, const Args& args, std::int64_t b, std::int64_t h) {
  std::vector<double> o(static_cast<std::size_t>(problem.V), 0.0);
  const std::int64_t slot = slot_of(args, b);
  const bool padding = slot < 0;
  if (!padding) {
    std::vector<double> state = load_state(args.state, slot, h, problem.K, problem.V);
    advance(load_token(problem, args, b, h), state, o);
    store_state(args.state, slot, h, state);
  }
  store_row(args.o, {b, h}, o);
}

/// One task a row and query head.
class RecurrentDecodeKernel final : public ReferenceKernel<RecurrentDecode> {
 public:
  std::string_view name() const noexcept override { return "reference.recurrent_decode"; }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    check_slots(problem, args);
    parallel_for(problem.B * problem.H, usable_cores(), [&](std::int64_t task) {
      run_head(problem, args, task / problem.H, task % problem.H);
    });
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_decode() {
  return std::make_unique<RecurrentDecodeKernel>();
}

}  // namespace attune::cpu::reference
