// Every status, as far as a CPU can be brought to it, and the text that goes with it.
#include "status.hpp"

#include <fstream>
#include <new>
#include <stdexcept>
#include <thread>

#include <attune/core/error.hpp>

#include "bindings/c/small_call.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

template <class Error>
attune_status status_of(const Error& error) {
  return c::guarded([&] { throw error; });
}

TEST(CStatus, EveryErrorHasItsOwn) {
  EXPECT_EQ(status_of(InvalidArgument("a")), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(Unsupported("a")), ATTUNE_UNSUPPORTED);
  EXPECT_EQ(status_of(Unavailable("a")), ATTUNE_UNAVAILABLE);
  EXPECT_EQ(status_of(NotTuned("a")), ATTUNE_NOT_TUNED);
  EXPECT_EQ(status_of(FileError("a")), ATTUNE_CACHE_ERROR);
  EXPECT_EQ(status_of(CacheError("a")), ATTUNE_CACHE_ERROR);
  EXPECT_EQ(status_of(ExecutionError("a")), ATTUNE_EXECUTION_ERROR);
  EXPECT_EQ(status_of(DeviceFault("the device is lost")), ATTUNE_DEVICE_FAULT);
  EXPECT_STREQ(attune_last_error(), "the device is lost");
  EXPECT_EQ(status_of(std::bad_alloc()), ATTUNE_OUT_OF_MEMORY);
  EXPECT_STREQ(attune_last_error(), "out of memory");
  EXPECT_EQ(status_of(std::logic_error("a bug")), ATTUNE_INTERNAL);
  EXPECT_STREQ(attune_last_error(), "a bug");
  EXPECT_EQ(status_of(7), ATTUNE_INTERNAL);
}

TEST(CStatus, NamesAreThoseOfTheHeader) {
  EXPECT_STREQ(attune_status_name(ATTUNE_OK), "ATTUNE_OK");
  EXPECT_STREQ(attune_status_name(ATTUNE_NOT_TUNED), "ATTUNE_NOT_TUNED");
  EXPECT_STREQ(attune_status_name(ATTUNE_INTERNAL), "ATTUNE_INTERNAL");
  EXPECT_STREQ(attune_status_name(10), "?");
  EXPECT_STREQ(attune_status_name(-1), "?");
}

TEST(CStatus, TheLibrarySaysWhatItIs) {
  EXPECT_EQ(attune_abi_version(), ATTUNE_ABI_VERSION);
  EXPECT_STREQ(attune_version(), ATTUNE_VERSION);
}

TEST(CStatus, CallsHaveTheStatusOfWhatIsWrong) {
  SmallCall small;
  small.call.platform = "nosuch";
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_UNAVAILABLE);
  EXPECT_THAT(attune_last_error(), HasSubstr("nosuch"));
  small.call.platform = "a_name_much_too_long";
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("call: platform: "));
  small.call.platform = nullptr;

  small.call.config = "tile_v=-3";
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_INVALID_ARGUMENT);
  small.call.config = nullptr;

  char* json = nullptr;
  EXPECT_EQ(attune_explain("recurrent_attention", "T=8 D=8", {ATTUNE_CUDA, 77}, nullptr, &json),
            ATTUNE_UNAVAILABLE);
  EXPECT_THAT(attune_last_error(), HasSubstr("gpu:77"));

  const UniqueContext strict = make_c_context("strict");
  small.call.context = strict.get();
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_NOT_TUNED);
}

TEST(CStatus, ADatabaseThatCannotBeWrittenIsACacheError) {
  const TemporaryFolder folder;
  const std::string missing = folder.file("file") + "/attune.db";
  std::ofstream(folder.file("file")) << "not a folder";
  const UniqueContext context = make_c_context("db", missing.c_str());
  auto call = sized<attune_call>();
  call.context = context.get();
  auto options = sized<attune_tune_options>();
  options.budget_ms = 50;
  options.iters = 2;
  options.warmup = -1;
  char* json = nullptr;
  EXPECT_EQ(
      attune_tune("recurrent_attention", "T=64 H=1 D=16", {ATTUNE_CPU, 0}, &call, &options, &json),
      ATTUNE_CACHE_ERROR);
}

TEST(CStatus, EachThreadHasItsOwnLastError) {
  EXPECT_EQ(attune_attention(nullptr, nullptr), ATTUNE_INVALID_ARGUMENT);
  std::thread([] {
    EXPECT_STREQ(attune_last_error(), "");
    EXPECT_EQ(attune_scope_policy("nosuch", nullptr), ATTUNE_INVALID_ARGUMENT);
    EXPECT_STREQ(attune_last_error(), "out: NULL");
  }).join();
  EXPECT_STREQ(attune_last_error(), "args: NULL");
  SmallCall small;
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_OK);
  EXPECT_STREQ(attune_last_error(), "args: NULL") << "a call that succeeds says nothing";
}

}  // namespace
}  // namespace attune::test
