// A candidate that takes the process along is not tried by the next one; and measurements in two
// processes do not disturb each other.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include <gmock/gmock.h>

#include <attune/core/this_machine.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

class ChainSuspectsTest : public ChainTest {
 protected:
  /// A process that tunes and ends in the middle of its first run of tile=32.
  void crash_another() {
    const pid_t child = fork();
    if (child == 0) {
      select();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 7);
  }
  void add_deadly() {
    Script script;
    script.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
      if (c.tile == 32) _exit(7);
      for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = 2 * a.x[i];
    };
    add(std::move(script));
  }
};

TEST_F(ChainSuspectsTest, WhatEndedAProcessIsNotTriedByTheNext) {
  add_deadly();
  crash_another();  // tile=32,threads=1
  crash_another();  // tile=32,threads=2
  listen();
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=16,threads=1");
  int quarantined = 0;
  for (const SeenEvent& trial : seen_of(EventKind::kTrial)) {
    if (trial.config.find("tile=32") == std::string::npos) continue;
    EXPECT_THAT(trial.reason, HasSubstr("quarantined: suspect: its process ended while it ran"));
    ++quarantined;
  }
  EXPECT_EQ(quarantined, 2);
}

TEST_F(ChainSuspectsTest, WhatWasDoneWhenTheProcessEndedIsNoSuspect) {
  add_tiled();
  const pid_t child = fork();
  if (child == 0) {
    select();
    _exit(0);  // leaves nothing behind: the tuning had ended
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(text(select()), kBest);
}

std::string lock_of_fake_device(const std::string& folder) {
  return str(folder, "/attune-fake_0-", boot_id(), ".lock");
}

/// A process that measures on the fake device until it is told to end.
class Measurer {
 public:
  explicit Measurer(const std::string& folder) {
    EXPECT_EQ(pipe(ready_), 0);
    child_ = fork();
    if (child_ == 0) {
      const int file = open(lock_of_fake_device(folder).c_str(), O_RDWR | O_CREAT, 0600);
      if (flock(file, LOCK_EX) != 0 || write(file, "4711", 4) != 4) _exit(1);
      if (write(ready_[1], "r", 1) != 1) _exit(2);
      for (;;) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready_[0], &byte, 1), 1);
  }
  ~Measurer() {
    end();
    close(ready_[0]);
    close(ready_[1]);
  }
  void end() {
    if (child_ == 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  int ready_[2] = {-1, -1};
  pid_t child_ = 0;
};

class ChainMeasuringTest : public ChainTest {
 protected:
  ChainMeasuringTest() {
    add_tiled();
    settings.lock_folder = folder.path().string();
  }
  std::string lock() const { return lock_of_fake_device(settings.lock_folder); }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(ChainMeasuringTest, WhileAnotherProcessMeasuresTheHeuristicServes) {
  Measurer other(settings.lock_folder);
  listen();
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(chain().counters().tunings, 0U);
  EXPECT_THAT(seen_of(EventKind::kTuneSkipped).at(0).reason,
              HasSubstr("something else is being tuned on the device"));
  other.end();  // even when it is killed
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(ChainMeasuringTest, AMachineDoesNotWaitForAnotherThatSharesTheFolder) {
  for (const char* name :
       {"/attune-fake_0.lock", "/attune-fake_0-11111111-2222-3333-4444-555555555555.lock"}) {
    const int theirs = open((settings.lock_folder + name).c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(flock(theirs, LOCK_EX), 0);
  }
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(ChainMeasuringTest, ADeviceWithAUuidIsLockedByItWhateverItsNumber) {
  class Renumbered final : public Device {
   public:
    Renumbered(const Device& device, int index) : device_(device), info_(device.info()) {
      info_.id.index = index;
      info_.features = {"fast", "uuid:FAKE-12"};
    }
    const DeviceInfo& info() const noexcept override { return info_; }
    void* allocate(std::size_t n, void* s) const override { return device_.allocate(n, s); }
    void deallocate(void* p, void* s) const noexcept override { device_.deallocate(p, s); }
    void copy_to_device(void* to, const void* from, std::size_t n, void* s) const override {
      device_.copy_to_device(to, from, n, s);
    }
    void copy_to_host(void* to, const void* from, std::size_t n, void* s) const override {
      device_.copy_to_host(to, from, n, s);
    }
    void fill(void* to, std::byte v, std::size_t n, void* s) const override {
      device_.fill(to, v, n, s);
    }
    void synchronize(void* s) const override { device_.synchronize(s); }
    double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
      return device_.time_us(launch, repeats);
    }

   private:
    const Device& device_;
    DeviceInfo info_;
  };
  const Renumbered seven(device, 7);
  const std::string path = settings.lock_folder + "/attune-fake-FAKE-12.lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(file, LOCK_EX), 0);
  EXPECT_EQ(select({.device = &seven}).tier, Tier::kHeuristic);
  close(file);
  EXPECT_EQ(text(select({.device = &seven})), kBest);
}

TEST_F(ChainMeasuringTest, WhoAsksForATuningWaitsAndSaysForWhom) {
  Measurer other(settings.lock_folder);
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    other.end();
  });
  const auto report = chain().tune(what(), request(), settings.tuner);
  ending.join();
  EXPECT_EQ(text(report.choice), kBest);
  EXPECT_THAT(logged, HasSubstr("waiting for process 4711, which measures on fake:0"));
}

TEST_F(ChainMeasuringTest, WaitingEndsWhenItIsStopped) {
  Measurer other(settings.lock_folder);
  Tuner::Settings stopped = settings.tuner;
  stopped.stop = [] { return true; };
  EXPECT_THROW(chain().tune(what(), request(), stopped), ExecutionError);
}

TEST_F(ChainMeasuringTest, TheLockSaysItsHolderAndOfDeadOnesNothing) {
  std::ofstream(lock()) << "4194304";  // of a holder that was killed, longer than ours may be
  std::string meanwhile;
  Tuner::Settings looking = settings.tuner;
  looking.stop = [&] {
    meanwhile = content(lock());
    return false;
  };
  chain().tune(what(), request(), looking);
  EXPECT_EQ(meanwhile, str(getpid()));
  EXPECT_EQ(content(lock()), "");
}

TEST_F(ChainMeasuringTest, AFileThatSaysSomethingElseIsLockedAndLeftAsItIs) {
  for (const std::string& text :
       {std::string("precious"), std::string("4711\n"), std::string("12345678901")}) {
    std::ofstream(lock()) << text;
    const int other = open(lock().c_str(), O_RDONLY);
    bool is_locked = false;
    Tuner::Settings looking = settings.tuner;
    looking.stop = [&] {
      is_locked = flock(other, LOCK_EX | LOCK_NB) != 0;
      return false;
    };
    chain().tune(what(), request(), looking);
    close(other);
    EXPECT_TRUE(is_locked) << text;
    EXPECT_EQ(content(lock()), text);
    restart();
  }
}

TEST_F(ChainMeasuringTest, WhoHoldsItIsSaidInDigitsAlone) {
  const int other = open(lock().c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  ASSERT_EQ(::write(other, "\x1b[31m7", 6), 6);
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    close(other);
  });
  chain().tune(what(), request(), settings.tuner);
  ending.join();
  EXPECT_THAT(logged, HasSubstr("waiting for another process, which measures on fake:0"));
  EXPECT_EQ(logged.find('\x1b'), std::string::npos);
}

TEST_F(ChainMeasuringTest, WhatIsNoFileIsNoHindranceAndNotOpened) {
  const std::string precious = folder.file("precious");
  const auto tune = [&] {
    restart();
    EXPECT_EQ(text(chain().tune(what(), request(), settings.tuner).choice), kBest);
    std::filesystem::remove(lock());
  };
  ASSERT_EQ(mkfifo(lock().c_str(), 0600), 0);
  const int watch = inotify_init1(IN_NONBLOCK);
  ASSERT_GE(inotify_add_watch(watch, lock().c_str(), IN_OPEN), 0);
  restart();
  chain().tune(what(), request(), settings.tuner);
  inotify_event event{};
  EXPECT_LT(::read(watch, &event, sizeof event), 0) << "it has been opened";
  close(watch);
  tune();
  std::filesystem::create_symlink(precious, lock());
  tune();
  EXPECT_FALSE(std::filesystem::exists(precious));
  std::filesystem::create_symlink("/dev/full", lock());
  tune();
  std::filesystem::create_directory(lock());
  tune();
}

TEST_F(ChainMeasuringTest, AFolderThatCannotBeWrittenIsNoHindrance) {
  settings.lock_folder = "/nonexistent";
  EXPECT_EQ(text(select()), kBest);
}

}  // namespace
}  // namespace attune::test
