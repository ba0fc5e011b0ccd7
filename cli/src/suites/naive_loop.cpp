#include "suites/naive_loop.hpp"

#include <algorithm>
#include <random>

#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>

namespace attune::cli {
namespace {

struct Sizes {
  std::int64_t sequences = 0, tokens = 0, heads = 0, key_dim = 0, value_dim = 0;
  bool out_of_place = false;  // reads one state and writes another
};

Sizes sizes_of(const Params& problem) {
  const auto is_yes = [&](std::string_view name) {
    const std::string* const value = find_param(problem, name);
    return value != nullptr && *value == "yes";
  };
  return {field_or_one(problem, "B"), field_or_one(problem, "T"), field_or_one(problem, "H"),
          field_or_one(problem, "K"), field_or_one(problem, "V"), is_yes("h0") && is_yes("ht")};
}

Tensor random_tensor(const Extents& shape, float low, float high, unsigned seed) {
  Tensor tensor(DType::kF32, shape);
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

Tensor filled(const Extents& shape, float value) {
  Tensor tensor(DType::kF32, shape);
  std::ranges::fill(tensor.values<float>(), value);
  return tensor;
}

}  // namespace

std::int64_t field_or_one(const Params& problem, std::string_view name) {
  const std::string* const text = find_param(problem, name);
  std::int64_t value = 1;
  if (text != nullptr && !parse_integer(*text, value))
    throw InvalidArgument(str(name, "=", *text, ": expected a whole number"));
  return value;
}

NaiveLoop::NaiveLoop(const Params& problem) {
  const Sizes n = sizes_of(problem);
  const Extents keys{n.sequences, n.tokens, n.heads, n.key_dim};
  const Extents values{n.sequences, n.tokens, n.heads, n.value_dim};
  const Extents states{n.sequences, n.heads, n.key_dim, n.value_dim};
  sequences_ = n.sequences;
  q_ = random_tensor(keys, -1, 1, 1);
  k_ = random_tensor(keys, -1, 1, 2);
  v_ = random_tensor(values, -1, 1, 3);
  decay_ = random_tensor(keys, 0.9F, 1, 4);
  o_ = filled(values, 0);
  state_ = filled(states, 0.5F);
  if (n.out_of_place) initial_ = filled(states, 0.5F);
  args_ = {.q = q_.values<float>().data(),
           .k = k_.values<float>().data(),
           .v = v_.values<float>().data(),
           .decay = decay_.values<float>().data(),
           .initial_state = n.out_of_place ? initial_.values<float>().data() : nullptr,
           .o = o_.values<float>().data(),
           .state = state_.values<float>().data(),
           .tokens = n.tokens,
           .heads = n.heads,
           .key_dim = n.key_dim,
           .value_dim = n.value_dim,
           .scale = 0.125F};
}

yardsticks::NaiveRecurrentArgs NaiveLoop::args_of(std::int64_t n) const {
  yardsticks::NaiveRecurrentArgs args = args_;
  const std::int64_t rows = n * args.tokens * args.heads;
  args.q += rows * args.key_dim;
  args.k += rows * args.key_dim;
  args.decay += rows * args.key_dim;
  args.v += rows * args.value_dim;
  args.o += rows * args.value_dim;
  const std::int64_t states = n * args.heads * args.key_dim * args.value_dim;
  if (args.initial_state != nullptr) args.initial_state += states;
  args.state += states;
  return args;
}

HostWork NaiveLoop::work(int threads) const {
  auto* const loop = yardsticks::loops_of_this_cpu().front().naive_recurrent;
  const auto run = [this, loop, threads] {
    const std::int64_t all_heads = sequences_ * args_.heads;
    parallel_for(threads, threads, [&](std::int64_t part) {
      std::int64_t head = all_heads * part / threads;
      const std::int64_t end = all_heads * (part + 1) / threads;
      while (head < end) {  // a sequence at a time
        const std::int64_t n = head / args_.heads;
        const std::int64_t first = head % args_.heads;
        const std::int64_t count = std::min(args_.heads - first, end - head);
        loop(args_of(n), first, first + count);
        head += count;
      }
    });
  };
  return run;
}

}  // namespace attune::cli
