// A kernel with tens of thousands of configs: a product of matrices in tiles of many sizes, in any
// order of its loops. Constraints say which configs make sense; the tuner searches among those for
// as long as it is given, and never lists them.
//
//   c[m, n] = sum over k of a[m, k] b[k, n]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include <attune/core/function_kernel.hpp>
#include <attune/core/operand_case.hpp>
#include <attune/core/tensor.hpp>
#include <attune/framework.hpp>

namespace {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;
using Index = std::int64_t;

struct ProductProblem {
  Index M = 1, N = 1, K = 1;
};

struct ProductArgs {
  attune::ConstTensorView a, b;
  attune::TensorView c;
};

struct Product : attune::OperandOp<Product> {
  static constexpr std::string_view kName = "product";
  static constexpr std::string_view kSummary = "product of two matrices";
  using Problem = ProductProblem;
  using Args = ProductArgs;
  static constexpr auto fields() {
    return std::tuple{attune::field("M", &Problem::M), attune::field("N", &Problem::N),
                      attune::field("K", &Problem::K)};
  }
  static constexpr auto operands() {
    using attune::dims;
    return std::tuple{attune::input("a", &Args::a, dims("M", "K")).f32().contiguous(),
                      attune::input("b", &Args::b, dims("K", "N")).f32().contiguous(),
                      attune::output("c", &Args::c, dims("M", "N")).f32().contiguous()};
  }
  static Problem reduced(const Problem& p) {
    return {std::min<Index>(p.M, 40), std::min<Index>(p.N, 40), std::min<Index>(p.K, 40)};
  }
  static double flops(const Problem& p) { return 2.0 * double(p.M) * double(p.N) * double(p.K); }
};

/// The order of the loops over tiles, the outermost first.
enum class Order { kMnk, kMkn, kNmk, kNkm, kKmn, kKnm };
constexpr std::string_view to_string(Order order) {
  constexpr std::string_view kNames[] = {"mnk", "mkn", "nmk", "nkm", "kmn", "knm"};
  return kNames[static_cast<int>(order)];
}

struct TiledConfig {
  using Op = Product;
  int tile_m = 16;
  int tile_n = 64;
  int tile_k = 64;
  Order order = Order::kMnk;
  bool pack = false;     // copy each tile of b together
  int pack_columns = 8;  // that are copied at once
  friend constexpr bool operator==(const TiledConfig&, const TiledConfig&) = default;

  static constexpr auto axes() {
    using C = TiledConfig;
    using attune::launch_axis;
    constexpr int kTiles[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
    return std::tuple{
        launch_axis("tile_m", &C::tile_m, kTiles),
        launch_axis("tile_n", &C::tile_n, kTiles),
        launch_axis("tile_k", &C::tile_k, kTiles),
        launch_axis("order", &C::order,
                    {Order::kMnk, Order::kMkn, Order::kNmk, Order::kNkm, Order::kKmn, Order::kKnm}),
        launch_axis("pack", &C::pack, {false, true}),
        launch_axis("pack_columns", &C::pack_columns, {4, 8, 16, 32}).when(&C::pack, true)};
  }
  static constexpr auto constraints() {
    using C = TiledConfig;
    using attune::constraint;
    return std::tuple{
        constraint(
            "tile_m < 2 M", [](const ProductProblem& p, int m) { return m < 2 * p.M; }, &C::tile_m),
        constraint(
            "tile_n < 2 N", [](const ProductProblem& p, int n) { return n < 2 * p.N; }, &C::tile_n),
        constraint(
            "tile_k < 2 K", [](const ProductProblem& p, int k) { return k < 2 * p.K; }, &C::tile_k),
        constraint(
            "the tiles of a and b fit into 256 KiB",
            [](int m, int n, int k) { return (m + n) * k * 4 <= 256 * 1024; }, &C::tile_m,
            &C::tile_n, &C::tile_k)};
  }
};

const float* data_of(const attune::ConstTensorView& x) { return static_cast<const float*>(x.data); }

class Tiled final : public attune::Kernel<TiledConfig> {
 public:
  std::string_view name() const noexcept override { return "mine.product.tiled"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  TiledConfig heuristic_config(const Problem& p, const DeviceInfo&) const override {
    const auto tile = [](Index size, int most) { return size >= most ? most : 1; };
    return {.tile_m = tile(p.M, 16), .tile_n = tile(p.N, 64), .tile_k = tile(p.K, 64)};
  }
  std::size_t workspace_bytes(const Problem&, const TiledConfig& c) const override {
    return c.pack ? sizeof(float) * static_cast<std::size_t>(c.tile_n * c.tile_k) : 0;
  }
  void run(const Problem& p, const Args& args, const TiledConfig& c,
           const LaunchSite& site) const override {
    float* out = static_cast<float*>(args.c.data);
    std::fill_n(out, p.M * p.N, 0.0F);
    // By axis of the problem: m, n, k.
    const std::array<Index, 3> sizes{p.M, p.N, p.K};
    const std::array<Index, 3> tiles{c.tile_m, c.tile_n, c.tile_k};
    const std::string_view order = to_string(c.order);
    const auto axis = [&](std::size_t loop) { return std::string_view("mnk").find(order[loop]); };
    const std::size_t x = axis(0), y = axis(1), z = axis(2);
    std::array<Index, 3> at{};
    for (at[x] = 0; at[x] < sizes[x]; at[x] += tiles[x]) {
      for (at[y] = 0; at[y] < sizes[y]; at[y] += tiles[y]) {
        for (at[z] = 0; at[z] < sizes[z]; at[z] += tiles[z]) {
          add_tile(p, args, c, at, out, reinterpret_cast<float*>(site.workspace.data()));
        }
      }
    }
  }

 private:
  static void add_tile(const Problem& p, const Args& args, const TiledConfig& c,
                       const std::array<Index, 3>& at, float* out, float* packed) {
    const Index m_end = std::min<Index>(at[0] + c.tile_m, p.M);
    const Index columns = std::min<Index>(c.tile_n, p.N - at[1]);
    const Index k_end = std::min<Index>(at[2] + c.tile_k, p.K);
    const float* b = data_of(args.b) + at[2] * p.N + at[1];
    Index b_row = p.N;
    if (c.pack) {
      for (Index first = 0; first < columns; first += c.pack_columns) {
        const Index count = std::min<Index>(c.pack_columns, columns - first);
        for (Index k = 0; k < k_end - at[2]; ++k)
          std::copy_n(b + k * p.N + first, count, packed + k * columns + first);
      }
      b = packed;
      b_row = columns;
    }
    for (Index m = at[0]; m < m_end; ++m) {
      float* row = out + m * p.N + at[1];
      for (Index k = at[2]; k < k_end; ++k) {
        const float factor = data_of(args.a)[m * p.K + k];
        const float* b_at = b + (k - at[2]) * b_row;
        for (Index n = 0; n < columns; ++n) row[n] += factor * b_at[n];
      }
    }
  }
};

void product_in_double(const ProductProblem& p, const ProductArgs& args) {
  for (Index m = 0; m < p.M; ++m) {
    for (Index n = 0; n < p.N; ++n) {
      double sum = 0;
      for (Index k = 0; k < p.K; ++k)
        sum += double(data_of(args.a)[m * p.K + k]) * data_of(args.b)[k * p.N + n];
      static_cast<float*>(args.c.data)[m * p.N + n] = static_cast<float>(sum);
    }
  }
}

void register_mine(attune::Registry& registry) {
  registry.add_op<Product>();
  registry.add(attune::make_kernel<Product>("reference.product", 1, product_in_double),
               {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Tiled>(), {.platform = "mine", .backend = "cpu", .priority = 10});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string database = argc > 1 ? argv[1] : "large_space.db";
  const auto context = attune::make_framework_context(
      {.register_kernels = {register_mine}, .policy = attune::Policy::kTune, .database = database});
  const ProductProblem problem{.M = 96, .N = 200, .K = 150};
  const attune::ErasedKernel& tiled =
      *context->registry().find_kernel("mine.product.tiled")->kernel;
  const attune::CandidateCount candidates =
      tiled.candidate_count(attune::ProblemRef::of<Product>(problem), attune::cpu_device().info());

  const auto plan = attune::Executor(*context).plan<Product>(
      problem, {.device = &attune::cpu_device(), .platform = "mine"});
  std::printf("of at most %llu configs: %s\n", static_cast<unsigned long long>(candidates.count),
              attune::config_text(tiled, plan.choice().config).c_str());

  const std::vector<float> a(static_cast<std::size_t>(problem.M * problem.K), 2.0F);
  const std::vector<float> b(static_cast<std::size_t>(problem.K * problem.N), 0.5F);
  std::vector<float> c(static_cast<std::size_t>(problem.M * problem.N));
  const Index floats = static_cast<Index>(plan.workspace_bytes() / sizeof(float));
  attune::Tensor workspace(attune::DType::kF32, {floats}, attune::cpu_device());
  plan.launch({.a = {a.data(), {problem.M, problem.K}},
               .b = {b.data(), {problem.K, problem.N}},
               .c = {c.data(), {problem.M, problem.N}}},
              nullptr, {static_cast<std::byte*>(workspace.view().data), plan.workspace_bytes()});
  const auto sum = static_cast<float>(problem.K);
  return std::all_of(c.begin(), c.end(), [&](float x) { return std::abs(x - sum) < 1e-3F; }) ? 0
                                                                                             : 1;
}
