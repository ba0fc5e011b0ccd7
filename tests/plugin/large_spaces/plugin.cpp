// Kernels with more configs than can be tried: a million points, and as many of which one in ten
// keeps a constraint. The further a config is from one point, the longer it takes.
#include <cstdlib>

#include <attune/core/function_kernel.hpp>
#include <attune/core/plugin.hpp>

#include "../row_softmax/row_softmax.hpp"

namespace row_softmax {
namespace {

template <bool kSparse>
struct DigitsConfig {
  using Op = RowSoftmax;
  int a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
  friend constexpr bool operator==(const DigitsConfig&, const DigitsConfig&) = default;
  static constexpr auto axes() {
    using C = DigitsConfig;
    using attune::launch_axis;
    constexpr int kDigits[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    return std::tuple{launch_axis("a", &C::a, kDigits), launch_axis("b", &C::b, kDigits),
                      launch_axis("c", &C::c, kDigits), launch_axis("d", &C::d, kDigits),
                      launch_axis("e", &C::e, kDigits), launch_axis("f", &C::f, kDigits)};
  }
  static constexpr auto constraints() {
    using C = DigitsConfig;
    return std::tuple{attune::constraint(
        "b + e is a multiple of ten", [](int b, int e) { return !kSparse || (b + e) % 10 == 0; },
        &C::b, &C::e)};
  }
};

template <bool kSparse>
class Digits final : public attune::Kernel<DigitsConfig<kSparse>> {
 public:
  using Config = DigitsConfig<kSparse>;
  using typename attune::Kernel<Config>::Problem;
  using typename attune::Kernel<Config>::Args;

  std::string_view name() const noexcept override {
    return kSparse ? "sparse.row_softmax" : "million.row_softmax";
  }
  int version() const noexcept override { return 1; }
  attune::Support supports(const Problem&, const attune::DeviceInfo&) const override {
    return attune::Support::yes();
  }
  Config heuristic_config(const Problem&, const attune::DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const Config& c,
           const attune::LaunchSite&) const override {
    const int away = std::abs(c.a - 7) + std::abs(c.b - 4) + std::abs(c.c - 9) + std::abs(c.d - 2) +
                     std::abs(c.e - 6) + std::abs(c.f - 8);
    for (int pass = 0; pass <= away; ++pass) {
      for (std::int64_t row = 0; row < problem.rows; ++row) softmax(args, row, problem.cols);
    }
  }

 private:
  static void softmax(const Args& args, std::int64_t row, std::int64_t cols) {
    const float* x = row_of(args.x, row);
    float* y = row_of(args.y, row);
    const float largest = *std::max_element(x, x + cols);
    float sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) sum += y[c] = std::exp(x[c] - largest);
    for (std::int64_t c = 0; c < cols; ++c) y[c] /= sum;
  }
};

}  // namespace
}  // namespace row_softmax

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace row_softmax;
  registry.add_op<RowSoftmax>();
  registry.add(attune::make_kernel<RowSoftmax>("reference.row_softmax", 1, softmax_in_double),
               {.platform = "reference", .backend = "any"});
  registry.add(std::make_unique<Digits<false>>(), {.platform = "million", .backend = "cpu"});
  registry.add(std::make_unique<Digits<true>>(), {.platform = "sparse", .backend = "cpu"});
}
