// Each kind of thing in each place where attune reads or writes a file, under each verb that does:
// it ends soon, in little memory, with a documented exit status, and what is not attune's is left
// as it was.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "attune_process.hpp"
#include "cache/sample_rows.hpp"
#include "hostile/database_states.hpp"
#include "hostile/folder_snapshot.hpp"
#include "hostile/places.hpp"
#include "hostile/private_devices.hpp"
#include "hostile/things.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHangGuard = "60";       // seconds; what is meant to end takes a tenth of one
constexpr long kMostMemory = long{256} << 10;  // KiB; the largest file here has four times that

/// The sound files that commands are given beside the thing, and the states of databases.
class SoundFiles {
 public:
  SoundFiles() {
    const Outcome tuned =
        here_.run({"tune", "recurrent_attention", "T=8", "H=1", "D=4", "--backend", "cpu",
                   "--budget", "50ms", "--warmup", "0", "--iters", "1", "--isolate", "off"});
    if (tuned.exit_code != 0) throw std::runtime_error(tuned.err);
    DatabaseContent rows = read_database_file(here_.database());
    for (std::int64_t i = 0; i < 20; ++i) rows.decisions.push_back({sample_row(i), {}});
    rows.sort();
    fs::create_directories(inputs());
    for (const char* name : {"rows.db", "rows.jsonl", "rows.csv"})
      write_database_file(inputs() + '/' + name, rows);
    const Outcome ran =
        here_.run({"run", "recurrent_attention", "T=8", "H=1", "D=4", "--backend", "cpu",
                   "--policy", "heuristic", "--output", inputs() + "/in.safetensors"});
    if (ran.exit_code != 0) throw std::runtime_error(ran.err);
    fs::create_directories(here_.file("states"));
    states_ = std::make_unique<DatabaseStates>(here_.file("states"), rows);
  }
  std::string inputs() const { return here_.file("inputs"); }
  const DatabaseStates& states() const { return *states_; }

 private:
  Sandbox here_;
  std::unique_ptr<DatabaseStates> states_;
};

/// One line of the table, for who asks for it: place, thing, exit status, what became of the thing.
void report(const Place& place, const Thing& thing, int status, const std::string& fate) {
  if (const char* path = std::getenv("HOSTILE_FILES_TABLE")) {
    std::ofstream(path, std::ios::app)
        << place.name << '\t' << thing.name << '\t' << status << '\t' << fate << '\n';
  }
}

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  const std::size_t at = text.find(word);
  return at == std::string::npos ? text : text.replace(at, word.size(), by);
}

bool has_control_characters(const std::string& text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < ' ' && c != '\n'; });
}

class HostileFiles : public testing::TestWithParam<Place> {
 protected:
  static void SetUpTestSuite() {
    why_no_devices_ = enter_private_devices();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // Should one read without end after all, it is not to take the machine with it.
    const rlimit bound{rlim_t{2} << 30, rlim_t{2} << 30};
    setrlimit(RLIMIT_DATA, &bound);
#endif
    sound_ = std::make_unique<SoundFiles>();
  }
  static void TearDownTestSuite() { sound_.reset(); }

  /// The command of a place, with the names of the files here.
  Call call_of(const Place& place, const std::string& thing) const {
    Call call;
    const auto fill_in = [&](std::string text) {
      text = replaced(std::move(text), "THING", thing);
      const fs::path folder = fs::path(thing).parent_path();
      text = replaced(std::move(text), "FOLDER", folder);
      text = replaced(std::move(text), "SCRATCH", folder.parent_path());
      text = replaced(std::move(text), "PROGRAM", ATTUNE_PROGRAM);
      return replaced(std::move(text), "INPUTS", sound_->inputs());
    };
    for (const std::string& word : place.arguments) call.arguments.push_back(fill_in(word));
    for (const std::string& word : place.environment) call.environment.push_back(fill_in(word));
    call.environment.push_back("CUDA_VISIBLE_DEVICES=");
    call.under = {"timeout", "-s", "KILL", kHangGuard};
    if (place.by_standard_input) {
      call.under.insert(call.under.end(), {"sh", "-c", "exec \"$@\" < \"$0\"", thing});
    }
    return call;
  }

  void attack(const Place& place, const Thing& thing) const {
    const Sandbox here;
    const std::string folder = here.file("place");
    fs::create_directories(folder);
    const std::string path = folder + '/' + place.file;
    if (place.use == Use::kBeside) {
      sound_->states().put(DatabaseStates::State::kSound, folder + "/mine.db");
    }
    thing.make(path);
    const FolderSnapshot before = snapshot_of(folder);
    const FolderSnapshot inputs = snapshot_of(sound_->inputs());
    const Outcome outcome = here.run(call_of(place, path));
    const auto changed = changes(before, snapshot_of(folder));

    EXPECT_THAT(documented_statuses(place, thing), testing::Contains(outcome.exit_code))
        << (outcome.exit_code == 128 + SIGKILL ? "did not end\n" : "") << outcome.err;
    EXPECT_LE(outcome.peak_kib, kMostMemory);
    EXPECT_FALSE(has_control_characters(outcome.err)) << outcome.err;
    EXPECT_EQ(outcome.out.find(kNeverCommitted), std::string::npos) << "shows what nobody stored";
    EXPECT_THAT(changes(inputs, snapshot_of(sound_->inputs())), testing::IsEmpty());
    std::string fate;
    for (const auto& [name, what] : changed) {
      if (is_own_file(place, name)) continue;
      const bool succeeded = outcome.exit_code == place.done || outcome.exit_code == place.absent;
      const bool expected = succeeded && is_of_thing(place, name) && may_change(place, thing);
      EXPECT_TRUE(expected) << name << ' ' << what;
      fate += (fate.empty() ? "" : "; ") + replaced(name, place.file, "it") + ' ' + what;
    }
    expect_kept(place, thing, path, outcome.exit_code == place.done);
    report(place, thing, outcome.exit_code, fate.empty() ? "left as it was" : fate);
    open_closed_folders(folder);
  }

  /// Files that the command makes or changes beside the thing, whatever that is.
  static bool is_own_file(const Place& place, const std::string& name) {
    if (place.use == Use::kReplacePage) return name != place.file && name.ends_with(".1");
    if (place.use == Use::kBeside && (name == "mine.db" || name == "page.html")) return true;
    const bool keeps_history = place.arguments[0] == "db" && place.arguments[1] == "use";
    if (keeps_history && name.starts_with(place.file + ".history")) return true;
    return name == host_lock_name() && name != place.file;
  }

  /// Whether a name is the thing's, or that of what SQLite keeps beside it.
  static bool is_of_thing(const Place& place, const std::string& name) {
    const std::string& file = place.file;
    return name == file || name == file + "-journal" || name == file + "-wal" ||
           name == file + "-shm";
  }

  /// What a database has after all that was tried.
  static void expect_kept(const Place& place, const Thing& thing, const std::string& path,
                          bool done) {
    using State = DatabaseStates::State;
    if (done && place.use == Use::kReplace && place.file.ends_with(".db")) {
      EXPECT_THAT(decisions_at(path), testing::Not(testing::IsEmpty()));
      EXPECT_THAT(sound_->states().committed(State::kSound),
                  testing::IsSupersetOf(decisions_at(path)))
          << "the output holds what was not written to it";
      return;
    }
    const bool foreign_beside =
        thing.state == State::kForeignJournal || thing.state == State::kForeignWal;
    if (!thing.state || foreign_beside || !fs::is_regular_file(path)) return;
    const std::set<std::string> kept = decisions_at(path);
    EXPECT_THAT(kept, testing::IsSupersetOf(sound_->states().committed(*thing.state)));
    for (const std::string& decision : kept) EXPECT_FALSE(decision.starts_with(kNeverCommitted));
  }

  /// Why the thing is left out here, or "".
  static std::string why_not(const Thing& thing) {
    const bool safe = geteuid() != 0;  // the devices of the machine are not this user's to replace
    const bool can_be = thing.needs == Thing::Needs::kNothing ||
                        (thing.needs == Thing::Needs::kPrivateDevices && safe);
    return can_be ? "" : why_no_devices_;
  }

  static const SoundFiles& sound() { return *sound_; }
  static inline std::string why_no_devices_;

 private:
  static inline std::unique_ptr<SoundFiles> sound_;
};

TEST_P(HostileFiles, AreMetAsDocumentedAndLeftAsTheyWere) {
  std::string left_out;
  for (const Thing& thing : all_things(sound().states())) {
    SCOPED_TRACE(thing.name + " at " + GetParam().name);
    if (!can_be_at(GetParam(), thing)) continue;
    if (!why_not(thing).empty()) {
      left_out += (left_out.empty() ? "" : ", ") + thing.name;
      continue;
    }
    attack(GetParam(), thing);
  }
  if (!left_out.empty()) std::cout << "left out: " << left_out << ": " << why_no_devices_ << '\n';
}

std::string name_of(const testing::TestParamInfo<Place>& info) {
  std::string name;
  for (const char c : info.param.name)
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(At, HostileFiles, testing::ValuesIn(all_places()), name_of);

}  // namespace
}  // namespace attune::test
