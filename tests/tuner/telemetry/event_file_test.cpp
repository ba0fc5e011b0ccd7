// Events as lines of a file: which are told, that processes share it, and what stands in its way.
#include "telemetry/event_file.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cache/child_process.hpp"
#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

class EventFileTest : public ChainTest {
 protected:
  EventFileTest() { settings.events = path; }

  std::vector<json> told(const std::string& event) const {
    std::vector<json> some = lines_of(path);
    std::erase_if(some, [&](const json& line) { return line.at("event") != event; });
    return some;
  }
  /// How often that was said.
  std::ptrdiff_t said(const std::string& what) const {
    std::ptrdiff_t count = 0;
    for (std::size_t at = 0; (at = logged.find(what, at)) != std::string::npos; ++at) ++count;
    return count;
  }

  std::string path = folder.file("events.jsonl");
};

TEST_F(EventFileTest, TellsOfATuningAndOfTheChoiceItMade) {
  add_tiled();
  select();
  select();
  ASSERT_EQ(told("tune_started").size(), 1U);
  EXPECT_EQ(told("tune_started")[0].at("candidates"), 12);
  ASSERT_EQ(told("tune_finished").size(), 1U);
  const std::vector<json> choices = told("selected");
  ASSERT_EQ(choices.size(), 1U) << "calls that memory answers are not told";
  EXPECT_EQ(choices[0].at("op"), "scaling");
  EXPECT_EQ(choices[0].at("problem"), "rows=100 flavour=0");
  EXPECT_EQ(choices[0].at("device_class"), "fake:1");
  EXPECT_EQ(choices[0].at("tier"), "autotune");
  EXPECT_EQ(choices[0].at("kernel"), "test.scaling.tiled");
  EXPECT_EQ(choices[0].at("config"), "tile=32,threads=1");
  EXPECT_THAT(choices[0].at("reason").get<std::string>(), HasSubstr("tuned: 32.25 us"));
  EXPECT_EQ(choices[0].at("pid"), getpid());
}

TEST_F(EventFileTest, LeavesTheCallsThatMemoryAnswersAsFastAsWithoutIt) {
  add_tiled();
  select();
  EXPECT_TRUE(events.active());
  EXPECT_FALSE(events.tells_memory_hits());
}

TEST_F(EventFileTest, TellsOfARepeatedChoiceOnce) {
  add_tiled();
  const NamedConfig named = NamedConfig::parse("tile=2");
  Request with = request();
  with.config = &named;
  for (int i = 0; i < 3; ++i) select(with);
  EXPECT_EQ(told("selected").size(), 1U);
  const NamedConfig other = NamedConfig::parse("tile=4");
  with.config = &other;
  select(with);
  EXPECT_EQ(told("selected").size(), 2U);
}

TEST_F(EventFileTest, TellsOfEachFaultyCandidate) {
  add({.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
    for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = (c.tile == 32 ? 3.0F : 2.0F) * a.x[i];
  }});
  add(reference_script(), -10, kReferencePlatform);
  select();
  const std::vector<json> faults = told("fault");
  ASSERT_FALSE(faults.empty());
  for (const json& fault : faults) {
    EXPECT_THAT(fault.at("config").get<std::string>(), HasSubstr("tile=32"));
    EXPECT_THAT(fault.at("reason").get<std::string>(), HasSubstr("wrong"));
  }
}

TEST_F(EventFileTest, WhatIsNoFileOfEventsStaysAsItIsAndIsOneWarning) {
  std::ofstream(path) << "Dear reader,\n";
  add_tiled();
  const Choice choice = select();
  EXPECT_EQ(text(choice), kBest) << "what is computed does not change";
  EXPECT_EQ(text_of_file(path), "Dear reader,\n");
  EXPECT_EQ(said("is no file of events"), 1);
  EXPECT_EQ(said("ATTUNE_EVENTS"), 1);
}

TEST_F(EventFileTest, APathThatCannotBeMadeIsOneWarning) {
  settings.events = folder.file("missing/events.jsonl");
  add_tiled();
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(said("ATTUNE_EVENTS"), 1);
}

TEST_F(EventFileTest, IsSharedByProcessesLineByLine) {
  constexpr int kProcesses = 4, kEach = 50;
  const int good = in_children(kProcesses, [&](int) {
    for (int line = 0; line < kEach; ++line) {
      telemetry::append_event(path, "{\"time\":\"x\",\"of\":\"" + std::string(400, 'a') + "\"}\n");
    }
    return true;
  });
  EXPECT_EQ(good, kProcesses);
  EXPECT_EQ(lines_of(path).size(), std::size_t{kProcesses * kEach});
}

TEST_F(EventFileTest, IsSetAsideWhenItIsFull) {
  const std::string line = "{\"time\":\"" + std::string((1 << 20) - 12, 'a') + "\"}\n";
  for (int i = 0; i < 20; ++i) telemetry::append_event(path, line);
  const auto size = std::filesystem::file_size(path);
  EXPECT_GT(size, 0U);
  EXPECT_LE(size, std::uintmax_t{8} << 20);
  EXPECT_LE(std::filesystem::file_size(path + ".1"), std::uintmax_t{8} << 20);
}

TEST_F(EventFileTest, SetsNothingAsideOntoAFileThatIsNotItsOwn) {
  std::ofstream(path + ".1") << "a letter\n";
  const std::string line = "{\"time\":\"" + std::string((1 << 20) - 12, 'a') + "\"}\n";
  for (int i = 0; i < 8; ++i) telemetry::append_event(path, line);
  EXPECT_THROW(telemetry::append_event(path, line), FileError);
  EXPECT_EQ(text_of_file(path + ".1"), "a letter\n");
}

TEST_F(EventFileTest, ALineThatAPowerFailureCutOffSpoilsNoOther) {
  std::ofstream(path) << "{\"time\":\"2026";
  telemetry::append_event(path, "{\"time\":\"x\"}\n");
  EXPECT_THAT(text_of_file(path), HasSubstr("\n{\"time\":\"x\"}\n"));
}

}  // namespace
}  // namespace attune::test
