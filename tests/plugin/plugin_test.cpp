// An op from a plugin, through key, chain, tuner, database and Plan. The command line's part is in
// tests/cli.
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

#include "plugin/row_softmax/row_softmax.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using row_softmax::RowSoftmax;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::StrEq;

class PluginTest : public testing::Test {
 protected:
  std::unique_ptr<Context> context(Policy policy = Policy::kTune) const {
    return make_context(
        {.plugins = {ROW_SOFTMAX_PLUGIN}, .policy = policy, .database = folder_.file("test.db")});
  }
  static Request request() { return {.device = &cpu_device()}; }

  test::TemporaryFolder folder_;
};

TEST_F(PluginTest, BringsItsOpAndKernels) {
  const auto context_ = context();
  EXPECT_EQ(context_->registry().op("row_softmax").summary, "softmax over the last dimension");
  EXPECT_EQ(context_->registry().kernels("row_softmax").size(), 2U);
}

TEST_F(PluginTest, IsTunedStoredAndFoundAgainByAnotherContext) {
  const RowSoftmax::Problem problem{.rows = 100, .cols = 64};
  std::string tuned_config;
  {
    const auto first = context();
    const Choice tuned = first->select<RowSoftmax>(problem, request());
    tuned_config = config_text(*tuned.kernel, tuned.config);
    EXPECT_EQ(tuned.tier, Tier::kAutotune);
    EXPECT_EQ(tuned.kernel->name(), "rows.row_softmax");
    EXPECT_EQ(chain_of(*first).counters().tunings, 1U);
    EXPECT_EQ(first->select<RowSoftmax>(problem, request()).tier, Tier::kMemory);
  }
  const auto second = context(Policy::kDb);
  const Choice found = second->select<RowSoftmax>(problem, request());
  EXPECT_EQ(found.tier, Tier::kPersistent);
  EXPECT_FALSE(found.bucket_hit);
  EXPECT_EQ(config_text(*found.kernel, found.config), tuned_config);

  const Choice neighbour = second->select<RowSoftmax>({.rows = 120, .cols = 64}, request());
  EXPECT_EQ(neighbour.tier, Tier::kPersistent);
  EXPECT_TRUE(neighbour.bucket_hit);
  EXPECT_EQ(chain_of(*second).counters().tunings, 0U);
}

TEST_F(PluginTest, RunsThroughAPlan) {
  const auto context_ = context(Policy::kHeuristic);
  const Plan<RowSoftmax> plan =
      Executor(*context_).plan<RowSoftmax>({.rows = 2, .cols = 4}, request());
  const float x[8] = {0, 0, 0, 0, 1, 1, 1, 1};
  float y[8] = {};
  plan.launch({.x = {x, {2, 4}}, .y = {y, {2, 4}}});
  for (const float value : y) EXPECT_FLOAT_EQ(value, 0.25F);
  EXPECT_THROW(plan.launch({.x = {x, {2, 4}}, .y = {y, {4, 2}}}), InvalidArgument);
  EXPECT_THROW(plan.launch({.x = {x, {1, 4}}, .y = {y, {1, 4}}}), InvalidArgument);
}

TEST_F(PluginTest, HasWhatFollowsFromItsOperands) {
  const auto context_ = context();
  const OpInfo& op = context_->registry().op("row_softmax");
  const AnyProblem problem = op.parse(parse_params("rows=3 cols=5", ' '));
  EXPECT_EQ(op.bytes(problem), 2 * 3 * 5 * 4);
  EXPECT_EQ(op.make_case(problem, cpu_device(), 1)->outputs().at(0).name, "y");
  TensorMap file;
  file.emplace("x", Tensor::of(std::vector<float>{0, 1, 2}, {1, 3}));
  EXPECT_EQ(op.text(op.bind_case(file, {}, cpu_device())->problem(), false), "rows=1 cols=3");
  file.emplace("z", Tensor::of(std::vector<float>{0}, {1}));
  EXPECT_THROW(op.bind_case(file, {}, cpu_device()), InvalidArgument);
  EXPECT_THROW(op.parse(parse_params("rows=3", ' ')), InvalidArgument) << "no columns";
}

TEST_F(PluginTest, ReferenceServesOnlyWhatNothingElseSupports) {
  const auto context_ = context(Policy::kHeuristic);
  EXPECT_EQ(context_->select<RowSoftmax>({.rows = 2, .cols = 3}, request()).kernel->name(),
            "reference.row_softmax");
  EXPECT_EQ(context_->select<RowSoftmax>({.rows = 2, .cols = 8}, request()).kernel->name(),
            "rows.row_softmax");
}

TEST_F(PluginTest, ExplainNamesEachTier) {
  const auto context_ = context(Policy::kDb);
  const RowSoftmax::Problem problem{.rows = 10, .cols = 16};
  const Decision decision = context_->explain(ProblemRef::of<RowSoftmax>(problem), request());
  ASSERT_TRUE(decision.choice.has_value()) << decision.error;
  EXPECT_EQ(decision.choice->tier, Tier::kHeuristic);
  ASSERT_EQ(decision.notes.size(), 7U);
  for (const TierNote& note : decision.notes)
    EXPECT_FALSE(note.reason.empty()) << to_string(note.tier);
}

/// A context with row_softmax and the backend "npu" of another plugin.
std::unique_ptr<Context> context_with_npu() {
  return make_context({.plugins = {ROW_SOFTMAX_PLUGIN, NPU_BACKEND_PLUGIN},
                       .policy = Policy::kHeuristic,
                       .database = ""});
}

TEST(BackendOfAPlugin, RunsItsKernelsOnItsDevices) {
  const auto context = context_with_npu();
  const Registry& registry = context->registry();
  EXPECT_THAT(registry.backends(), testing::Contains("npu"));
  EXPECT_EQ(registry.why_no_devices("npu"), "");
  EXPECT_THAT(registry.builds(), testing::Contains("NPU code 8c"));
  const Device& device = registry.device({"npu", 0});
  const Plan<RowSoftmax> plan =
      Executor(*context).plan<RowSoftmax>({.rows = 2, .cols = 4}, {.device = &device});
  EXPECT_EQ(plan.choice().kernel->name(), "npu.row_softmax");
  const float x[8] = {0, 0, 0, 0, 1, 1, 1, 1};
  float y[8] = {};
  plan.launch({.x = {x, {2, 4}, device.info().id}, .y = {y, {2, 4}, device.info().id}});
  EXPECT_THROW(plan.launch({.x = {x, {2, 4}}, .y = {y, {2, 4}}}), InvalidArgument) << "on the host";
  for (const float value : y) EXPECT_FLOAT_EQ(value, 0.25F);
}

TEST(BackendOfAPlugin, SaysWhyItHasNoDevicesAndReadsItsClassesAllTheSame) {
  setenv("NPU_DEVICES", "0", 1);
  const auto context = context_with_npu();
  EXPECT_EQ(context->registry().why_no_devices("npu"), "no NPU driver");
  unsetenv("NPU_DEVICES");
  EXPECT_EQ(context->registry().find_device({"npu", 0}), nullptr);
  const auto device = context->registry().describe_device_class("npu:4c");
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ(device->cores, 4);
  EXPECT_FALSE(context->registry().describe_device_class("npu:many").has_value());
}

/// Why a plugin was refused; "loaded" when it was not.
std::string refusal(const std::string& path) {
  Registry registry;
  register_all(registry);
  try {
    load_plugin(path, registry);
  } catch (const Unavailable& error) {
    return error.what();
  }
  return "loaded";
}

/// The same of faulty_plugin.cpp.
std::string refusal_of(const char* fault) {
  setenv("FAULTY_PLUGIN", fault, 1);
  const std::string reason = refusal(FAULTY_PLUGIN);
  unsetenv("FAULTY_PLUGIN");
  return reason;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What of a shared object is loaded: debugging information may be most of its bytes.
std::size_t loaded_bytes(const std::string& object) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(object.data());
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(object.data() + header->e_phoff);
  std::size_t end = 0;
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD) {
      end = std::max<std::size_t>(end, segments[i].p_offset + segments[i].p_filesz);
    }
  }
  return end;
}

TEST(LoadPlugin, RefusesWhatIsNoSharedObject) {
  const test::TemporaryFolder folder;
  const auto named = [&](const char* name, const std::string& content) {
    std::ofstream(folder.file(name), std::ios::binary) << content;
    return folder.file(name);
  };
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string whole = bytes_of(ROW_SOFTMAX_PLUGIN);
  const std::size_t loaded = loaded_bytes(whole);
  const std::pair<std::string, const char*> cases[] = {
      {folder.file("nothing"), "No such file"},
      {fifo, "not a regular file but a FIFO"},
      {folder.path(), "not a regular file but a folder"},
      {"/dev/zero", "not a regular file but a device"},
      {named("empty", ""), "file too short"},
      {named("text", std::string(1000, 'x')), "invalid ELF header"},
      {named("header", whole.substr(0, 64)), ""},
      {named("quarter", whole.substr(0, loaded / 4)), "its end is missing"},
      {named("half", whole.substr(0, loaded / 2)), "its end is missing"},
  };
  for (const auto& [path, reason] : cases) {
    EXPECT_THAT(refusal(path), AllOf(StartsWith(str("plugin '", path, "': ")), HasSubstr(reason)));
  }
}

TEST(LoadPlugin, RefusesASharedObjectThatIsNoPluginOfThisAttune) {
  EXPECT_THAT(refusal(PLAIN_LIBRARY),
              StrEq("plugin '" PLAIN_LIBRARY "': it has no function attune_plugin_abi"));
  EXPECT_THAT(refusal_of("null_abi"),
              StrEq("plugin '" FAULTY_PLUGIN "': attune_plugin_abi returned null"));
  EXPECT_THAT(refusal_of("other_abi"),
              StartsWith("plugin '" FAULTY_PLUGIN "': it was built for 'attune 0.0.0"));
  EXPECT_THAT(refusal_of("older_interface"),
              StrEq("plugin '" FAULTY_PLUGIN "': it was built for interface 2 of plugins, this "
                    "attune has 4: build it again with this attune"));
}

TEST(LoadPlugin, NamesThePluginInWhateverItThrows) {
  const std::pair<const char*, const char*> cases[] = {
      {"abi_throws", "it threw a value of type int"},
      {"throws_int", "it threw a value of type int"},
      {"throws_type", "NotAnException"},
      {"throws_exception", "no licence found"},
      {"kernel_of_unknown_op", "kernel 'stray': op 'no_such_op' is not registered"},
      {"null_kernel", "a kernel to register is null"},
      {"null_device", "a device to register is null"},
      {"op_twice", "op 'recurrent_decode' is registered twice"},
  };
  for (const auto& [fault, reason] : cases) {
    EXPECT_THAT(refusal_of(fault),
                AllOf(StartsWith("plugin '" FAULTY_PLUGIN "': "), HasSubstr(reason)));
  }
  EXPECT_EQ(refusal_of("none"), "loaded");
}

TEST(LoadPlugin, LoadsNoneTwice) {
  Registry registry;
  load_plugin(ROW_SOFTMAX_PLUGIN, registry);
  EXPECT_THROW(load_plugin(ROW_SOFTMAX_PLUGIN, registry), Unavailable);
}

}  // namespace
}  // namespace attune
