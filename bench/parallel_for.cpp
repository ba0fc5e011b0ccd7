// What it costs to share a short loop among threads: attune's parallel_for beside oneTBB and
// OpenMP.
//
//   One task a thread, again and again: at once, or with 200 us in between, as in a model whose
//   other layers run on one thread. The tasks do nothing, or update 1 MiB of memory together: the
//   states of one decode step with H = 16 and K = V = 128. Medians, in microseconds; ways
//   alternate. TBB stands with an arena that is kept and with one made for each loop, whose number
//   of threads a loop then chooses; OpenMP as its environment says (OMP_WAIT_POLICY).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <attune/core/parallel_for.hpp>
#include <attune/core/tensor.hpp>

#include "yardsticks/loops.hpp"

#if ATTUNE_BENCH_WITH_TBB
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;
using Body = std::function<void(std::int64_t)>;

struct Way {
  std::string name;
  std::function<void(int threads, const Body&)> run;
};

#if ATTUNE_BENCH_WITH_TBB
void run_in_arena(tbb::task_arena& arena, int threads, const Body& body) {
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, threads, 1),
        [&](const tbb::blocked_range<std::int64_t>& range) {
          for (std::int64_t task = range.begin(); task != range.end(); ++task) body(task);
        },
        tbb::simple_partitioner());
  });
}
#endif

std::vector<Way> ways_for(int threads) {
  std::vector<Way> ways;
  ways.push_back({"one thread", [](int count, const Body& body) {
                    for (int task = 0; task < count; ++task) body(task);
                  }});
  ways.push_back({"attune", [](int count, const Body& body) { parallel_for(count, count, body); }});
#if ATTUNE_BENCH_WITH_TBB
  ways.push_back({"tbb, arena a loop", [](int count, const Body& body) {
                    tbb::task_arena arena(count);
                    run_in_arena(arena, count, body);
                  }});
  const auto kept = std::make_shared<tbb::task_arena>(threads);
  ways.push_back({"tbb, kept arena",
                  [kept](int count, const Body& body) { run_in_arena(*kept, count, body); }});
#endif
#if defined(_OPENMP)
  ways.push_back({"openmp", [](int count, const Body& body) {
#pragma omp parallel for num_threads(count) schedule(static)
                    for (int task = 0; task < count; ++task) body(task);
                  }});
#endif
  static_cast<void>(threads);
  return ways;
}

void wait_for(std::chrono::microseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

double median_us(const std::function<void()>& once, std::chrono::microseconds gap) {
  constexpr std::size_t kSamples = 201;
  std::vector<double> us;
  for (std::size_t i = 0; i < kSamples; ++i) {
    wait_for(gap);
    const Clock::time_point start = Clock::now();
    once();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(us.begin(), us.begin() + kSamples / 2, us.end());
  return us[kSamples / 2];
}

/// A round of each way after the other; of each the median over rounds.
void compare(const std::string& only, int threads, const char* what, const Body& body,
             std::chrono::microseconds gap) {
  constexpr std::size_t kRounds = 9;
  std::vector<Way> ways = ways_for(threads);
  std::erase_if(ways, [&](const Way& way) { return !only.empty() && way.name != only; });
  std::vector<std::vector<double>> us(ways.size());
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      us[i].push_back(median_us([&] { ways[i].run(threads, body); }, gap));
    }
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::sort(us[i].begin(), us[i].end());
    std::printf("| %7d | %-14s | %3d us | %-18s | %7.2f |\n", threads, what,
                static_cast<int>(gap.count()), ways[i].name.c_str(), us[i][kRounds / 2]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  constexpr std::int64_t kFloats = (1 << 20) / sizeof(float);
  Tensor states(DType::kF32, {kFloats});
  std::ranges::fill(states.values<float>(), 1.0F);
  const yardsticks::Loops& loops = yardsticks::loops_of_this_cpu().front();
  std::printf("| threads | tasks          | gap    | by                 |      us |\n");
  std::printf("|--------:|----------------|-------:|--------------------|--------:|\n");
  for (const int threads : {2, 4, 8, 16}) {
    if (threads > usable_cores()) break;
    for (const std::chrono::microseconds gap :
         {std::chrono::microseconds(0), std::chrono::microseconds(200)}) {
      compare(
          only, threads, "nothing", [](std::int64_t) {}, gap);
      compare(
          only, threads, "update 1 MiB",
          [&](std::int64_t task) {
            loops.update(states.values<float>().data() + kFloats / threads * task,
                         kFloats / threads);
          },
          gap);
    }
  }
}
