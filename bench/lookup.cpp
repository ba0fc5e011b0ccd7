// What selection costs: a histogram of single look-ups, key included, and of Plan::launch.
//
//   20,000 tuned problems in memory; 64 hot keys, then random keys; 1 and 2 threads. Each look-up
//   is timed by itself with the time-stamp counter, whose own cost is printed beside it and not
//   subtracted. Allocations are counted. Then the 64 hot keys again while a third thread replaces a
//   site's database of 20,000 rows and reloads it, over and over: each hot key's first call after a
//   reload finds its row anew.
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <attune/attune.hpp>
#include <attune/cache/database_text.hpp>

namespace {

std::atomic<std::int64_t> allocations = 0;

}  // namespace

// Inlined, a pair of them would look like free() of what new gave.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* pointer = std::malloc(bytes)) return pointer;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

namespace {

using namespace attune;
using Op = ops::RecurrentAttention;

constexpr int kRows = 20000;
constexpr int kHotKeys = 64;
constexpr int kLookups = 400000;

/// Does nothing, so that a launch costs only what the framework adds.
struct NothingConfig {
  using Op = ops::RecurrentAttention;
  int tile = 16;
  friend constexpr bool operator==(const NothingConfig&, const NothingConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("tile", &NothingConfig::tile, {16, 32})};
  }
};
class Nothing final : public Kernel<NothingConfig> {
 public:
  std::string_view name() const noexcept override { return "nothing.recurrent_attention"; }
  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override { return {"g", "gamma", "gk", "gv"}; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  NothingConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem&, const Args&, const NothingConfig&, const LaunchSite&) const override {}
};

std::vector<Op::Problem> random_problems() {
  std::mt19937_64 random(1);
  std::vector<Op::Problem> problems;
  for (int i = 0; i < kRows; ++i) {
    Op::Problem p;
    p.B = 1 << random() % 8;
    p.T = 1 + static_cast<std::int64_t>(random() % 65536);
    p.H = p.Hkv = 1 + static_cast<std::int64_t>(random() % 128);
    p.K = p.V = 16 * (1 + static_cast<std::int64_t>(random() % 16));
    p.dtype = static_cast<DType>(random() % 3);
    p.gates = static_cast<std::int32_t>(random() % 16);
    problems.push_back(p);
  }
  return problems;
}

struct Clock {
  double ticks_per_ns = 1;
  double overhead_ns = 0;
};

std::uint64_t ticks() {
  unsigned core = 0;
  return __rdtscp(&core);
}

Clock calibrate() {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t first = ticks();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(100)) {
  }
  const double elapsed =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  Clock clock{static_cast<double>(ticks() - first) / elapsed, 0};
  std::vector<double> empty(100000);
  for (double& sample : empty) {
    const std::uint64_t begin = ticks();
    sample = static_cast<double>(ticks() - begin) / clock.ticks_per_ns;
  }
  std::nth_element(empty.begin(), empty.begin() + 50000, empty.end());
  clock.overhead_ns = empty[50000];
  return clock;
}

/// Times `body(random)` on each of `threads` threads and prints the percentiles of single calls.
template <class Body>
void report(const char* what, const Clock& clock, int threads, Body&& body,
            int lookups = kLookups) {
  std::vector<std::vector<float>> samples(static_cast<std::size_t>(threads),
                                          std::vector<float>(static_cast<std::size_t>(lookups)));
  std::atomic<int> ready = 0;
  std::atomic<std::int64_t> allocated_before = 0, allocated_after = 0;
  {
    std::vector<std::jthread> workers;
    for (int thread = 0; thread < threads; ++thread) {
      workers.emplace_back([&, thread] {
        std::mt19937_64 random(static_cast<std::uint64_t>(thread));
        ++ready;
        while (ready < threads) {
        }
        allocated_before = allocations.load();
        for (float& sample : samples[static_cast<std::size_t>(thread)]) {
          const auto index = random();
          const std::uint64_t begin = ticks();
          body(index);
          sample = static_cast<float>(static_cast<double>(ticks() - begin) / clock.ticks_per_ns);
        }
        allocated_after = allocations.load();
      });
    }
  }
  std::vector<float> all;
  for (const auto& part : samples) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  const auto at = [&](double p) {
    return static_cast<double>(
        all[static_cast<std::size_t>(p * (static_cast<double>(all.size()) - 1))]);
  };
  std::printf("| %-28s | %7d | %6.0f | %6.0f | %8.0f | %11lld |\n", what, threads, at(0.5),
              at(0.99), at(0.999), static_cast<long long>(allocated_after - allocated_before));
}

/// A database with a row for each problem, all with one config.
void write_rows(const std::string& path, const std::vector<Op::Problem>& problems,
                const std::string& config) {
  DatabaseContent content;
  std::set<RowKey> seen;
  for (const Op::Problem& problem : problems) {
    ConfigRow row;
    row.key = {std::string(Op::kName), cpu_device().info().device_class, "auto",
               problem_text<Op>(problem)};
    if (!seen.insert(row.key).second) continue;
    row.bucket = problem_text<Op>(problem, true);
    row.kernel = "nothing.recurrent_attention";
    row.kernel_version = 1;
    row.config = config;
    row.median_us = 1;
    row.default_us = 2;
    row.default_config = "nothing.recurrent_attention tile=16";
    row.noise = NoiseGrade::kA;
    row.library_version = ATTUNE_VERSION;
    row.toolkit = cpu_device().info().driver;
    content.decisions.push_back({row, {}});
  }
  write_database_file(path, content);
}

/// Look-ups while the site's database is replaced and reloaded.
void report_reloads(const Clock& clock, const std::vector<Op::Problem>& problems,
                    const ContextOptions& options, const Request& request) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("attune_lookup_" + std::to_string(getpid()));
  fs::create_directory(folder);
  const std::string files[] = {folder / "one", folder / "other"};
  const std::string site = folder / "site.db";
  write_rows(files[0] + ".db", problems, "tile=16");
  write_rows(files[1] + ".db", problems, "tile=32");
  fs::copy_file(files[0] + ".db", site);
  setenv("ATTUNE_SYSTEM_DB_PATH", site.c_str(), 1);
  const auto context = make_context(options);
  for (int i = 0; i < kHotKeys; ++i) {
    context->select<Op>(problems[static_cast<std::size_t>(i)], request);
  }
  std::atomic<bool> stop = false;
  std::jthread operator_([&] {
    for (std::size_t turn = 1; !stop; ++turn) {
      fs::copy_file(files[turn % 2] + ".db", folder / "next");
      fs::rename(folder / "next", site);
      context->reload();
    }
  });
  constexpr int kManyLookups = 20'000'000;
  report(
      "64 hot keys, reloading", clock, 1,
      [&](std::uint64_t random) {
        const Choice found = context->select<Op>(problems[random % kHotKeys], request);
        asm volatile("" : : "r"(found.kernel));
      },
      kManyLookups);
  stop = true;
  operator_.join();
  std::printf("\n%llu reloads of %d rows meanwhile\n",
              static_cast<unsigned long long>(chain_of(*context).counters().reloads), kRows);
  fs::remove_all(folder);
}

}  // namespace

int main() {
  const auto context =
      make_context({.register_kernels = {[](Registry& registry) {
                      registry.add(std::make_unique<Nothing>(), {.platform = "nothing"});
                    }},
                    .policy = Policy::kDb,
                    .database = ""});
  const std::vector<Op::Problem> problems = random_problems();
  const ErasedKernel& kernel =
      *context->registry().find_kernel("nothing.recurrent_attention")->kernel;
  const Request request{.device = &cpu_device()};
  Choice choice{&kernel, kernel.parse({}), Tier::kPersistent, Tier::kPersistent};
  for (const Op::Problem& problem : problems) {
    chain_of(*context).cache().put(selection_key<Op>(problem, request), choice);
  }

  const Clock clock = calibrate();
  std::printf("%zu keys in memory; reading the counter itself takes %.0f ns, included below\n\n",
              chain_of(*context).cache().size(), clock.overhead_ns);
  std::printf("| %-28s | threads | p50 ns | p99 ns | p99.9 ns | allocations |\n", "single call");
  std::printf(
      "|------------------------------|--------:|-------:|-------:|---------:|------------:|\n");
  for (const int threads : {1, 2}) {
    report("select, 64 hot keys", clock, threads, [&](std::uint64_t random) {
      const Choice found = context->select<Op>(problems[random % kHotKeys], request);
      asm volatile("" : : "r"(found.kernel));
    });
    report("select, random keys", clock, threads, [&](std::uint64_t random) {
      const Choice found = context->select<Op>(problems[random % kRows], request);
      asm volatile("" : : "r"(found.kernel));
    });
  }

  std::vector<float> data(2 * 16 * 4 * 64);
  const ConstTensorView x(data.data(), {2, 16, 4, 64});
  std::vector<float> out(data.size());
  const ops::RecurrentAttentionOptions options{
      .call = {.platform = "nothing", .context = context.get()}};
  const auto plan = ops::plan_recurrent_attention(x, x, x, options);
  const auto args = ops::recurrent_attention_args({.o = TensorView(out.data(), {2, 16, 4, 64})}, x,
                                                  x, x, options);
  for (const int threads : {1, 2}) {
    report("Plan::launch, empty kernel", clock, threads, [&](std::uint64_t) { plan.launch(args); });
  }
  report("recurrent_attention_into", clock, 1, [&](std::uint64_t) {
    ops::recurrent_attention_into({.o = TensorView(out.data(), {2, 16, 4, 64})}, x, x, x, options);
  });
  report_reloads(clock, problems,
                 {.register_kernels = {[](Registry& registry) {
                    registry.add(std::make_unique<Nothing>(), {.platform = "nothing"});
                  }},
                  .policy = Policy::kDb,
                  .database = ""},
                 request);
}
