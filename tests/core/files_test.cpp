// Reading files that somebody else wrote, and replacing whole files.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/input_file.hpp>
#include <attune/core/output_file.hpp>

#include "support/temporary_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr OutputFile::Kind kNotes{
    .name = "note", .is_ours = [](std::string_view head) { return head.starts_with("note:"); }};

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void put(const std::string& path, std::string_view text) { std::ofstream(path) << text; }

void write_whole(const std::string& path, std::string_view text) {
  OutputFile file(path, kNotes);
  file.write(text);
  file.commit();
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

class FilesTest : public testing::Test {
 protected:
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder.path()), {}));
  }
  void make_socket(const std::string& at) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(at.size(), sizeof address.sun_path);
    std::strcpy(address.sun_path, at.c_str());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    close(socket);
  }
  test::TemporaryFolder folder;
  const std::string path = folder.file("a");
};

using InputFileTest = FilesTest;

TEST_F(InputFileTest, ReadsARegularFileByPositionAsTextAndAsAStream) {
  std::string text(100'000, 'x');
  text.replace(50'000, 3, "a\nb");
  put(path, text);
  InputFile file(path);
  EXPECT_EQ(file.size(), text.size());
  EXPECT_EQ(file.owner(), geteuid());
  EXPECT_EQ(file.head(10), "xxxxxxxxxx");
  EXPECT_EQ(file.head(200'000), text);
  EXPECT_EQ(file.text(text.size()), text);
  char three[3];
  file.read_at(50'000, three, 3);
  EXPECT_EQ(std::string_view(three, 3), "a\nb");
  std::istream stream(&file);
  std::string line;
  ASSERT_TRUE(std::getline(stream, line));
  EXPECT_EQ(line.size(), 50'001U);
  ASSERT_TRUE(std::getline(stream, line));
  EXPECT_EQ(line.size(), 100'000U - 50'002U);
  EXPECT_FALSE(std::getline(stream, line));
}

TEST_F(InputFileTest, IsBoundedByItsReader) {
  put(path, "12345");
  const InputFile file(path);
  EXPECT_EQ(file.text(5), "12345");
  EXPECT_THAT(refusal([&] { static_cast<void>(file.text(4)); }), HasSubstr("larger than 4 bytes"));
  char six[6];
  EXPECT_THAT(refusal([&] { file.read_at(0, six, 6); }), HasSubstr("ended"));
  // The size that a file of the system says is 0: what counts is what is read.
  EXPECT_THAT(refusal([&] { static_cast<void>(InputFile("/proc/self/maps").text(16)); }),
              HasSubstr("larger than 16"));
}

TEST_F(InputFileTest, RefusesWhatIsNoRegularFileWithoutWaiting) {
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  make_socket(folder.file("socket"));
  fs::create_symlink("/dev/zero", folder.file("zero"));
  fs::create_symlink("nothing", folder.file("loose"));
  EXPECT_THAT(refusal([&] { InputFile file(folder.file("fifo")); }),
              HasSubstr("not a regular file but a FIFO"));
  EXPECT_THAT(refusal([&] { InputFile file(folder.file("socket")); }),
              HasSubstr("not a regular file but a socket"));
  EXPECT_THAT(refusal([&] { InputFile file(folder.file("zero")); }),
              HasSubstr("not a regular file but a device"));
  EXPECT_THAT(refusal([&] { InputFile file(folder.path().string()); }),
              HasSubstr("not a regular file but a folder"));
  EXPECT_THAT(refusal([&] { InputFile file(folder.file("loose")); }), HasSubstr("No such file"));
  EXPECT_THAT(refusal([&] { InputFile file(""); }), HasSubstr("cannot be opened"));
}

TEST_F(InputFileTest, FollowsALinkUnlessToldNotTo) {
  put(path, "text");
  fs::create_symlink(path, folder.file("link"));
  EXPECT_EQ(InputFile(folder.file("link")).text(10), "text");
  EXPECT_THAT(refusal([&] { InputFile file(folder.file("link"), FileLinks::kRefuse); }),
              HasSubstr("but a symbolic link"));
}

using OutputFileTest = FilesTest;

TEST_F(OutputFileTest, TakesItsPlaceAsAWholeAndOnlyWhenCommitted) {
  {
    OutputFile file(path, kNotes);
    file.write("note: one");
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(entries(), 0U);
  write_whole(path, "note: one");
  {
    OutputFile file(path, kNotes);
    file.write("note: half of");
    EXPECT_EQ(content_of(path), "note: one");
  }
  EXPECT_EQ(content_of(path), "note: one");
  write_whole(path, "note: two");
  EXPECT_EQ(content_of(path), "note: two");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputFileTest, LeavesAFileOfAnotherKindAlone) {
  put(path, "a letter");
  EXPECT_THAT(refusal([&] { write_whole(path, "note: one"); }), HasSubstr("is no note"));
  EXPECT_EQ(content_of(path), "a letter");
  EXPECT_EQ(entries(), 1U);
  put(path, "");
  write_whole(path, "note: one");
  EXPECT_EQ(content_of(path), "note: one");
}

TEST_F(OutputFileTest, RefusesWhatIsNoFileAndLeavesItThere) {
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  make_socket(folder.file("socket"));
  fs::create_symlink("nothing", folder.file("loose"));
  fs::create_directory(folder.file("folder"));
  fs::create_symlink("fifo", folder.file("to-fifo"));
  for (const char* name : {"fifo", "socket", "loose", "folder", "to-fifo", "no/such"}) {
    EXPECT_NE(refusal([&] { write_whole(folder.file(name), "note:"); }), "") << name;
  }
  EXPECT_THAT(refusal([&] { write_whole("/dev/tty", "note:"); }), HasSubstr("/dev/tty"));
  EXPECT_NE(refusal([&] { write_whole("", "note:"); }), "");
  EXPECT_TRUE(fs::is_fifo(folder.file("fifo")));
  EXPECT_TRUE(fs::is_socket(folder.file("socket")));
  EXPECT_TRUE(fs::is_symlink(folder.file("loose")));
  EXPECT_TRUE(fs::is_symlink(folder.file("to-fifo")));
  EXPECT_EQ(entries(), 5U);
}

TEST_F(OutputFileTest, WritesToTheDevicesThatSwallowBytes) {
  write_whole("/dev/null", "note:");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THAT(refusal([] { write_whole("/dev/full", "note:"); }), HasSubstr("No space left"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(OutputFileTest, FollowsALinkAndKeepsTheMode) {
  const std::string file = folder.file("file");
  put(file, "note: old");
  fs::create_symlink("file", path);
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  write_whole(path, "note: new");
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(content_of(file), "note: new");
  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
}

TEST_F(OutputFileTest, KeepsTheOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  put(path, "note: old");
  constexpr uid_t kOther = 12345;
  ASSERT_EQ(chown(path.c_str(), kOther, kOther), 0);
  write_whole(path, "note: new");
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kOther);
  EXPECT_EQ(status.st_gid, kOther);
  EXPECT_EQ(content_of(path), "note: new");
}

/// Runs `f` in a child that is not root; what it gives is the exit status.
template <class F>
int as_nobody(F&& f) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    const bool dropped = setgid(kNobody) == 0 && setuid(kNobody) == 0;
    _exit(dropped ? f() : 99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

TEST_F(OutputFileTest, ThatCannotKeepTheOwnerOrMayNotBeWrittenIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  put(path, "note: old");
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const auto write = [&] {
    return refusal([&] { write_whole(path, "note: new"); }).empty() ? 0 : 1;
  };
  EXPECT_EQ(as_nobody(write), 1);
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(as_nobody(write), 1);
  EXPECT_EQ(content_of(path), "note: old");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(as_nobody(write), 0);
  EXPECT_EQ(content_of(path), "note: new");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputFileTest, IsNotWhatStandardOutputGoesTo) {
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(file, STDOUT_FILENO);
    const std::string link = refusal([] { write_whole("/dev/stdout", "note:"); });
    _exit(link.find("standard output") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(OutputFileTest, RemovesWhatAKilledWriterLeftAndNothingElse) {
  const pid_t child = fork();
  if (child == 0) {
    OutputFile file(path, kNotes);
    file.write("note: half");
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  ASSERT_EQ(entries(), 1U);
  OutputFile living(path, kNotes);  // of this process: it has a lock
  put(folder.file("a.1.attune-tmp"), "not a temporary's name");
  put(folder.file("a.1.2.3.attune-tmp"), "neither");
  put(folder.file("b.1.2.attune-tmp"), "of another file");
  write_whole(path, "note: whole");
  EXPECT_EQ(entries(), 5U);  // these three, the living one's, and the file
  living.write("note: later");
  living.commit();
  EXPECT_EQ(content_of(path), "note: later");
  EXPECT_EQ(entries(), 4U);
}

TEST_F(OutputFileTest, WithAFullDiskLeavesWhatWasThere) {
  put(path, "note: old");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(refusal([&] { write_whole(path, std::string(1000, 'x')); }).empty() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content_of(path), "note: old");
  EXPECT_EQ(entries(), 1U);
}

}  // namespace
}  // namespace attune
