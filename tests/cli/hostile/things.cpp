#include "things.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace attune::test {
namespace {

namespace fs = std::filesystem;
using State = DatabaseStates::State;
using Needs = Thing::Needs;

constexpr const char* kText =
    "Minutes of a meeting.\n\x1b[31mred\x1b[0m \x07 and a tab\there, and nothing for attune.\n";

void check(int result, const std::string& path) {
  if (result != 0) throw std::runtime_error("cannot make " + path);
}

void text(const std::string& path) { std::ofstream(path) << kText; }
void fifo(const std::string& path) { check(mkfifo(path.c_str(), 0644), path); }

void folder(const std::string& path) {
  fs::create_directory(path);
  text(path + "/minutes.txt");
}

void socket_file(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int end = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(bind(end, reinterpret_cast<const sockaddr*>(&address), sizeof address), path);
  close(end);
}

void zeros(const std::string& path) {
  std::ofstream(path).close();
  fs::resize_file(path, std::uintmax_t{1} << 30);
}

std::function<void(const std::string&)> link_to(const std::string& target) {
  return [target](const std::string& path) { fs::create_symlink(target, path); };
}

/// A link to a thing of its own, beside it.
std::function<void(const std::string&)> link_to(void (*make)(const std::string&)) {
  return [make](const std::string& path) {
    make(path + ".target");
    fs::create_symlink(fs::path(path).filename().string() + ".target", path);
  };
}

std::function<void(const std::string&)> node(mode_t type, unsigned major, unsigned minor) {
  return [=](const std::string& path) {
    check(mknod(path.c_str(), type | 0666, makedev(major, minor)), path);
  };
}

void closed_folder(const std::string& path) {
  const std::string folder = path + ".closed";
  fs::create_directory(folder);
  text(folder + "/file");
  fs::create_symlink(fs::path(folder).filename() / "file", path);
  check(chmod(folder.c_str(), 0), folder);
}

}  // namespace

std::vector<Thing> all_things(const DatabaseStates& states) {
  const auto database = [&states](State state) {
    return [&states, state](const std::string& path) { states.put(state, path); };
  };
  const auto with_mode = [](auto make, mode_t mode) {
    return [=](const std::string& path) {
      make(path);
      check(chmod(path.c_str(), mode), path);
    };
  };
  // The folder is closed to writers as well, so that nothing may be put beside the file.
  const auto in_a_read_only_folder = [](auto make) {
    return [=](const std::string& path) {
      make(path);
      check(chmod(path.c_str(), 0444), path);
      const std::string around = fs::path(path).parent_path();
      check(chmod(around.c_str(), 0555), around);
    };
  };
  constexpr unsigned kNoSuchDriver = 240;  // of those for local use: nothing answers
  const auto sound = database(State::kSound);
  const auto hot = database(State::kHotJournal);
  return {
      {"nothing", Nature::kNothing, [](const std::string&) {}},
      {"0 bytes", Nature::kEmpty, [](const std::string& path) { std::ofstream(path).close(); }},
      {"text", Nature::kForeign, text},
      {"1 GiB of zeros", Nature::kForeign, zeros},
      {"another program's SQLite file", Nature::kForeign,
       [&states](const std::string& path) { states.put_another_programs(path); }},
      {"text, read-only", Nature::kForeign, with_mode(text, 0444)},
      {"text, write-only", Nature::kClosed, with_mode(text, 0222)},
      {"text of another owner",
       Nature::kForeign,
       [](const std::string& path) {
         text(path);
         constexpr uid_t kNobody = 65534;
         check(chown(path.c_str(), kNobody, kNobody), path);
       },
       {},
       Needs::kRoot},
      {"a folder", Nature::kNoFile, folder},
      {"a FIFO", Nature::kNoFile, fifo},
      {"a socket", Nature::kNoFile, socket_file},
      {"a device like /dev/null", Nature::kSink, node(S_IFCHR, 1, 3), {}, Needs::kRoot},
      {"a device like /dev/zero", Nature::kSink, node(S_IFCHR, 1, 5), {}, Needs::kRoot},
      {"a device like /dev/full", Nature::kFullDevice, node(S_IFCHR, 1, 7), {}, Needs::kRoot},
      {"a block device", Nature::kNoFile, node(S_IFBLK, kNoSuchDriver, 0), {}, Needs::kRoot},
      {"a link to /dev/null", Nature::kSink, link_to("/dev/null"), {}, Needs::kPrivateDevices},
      {"a link to /dev/zero", Nature::kSink, link_to("/dev/zero"), {}, Needs::kPrivateDevices},
      {"a link to /dev/full",
       Nature::kFullDevice,
       link_to("/dev/full"),
       {},
       Needs::kPrivateDevices},
      {"a link to standard output", Nature::kStandardOutput, link_to("/proc/self/fd/1")},
      {"a link to text", Nature::kForeign, link_to(text)},
      {"a link to a folder", Nature::kNoFile, link_to(folder)},
      {"a link to a FIFO", Nature::kNoFile, link_to(fifo)},
      {"a link to a socket", Nature::kNoFile, link_to(socket_file)},
      {"a link that leads nowhere", Nature::kNoFile, link_to("nowhere")},
      {"a link to itself", Nature::kNoFile,
       [](const std::string& path) { fs::create_symlink(fs::path(path).filename(), path); }},
      {"a link into a closed folder", Nature::kClosed, closed_folder},
      {"a database", Nature::kDatabase, sound, State::kSound},
      {"a database, read-only", Nature::kReadOnly, with_mode(sound, 0444), State::kSound},
      {"a database in a read-only folder", Nature::kReadOnly, in_a_read_only_folder(sound),
       State::kSound},
      {"a database, write-only", Nature::kClosed, with_mode(sound, 0222)},
      {"a database in WAL mode", Nature::kDatabase, database(State::kQuietWal), State::kQuietWal},
      {"a database with the -wal of a killed program", Nature::kDatabase,
       database(State::kWalOfTheDead), State::kWalOfTheDead},
      {"a database with a hot journal", Nature::kDatabase, hot, State::kHotJournal},
      {"a hot journal in a read-only folder", Nature::kReadOnly, in_a_read_only_folder(hot),
       State::kHotJournal},
      {"a database beside a foreign journal", Nature::kDatabase, database(State::kForeignJournal),
       State::kForeignJournal},
      {"a database beside a foreign -wal", Nature::kDatabase, database(State::kForeignWal),
       State::kForeignWal},
      {"nothing beside a foreign journal",
       Nature::kNothing,
       [&states](const std::string& path) { states.put_foreign_journal(path); },
       {},
       Needs::kNothing,
       true},
      {"nothing beside a foreign -wal",
       Nature::kNothing,
       [&states](const std::string& path) { states.put_foreign_wal(path); },
       {},
       Needs::kNothing,
       true},
  };
}

void open_closed_folders(const std::string& folder) {
  chmod(folder.c_str(), 0700);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.symlink_status().type() == fs::file_type::directory) {
      open_closed_folders(entry.path());
    }
  }
}

}  // namespace attune::test
