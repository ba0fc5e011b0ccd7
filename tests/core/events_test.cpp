#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/events.hpp>
#include <attune/core/log.hpp>

namespace attune {
namespace {

TEST(EventBus, CallsEachSinkWhileItIsSubscribed) {
  EventBus bus;
  EXPECT_FALSE(bus.active());
  std::vector<std::string> seen;
  {
    const auto subscription =
        bus.subscribe([&](const Event& event) { seen.emplace_back(event.reason); });
    EXPECT_TRUE(bus.active());
    bus.emit({.reason = "first"});
  }
  EXPECT_FALSE(bus.active());
  bus.emit({.reason = "second"});
  EXPECT_EQ(seen, std::vector<std::string>{"first"});
}

TEST(EventBus, MovingASubscriptionKeepsOne) {
  EventBus bus;
  int calls = 0;
  EventBus::Subscription outer;
  {
    auto inner = bus.subscribe([&](const Event&) { ++calls; });
    outer = std::move(inner);
  }
  bus.emit({});
  EXPECT_EQ(calls, 1);
  outer = {};
  EXPECT_FALSE(bus.active());
}

TEST(EventBus, ASinkMayBeSparedTheCallsThatMemoryAnswers) {
  EventBus bus;
  int rare = 0;
  const auto sparing = bus.subscribe([&](const Event&) { ++rare; }, EventBus::MemoryHits::kLeftOut);
  EXPECT_TRUE(bus.active());
  EXPECT_FALSE(bus.tells_memory_hits());
  int all = 0;
  {
    const auto listening = bus.subscribe([&](const Event&) { ++all; });
    EXPECT_TRUE(bus.tells_memory_hits());
    bus.emit({.tier = Tier::kMemory});
    bus.emit({.tier = Tier::kPin});
  }
  EXPECT_FALSE(bus.tells_memory_hits());
  EXPECT_EQ(rare, 1);
  EXPECT_EQ(all, 2);
}

TEST(EventBus, ASinkThatThrowsIsLoggedAndTheOthersAreCalled) {
  EventBus bus;
  std::string logged;
  set_log_sink([&](LogLevel, std::string_view message) { logged = message; });
  int calls = 0;
  const auto bad = bus.subscribe([](const Event&) { throw std::runtime_error("boom"); });
  const auto good = bus.subscribe([&](const Event&) { ++calls; });
  bus.emit({});
  set_log_sink({});
  EXPECT_EQ(calls, 1);
  EXPECT_NE(logged.find("boom"), std::string::npos);
}

TEST(Log, WritesOnceWhatIsSaidOnce) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view message) { lines.emplace_back(message); });
  log_once(LogLevel::kWarning, "said once in events_test");
  log_once(LogLevel::kWarning, "said once in events_test");
  set_log_sink({});
  EXPECT_EQ(lines.size(), 1U);
}

}  // namespace
}  // namespace attune
