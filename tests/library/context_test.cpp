// The library as a whole: what a context has, and where its settings come from.
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include <attune/attune.hpp>
#include <attune/core/log.hpp>

#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionProblem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsSupersetOf;

/// An environment variable with a value until destroyed.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class ContextTest : public testing::Test {
 protected:
  /// Measures little: these tests ask where a choice comes from, not how good it is.
  Tuner::Settings quick() const {
    Tuner::Settings settings(Tuner(0, 8).settings());
    settings.min_sample_us = 20;
    return settings;
  }

  TemporaryFolder folder;
  std::string database = folder.file("user.db");
  RecurrentAttentionProblem problem{.B = 1, .T = 5, .H = 1, .Hkv = 1, .K = 4, .V = 4};
  Request request{.device = &cpu_device()};
};

std::string message_of(const ContextOptions& options) {
  try {
    make_context(options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(ContextTest, HasAttunesOpsAndKernels) {
  const auto context = make_context({.database = ""});
  std::vector<std::string> ops;
  for (const OpInfo* op : context->registry().ops()) ops.emplace_back(op->name);
  EXPECT_THAT(ops, IsSupersetOf({"recurrent_attention", "recurrent_attention.backward",
                                 "gated_linear_attention", "lightning_attention",
                                 "recurrent_decode", "lightning_decode"}));
  EXPECT_THAT(context->registry().platforms(), IsSupersetOf({"reference", "simd"}));
}

TEST_F(ContextTest, EveryOpHasAReferenceOnTheHost) {
  const auto context = make_context({.database = ""});
  for (const OpInfo* op : context->registry().ops()) {
    EXPECT_FALSE(context->registry().kernels(op->name, "reference", "cpu").empty()) << op->name;
  }
}

TEST_F(ContextTest, TunesOnceAndFindsItAgain) {
  {
    const auto context =
        make_context({.policy = Policy::kTune, .database = database, .tuner = quick()});
    EXPECT_EQ(context->select<RecurrentAttention>(problem, request).tier, Tier::kAutotune);
    EXPECT_EQ(context->select<RecurrentAttention>(problem, request).tier, Tier::kMemory);
  }
  const auto context = make_context({.policy = Policy::kDb, .database = database});
  EXPECT_EQ(context->select<RecurrentAttention>(problem, request).tier, Tier::kPersistent);
}

TEST_F(ContextTest, ReadOnlyNeverMakesADatabase) {
  const auto context = make_context(
      {.policy = Policy::kTune, .database = database, .read_only = true, .tuner = quick()});
  EXPECT_EQ(context->select<RecurrentAttention>(problem, request).tier, Tier::kAutotune);
  EXPECT_FALSE(std::filesystem::exists(database));
}

TEST_F(ContextTest, TakesPolicyAndDatabaseFromTheEnvironment) {
  const Variable policy("ATTUNE_POLICY", "strict");
  const Variable path("ATTUNE_DB", database);
  const auto context = make_context();
  EXPECT_EQ(chain_of(*context).policy(), AutotunePolicy::of(Policy::kStrict));
  EXPECT_EQ(chain_of(*context).store().settings().user_path, database);
  EXPECT_THROW(context->select<RecurrentAttention>(problem, request), NotTuned);
}

TEST_F(ContextTest, OptionsOutrankTheEnvironment) {
  const Variable policy("ATTUNE_POLICY", "strict");
  const Variable path("ATTUNE_DB", database);
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  EXPECT_EQ(chain_of(*context).policy(), AutotunePolicy::of(Policy::kHeuristic));
  EXPECT_EQ(chain_of(*context).store().settings().user_path, "");
}

TEST_F(ContextTest, ABadPolicyInTheEnvironmentIsAnErrorThatNamesTheVariable) {
  const Variable policy("ATTUNE_POLICY", "fast");
  EXPECT_THAT(message_of({}), AllOf(HasSubstr("ATTUNE_POLICY"), HasSubstr("'fast'"),
                                    HasSubstr("tune, db, heuristic, strict or strict-fresh")));
}

TEST_F(ContextTest, ABadIntervalInTheEnvironmentIsAnErrorThatNamesTheVariable) {
  for (const char* text : {"5s", "-1", "x"}) {
    const Variable interval("ATTUNE_RELOAD_SECONDS", text);
    EXPECT_THAT(message_of({.database = ""}),
                AllOf(HasSubstr("ATTUNE_RELOAD_SECONDS"), HasSubstr(text)));
  }
}

TEST_F(ContextTest, WithAnIntervalInTheEnvironmentAReplacedSiteDatabaseIsTakenUp) {
  const Variable site("ATTUNE_SYSTEM_DB_PATH", folder.file("site.db"));
  const Variable interval("ATTUNE_RELOAD_SECONDS", "1");
  const auto context = make_context({.policy = Policy::kDb, .database = ""});
  const Choice before = context->select<RecurrentAttention>(problem, request);
  EXPECT_EQ(before.tier, Tier::kHeuristic);
  PinRow pin;
  pin.key = {std::string(RecurrentAttention::kName), cpu_device().info().device_class, "auto",
             problem_text<RecurrentAttention>(problem)};
  pin.kernel = "reference.recurrent_attention";
  ConfigDatabase(folder.file("site.db"), ConfigDatabase::Mode::kReadWrite).pin(pin);
  Choice now = before;
  while (now.origin != Tier::kPin) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = context->select<RecurrentAttention>(problem, request);
  }
  EXPECT_EQ(now.kernel->name(), "reference.recurrent_attention");
}

TEST_F(ContextTest, ABadPluginInTheEnvironmentIsAnErrorThatNamesTheVariable) {
  const Variable plugins("ATTUNE_PLUGINS", ":/nonexistent/libmine.so");
  EXPECT_THAT(message_of({}),
              AllOf(HasSubstr("ATTUNE_PLUGINS"), HasSubstr("/nonexistent/libmine.so")));
}

TEST_F(ContextTest, WarnsAboutAVariableThatIsNotAttunes) {
  std::string logged;
  set_log_sink([&](LogLevel, std::string_view line) { logged += line; });
  const Variable typo("ATTUNE_POLICI", "db");
  const Variable level("ATTUNE_LOG", "verbose");
  make_context({.database = ""});
  set_log_sink({});
  EXPECT_THAT(logged, HasSubstr("ATTUNE_LOG=verbose: expected debug, info, warning or off"));
  EXPECT_THAT(logged, HasSubstr("ATTUNE_POLICI"));
  EXPECT_THAT(logged, HasSubstr("did you mean 'ATTUNE_POLICY'?"));
}

TEST_F(ContextTest, RegistersAfterTheBuiltInKernels) {
  bool had_ops = false;
  make_context({.register_kernels = {[&](Registry& registry) {
                  had_ops = registry.find_op("recurrent_attention") != nullptr;
                }},
                .database = ""});
  EXPECT_TRUE(had_ops);
}

TEST_F(ContextTest, TheDefaultOneIsMadeOnce) {
  const Variable path("ATTUNE_DB", database);
  EXPECT_EQ(&default_context(), &default_context());
}

TEST(ChainOf, RefusesAContextWithAnotherSelector) {
  class OwnSelector final : public ConfigSelector {
    Choice select(const SelectionKey&, ProblemRef, const Request&) override { return {}; }
    Decision explain(ProblemRef, const Request&) override { return {}; }
    void forget(ProblemRef, const Request&) override {}
    Choice retune(ProblemRef, const Request&) override { return {}; }
  };
  Context context(Registry(),
                  [](const Registry&, EventBus&) { return std::make_unique<OwnSelector>(); });
  EXPECT_THROW(chain_of(context), InvalidArgument);
}

}  // namespace
}  // namespace attune::test
