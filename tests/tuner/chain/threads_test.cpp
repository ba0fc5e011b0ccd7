// Many threads at one chain: a problem is tuned once, and one at a time on a device.
#include <atomic>
#include <thread>
#include <vector>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using ChainThreadsTest = ChainTest;

TEST_F(ChainThreadsTest, ManyThreadsTuneAProblemOnce) {
  add_tiled();
  chain();
  std::vector<std::thread> threads;
  std::atomic<int> valid = 0;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        const Choice choice = select();
        valid +=
            choice.kernel != nullptr && (text(choice) == kBest || text(choice) == kDefault) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(valid, 16 * 20);
  EXPECT_EQ(chain().counters().tunings, 1U);
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(ChainThreadsTest, ThreadsThatWaitAllGetTheTunedChoice) {
  add_tiled();
  settings.policy.wait_for_other_tuner = true;
  std::vector<std::thread> threads;
  std::atomic<int> best = 0;
  chain();
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] { best += text(select()) == kBest ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(best, 16);
  EXPECT_EQ(chain().counters().tunings, 1U);
}

TEST_F(ChainThreadsTest, ProblemsAreTunedOneAtATimePerDevice) {
  std::atomic<int> running = 0;
  std::atomic<bool> overlapped = false;
  add({.compute = [&](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig&) {
    if (++running > 1) overlapped = true;
    for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = 2 * a.x[i];
    --running;
  }});
  settings.policy.wait_for_other_tuner = true;
  chain();
  std::vector<std::thread> threads;
  std::atomic<int> best = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const ScalingProblem own{.rows = 100, .flavour = i};
      best += text(select_problem(chain(), own, request())) == kBest ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(best, 8);
  EXPECT_EQ(chain().counters().tunings, 8U);
  EXPECT_FALSE(overlapped);
}

TEST_F(ChainThreadsTest, ManyThreadsGiveUpOnAProblemOnce) {
  add({.compute = [](const auto&, const auto&, const auto&) {}});
  add(reference_script(), -10, kReferencePlatform);
  std::vector<std::thread> threads;
  chain();
  for (int i = 0; i < 16; ++i) threads.emplace_back([&] { select(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(chain().counters().tunings, 1U);
}

}  // namespace
}  // namespace attune::test
