// Programs that attune may find itself in: with another locale, without memory, with two copies of
// the library, and one that unloads it.
#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <locale>
#include <new>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/cache/database_text.hpp>

#include "support/allocation_count.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionProblem;

/// Tunes a problem, as briefly as it can be, or finds it.
Choice tune_one(const std::string& database) {
  Tuner::Settings brief(Tuner(0, 2).settings());
  brief.min_sample_us = 20;
  const auto context =
      make_context({.policy = Policy::kTune, .database = database, .tuner = brief});
  const RecurrentAttentionProblem problem{.B = 1, .T = 1024, .H = 1, .Hkv = 1, .K = 4, .V = 4};
  return context->select<RecurrentAttention>(problem, {.device = &cpu_device()});
}

/// Decimal commas, and dots between thousands, as in German; no such locale need be installed.
class GermanNumbers final : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class WithGermanNumbers : public testing::Test {
 protected:
  WithGermanNumbers()
      : before_(std::locale::global(std::locale(std::locale::classic(), new GermanNumbers))) {}
  ~WithGermanNumbers() override { std::locale::global(before_); }

  TemporaryFolder folder;

 private:
  std::locale before_;
};

TEST_F(WithGermanNumbers, RowsAndTextsAreTheSame) {
  std::ostringstream german;
  german << 1024;
  ASSERT_EQ(german.str(), "1.024");
  tune_one(folder.file("user.db"));
  const DatabaseContent content = read_database_file(folder.file("user.db"));
  ASSERT_EQ(content.decisions.size(), 1U);
  EXPECT_THAT(content.decisions[0].row.key.problem, testing::HasSubstr("T=1024"));
  for (const char* name : {"rows.jsonl", "rows.csv"}) {
    write_database_file(folder.file(name), content);
    EXPECT_EQ(read_database_file(folder.file(name)), content) << name;
  }
  std::locale::global(std::locale::classic());
  EXPECT_EQ(read_database_file(folder.file("rows.jsonl")), content);
  EXPECT_EQ(tune_one(folder.file("user.db")).tier, Tier::kPersistent);
}

// Sanitizers have operators new of their own, and take two copies of a global for a mistake.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(WithoutMemory, ACallFailsWholeAndTheNextOneIsServed) {
  const TemporaryFolder folder;
  tune_one(folder.file("user.db"));
  const RecurrentAttentionProblem problem{.B = 1, .T = 1024, .H = 1, .Hkv = 1, .K = 4, .V = 4};
  int failures = 0;
  bool served = false;
  for (std::size_t n = 0; !served; ++n) {
    const auto context = make_context({.policy = Policy::kDb, .database = folder.file("user.db")});
    // The databases are read first: reading folders ends the program in libstdc++ when that fails.
    context->select<RecurrentAttention>({.B = 1, .T = 7, .H = 1, .Hkv = 1, .K = 8, .V = 4},
                                        {.device = &cpu_device()});
    try {
      const FailingAllocation failing(n);
      context->select<RecurrentAttention>(problem, {.device = &cpu_device()});
      served = !failing.has_failed();
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    const Choice after = context->select<RecurrentAttention>(problem, {.device = &cpu_device()});
    EXPECT_TRUE(after.tier == Tier::kPersistent || after.tier == Tier::kMemory) << n;
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 10);
}

/// A copy of the library, loaded until destroyed.
class Loaded {
 public:
  explicit Loaded(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Loaded() { dlclose(handle_); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  /// Its default_context(), with every kernel registered.
  void* default_context() const {
    using Get = void* (*)();
    const auto get = reinterpret_cast<Get>(dlsym(handle_, "_ZN6attune15default_contextEv"));
    EXPECT_NE(get, nullptr) << dlerror();
    return get == nullptr ? nullptr : get();
  }

 private:
  void* handle_;
};

TEST(SharedLibrary, MayBeLoadedTwiceAndUnloaded) {
  const TemporaryFolder folder;
  const std::string copy = folder.file("libcopy.so");
  std::filesystem::copy_file(ATTUNE_SHARED_LIBRARY, copy);
  for (int round = 0; round < 2; ++round) {
    const Loaded one(ATTUNE_SHARED_LIBRARY);
    const Loaded other(copy);
    EXPECT_NE(one.default_context(), nullptr);
    EXPECT_NE(other.default_context(), one.default_context()) << "copies share no registry";
  }
}
#endif

}  // namespace
}  // namespace attune::test
