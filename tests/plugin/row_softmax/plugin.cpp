// The plugin: the op, its reference and a kernel with something to tune.
#include <attune/core/function_kernel.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/core/plugin.hpp>

#include "row_softmax.hpp"

namespace row_softmax {
namespace {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;

struct RowsConfig {
  using Op = RowSoftmax;
  int unroll = 4;  // partial sums a row
  int threads = 1;
  friend constexpr bool operator==(const RowsConfig&, const RowsConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{attune::axis("unroll", &RowsConfig::unroll, {1, 4, 8}),
                      attune::launch_axis("threads", &RowsConfig::threads, {1, 2})};
  }
};

template <class Config>
void softmax_row(const float* x, float* y, std::int64_t cols) {
  constexpr int kUnroll = Config::kValue.unroll;
  const float largest = *std::max_element(x, x + cols);
  float sums[kUnroll] = {};
  for (std::int64_t c = 0; c < cols; ++c) {
    y[c] = std::exp(x[c] - largest);
    sums[c % kUnroll] += y[c];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  for (std::int64_t c = 0; c < cols; ++c) y[c] /= sum;
}

class Rows final : public attune::Kernel<RowsConfig> {
 public:
  std::string_view name() const noexcept override { return "rows.row_softmax"; }
  int version() const noexcept override { return 3; }
  Support supports(const Problem& problem, const DeviceInfo&) const override {
    return problem.cols >= 4 ? Support::yes() : Support::no(attune::refused::kShape, "cols < 4");
  }
  Support fits(const Problem& problem, const DeviceInfo&, const RowsConfig& config) const override {
    return config.unroll <= problem.cols ? Support::yes()
                                         : Support::no(attune::refused::kConfig, "unroll > cols");
  }
  RowsConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const RowsConfig& config,
           const LaunchSite&) const override {
    attune::dispatch(config, [&]<class Config>() {
      attune::parallel_for(problem.rows, config.threads, [&](std::int64_t row) {
        softmax_row<Config>(row_of(args.x, row), row_of(args.y, row), problem.cols);
      });
    });
  }
};

}  // namespace
}  // namespace row_softmax

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace row_softmax;
  registry.add_op<RowSoftmax>();
  registry.add(attune::make_kernel<RowSoftmax>("reference.row_softmax", 1, softmax_in_double),
               {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Rows>(), {.platform = "rows", .backend = "cpu", .priority = 50});
}
