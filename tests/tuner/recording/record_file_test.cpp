// A recording grows by its recorders' lines, and by nothing else does it change.
#include "recording/record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/tuner/recording.hpp>

#include "cache/child_process.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using chain::append_recorded;
using chain::sum_recorded;
using testing::HasSubstr;

const std::string kLine =
    "{\"op\":\"a\",\"T\":1,\"recorded\":{\"platform\":\"auto\",\"hits\":3}}\n";

class RecordFile : public testing::Test {
 protected:
  std::string text() const { return text_of(path); }
  static std::string text_of(const std::string& file_path) {
    std::ifstream file(file_path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(std::string_view text) const { std::ofstream(path, std::ios::binary) << text; }
  /// Fills the file to `size` with lines of one problem, as recorders do.
  void fill(std::size_t size) const {
    std::string lines;
    while (lines.size() < size) lines += kLine;
    std::ofstream(path, std::ios::binary | std::ios::app) << lines;
  }
  /// What append_recorded() and check_recording() say alike.
  std::string refusal(const std::string& where) const {
    std::string said;
    try {
      check_recording(where);
    } catch (const FileError& error) {
      said = error.what();
    }
    try {
      append_recorded(where, kLine);
      EXPECT_EQ(said, "");
    } catch (const FileError& error) {
      EXPECT_NE(said, "") << error.what();
    }
    return said;
  }

  TemporaryFolder folder;
  std::string path = folder.file("shapes.jsonl");
};

TEST_F(RecordFile, StaysSmallHoweverOftenAProblemComes) {
  const std::size_t times = (std::size_t{3} << 20) / kLine.size();
  for (std::size_t i = 0; i < times; ++i) ASSERT_TRUE(append_recorded(path, kLine));
  EXPECT_LT(std::filesystem::file_size(path), std::size_t{1} << 20);
  const std::string sums = sum_recorded(text());
  EXPECT_EQ(nlohmann::json::parse(sums).at("recorded").at("hits"), 3 * times);
}

TEST_F(RecordFile, LeavesATornLineBehind) {
  const std::string line = "{\"op\":\"a\",\"recorded\":{\"hits\":2}}\n";
  std::ofstream(path) << line << "{\"op\":\"a\",\"reco";
  EXPECT_TRUE(append_recorded(path, line));
  EXPECT_EQ(sum_recorded(text()),
            "{\"op\":\"a\",\"recorded\":{\"hits\":4}}\n{\"op\":\"a\",\"reco\n");
}

TEST_F(RecordFile, OfManyProcessesHasWholeLinesWhileItIsRewritten) {
  const std::string filler(400, 'x');
  constexpr int kProcesses = 4;
  constexpr int kLines = 1500;  // together past 2 MiB: rewritten on the way
  EXPECT_EQ(in_children(kProcesses,
                        [&](int process) {
                          for (int i = 0; i < kLines; ++i) {
                            append_recorded(path, str("{\"op\":\"", process % 2, filler,
                                                      "\",\"recorded\":{\"hits\":1}}\n"));
                          }
                          return true;
                        }),
            kProcesses);
  const std::string sums = sum_recorded(text());
  std::istringstream lines(sums);
  std::int64_t total = 0;
  for (std::string line; std::getline(lines, line);) {
    total += nlohmann::json::parse(line).at("recorded").at("hits").get<std::int64_t>();
  }
  EXPECT_EQ(total, kProcesses * kLines);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST_F(RecordFile, OfRecordersAddsUpAndOfOthersStaysAsItIs) {
  const std::string first =
      "# shapes of the service\n"
      "\n"
      "  {\"op\":\"b\", \"T\":[1,2]}\n";
  const std::string others =
      "recurrent_attention T=512 H=4\n"
      "{\"op\":\"a\",\"T\":1,\"recorded\":{\"platform\":\"auto\",\"hits\": 3}}\n"  // a space
      "{\"op\":\"a\",\"T\":1,\"recorded\":{\"hits\":3,\"platform\":\"auto\"}}\n"
      "{\"op\":\"a\",\"x\":{\"hits\":3}}\n"
      "{\"op\":\"a\",\"x\":[1],\"recorded\":{\"hits\":3}}\n"
      "{\"op\":1,\"recorded\":{\"hits\":3}}\n"
      "{\"op\":\"a\",\"recorded\":{\"hits\":3.0}}\n"
      "{\"op\":\"a\",\"recorded\":{\"hits\":-3}}\n"
      "{\"op\":\"a\",\"recorded\":{\"hits\":03}}\n"
      "{\"op\":\"a\",\"recorded\":{\"hits\":18446744073709551616}}\n"
      "{\"op\":\"a\",\"recorded\":{\"x\\\"hits\":3}}\n"
      "{\"op\":\"a\",\"recorded\":{\"hits\":3}}\r\n"
      "{\"op\":\"a\",\"T\":1,\"reco\n";
  const std::string other = "{\"op\":\"a\",\"recorded\":{\"hits\":1}}\n";
  EXPECT_EQ(sum_recorded(first + kLine + others + other + kLine + "# end\n" + kLine + others),
            first + "{\"op\":\"a\",\"T\":1,\"recorded\":{\"platform\":\"auto\",\"hits\":9}}\n" +
                others + other + "# end\n" + others);
}

TEST_F(RecordFile, CountsDoNotWrapAround) {
  const auto of = [](std::uint64_t hits) {
    return str("{\"op\":\"a\",\"recorded\":{\"hits\":", hits, "}}\n");
  };
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(sum_recorded(of(kMost - 5) + of(5)), of(kMost));
  EXPECT_EQ(sum_recorded(of(kMost - 5) + of(6)), of(kMost));
}

TEST_F(RecordFile, LinesOfAnyDepthAndNumberAreReadInOneGo) {
  const std::string end = "\"hits\":1}}";
  for (const std::string& deep : {std::string(16U << 20U, '['), std::string(16U << 20U, '\n'),
                                  "{\"op\":\"a\",\"x\":" + std::string(4U << 20U, '[') +
                                      std::string(4U << 20U, ']') + ",\"recorded\":{" + end,
                                  std::string(16U << 20U, '[') + end}) {
    EXPECT_EQ(sum_recorded(deep), deep);
  }
}

TEST_F(RecordFile, KeepsLinesOfOthersAndItsModeWhenItIsRewritten) {
  const std::string spec = "{\"op\":\"by_hand\",\"T\":[1,2]}\n";
  const std::string comment = "# mine\n";
  put(spec);
  ASSERT_EQ(chmod(path.c_str(), 0664), 0);
  std::size_t sizes = 0;
  for (const std::size_t limit : {1U << 20U, 2U << 20U, 4U << 20U, 8U << 20U}) {
    std::ofstream(path, std::ios::app) << comment;
    fill(limit - std::filesystem::file_size(path) - kLine.size() + 1);
    ASSERT_TRUE(append_recorded(path, kLine));
    EXPECT_LT(std::filesystem::file_size(path), 1000U) << limit;
    EXPECT_EQ(text().substr(0, spec.size()), spec);
    EXPECT_EQ(text().find("by_hand"), text().rfind("by_hand"));
    ++sizes;
  }
  EXPECT_THAT(text(), testing::EndsWith(comment));
  std::size_t comments = 0;
  for (std::size_t at = 0; (at = text().find(comment, at)) != std::string::npos; ++at) ++comments;
  EXPECT_EQ(comments, sizes);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0664U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST_F(RecordFile, KeepsItsOwnerWhenItIsRewritten) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  fill((1U << 20U) - kLine.size());
  ASSERT_EQ(chown(path.c_str(), 12345, 12346), 0);
  ASSERT_TRUE(append_recorded(path, kLine));
  EXPECT_LT(std::filesystem::file_size(path), 1000U);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345U);
  EXPECT_EQ(status.st_gid, 12346U);
}

TEST_F(RecordFile, IsForItsOwnerAloneWhenItIsMade) {
  ASSERT_TRUE(append_recorded(path, kLine));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(text(), kLine);
}

TEST_F(RecordFile, IsAnEmptyFileOrOneThatBeginsAsARecording) {
  for (const std::string& begin : {std::string(), kLine, "# mine\n\n \t\n" + kLine,
                                   std::string("{\"T\":[[1],2],\"op\":\"b\"}\nT=5\n\x01\x02\n")}) {
    put(begin);
    EXPECT_EQ(refusal(path), "");
    EXPECT_EQ(text(), begin + kLine);
  }
}

TEST_F(RecordFile, OfNothingElseIsAnythingChanged) {
  const std::string notes(70'000, '#');
  for (const std::string& begin :
       {std::string("Dear reader,\n"), std::string("# only a comment\n"), std::string("\n"),
        std::string("{\"op\":1}\n"), std::string("[\"op\"]\n"),
        std::string("{\"a\":{\"op\":\"b\"}}\n"), std::string("{\"op\":\"torn"),
        std::string("SQLite format 3\0...", 19), std::string("recurrent_attention T=5\n") + kLine,
        notes + "\n" + kLine, "{\"op\":\"a\",\"T\":\"" + notes + "\"}\n"}) {
    put(begin);
    EXPECT_THAT(refusal(path), HasSubstr("shapes.jsonl: is there and is no recording")) << begin;
    EXPECT_EQ(text(), begin);
  }
  std::filesystem::resize_file(path, 0);
  std::filesystem::resize_file(path, std::uintmax_t{1} << 30U);  // zeros
  EXPECT_THAT(refusal(path), HasSubstr("is no recording"));
}

TEST_F(RecordFile, IsNoDeviceFolderFifoOrSocket) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refusal(path), path + ": is not a regular file but a FIFO");
  EXPECT_EQ(refusal("/dev/null"), "/dev/null: is not a regular file but a device");
  EXPECT_EQ(refusal("/dev/full"), "/dev/full: is not a regular file but a device");
  EXPECT_EQ(refusal(folder.path()),
            folder.path().string() + ": is not a regular file but a folder");
  const std::string socket_path = folder.file("socket");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(refusal(socket_path), socket_path + ": is not a regular file but a socket");
  close(socket);
  EXPECT_THAT(refusal("/nonexistent/shapes.jsonl"), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal(folder.file("new/")), HasSubstr("new/: cannot be "));
}

TEST_F(RecordFile, ThatMayNotBeWrittenIsRefused) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write to any file";
  put(kLine);
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_THAT(refusal(path), HasSubstr("Permission denied"));
  std::filesystem::remove(path);
  ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
  EXPECT_THAT(refusal(path), HasSubstr("Permission denied"));
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
}

TEST_F(RecordFile, ALinkIsFollowedAndStaysALink) {
  const std::string target = folder.file("target");
  std::filesystem::create_symlink(target, path);
  EXPECT_EQ(refusal(path), path + ": cannot be opened: No such file or directory");
  EXPECT_FALSE(std::filesystem::exists(target));
  std::ofstream(target) << kLine;
  fill((1U << 20U) - 2 * kLine.size());
  ASSERT_TRUE(append_recorded(path, kLine));
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_LT(std::filesystem::file_size(target), 1000U) << "rewritten where it is";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST_F(RecordFile, CheckingOneMakesNothing) {
  check_recording(path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RecordFile, EndsAt16MiB) {
  const std::string comment(std::size_t{1} << 20U, '#');
  put(kLine);
  for (int i = 0; i < 15; ++i) std::ofstream(path, std::ios::app) << comment << '\n';
  const std::size_t most = std::size_t{16} << 20U;
  const std::size_t left = most - std::filesystem::file_size(path) - kLine.size();
  std::ofstream(path, std::ios::app) << std::string(left - 1, '#') << '\n';
  const std::string before = text();
  EXPECT_TRUE(append_recorded(path, kLine)) << "to the last byte";
  EXPECT_EQ(std::filesystem::file_size(path), most);
  EXPECT_FALSE(append_recorded(path, kLine));
  EXPECT_EQ(text(), before + kLine);
  EXPECT_THROW(check_recording(path), FileError);
}

TEST_F(RecordFile, AWriterThatFailsLeavesItAsItWas) {
  put(kLine);
  EXPECT_TRUE(in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kLine.size() + 10, kLine.size() + 10};  // the next line is cut short
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    try {
      append_recorded(path, kLine);
    } catch (const FileError& error) {
      return std::string_view(error.what()).find("cannot be written") != std::string_view::npos;
    }
    return false;
  }));
  EXPECT_EQ(text(), kLine);
}

TEST_F(RecordFile, IsNotWaitedForWithoutEnd) {
  put(kLine);
  const int other = open(path.c_str(), O_RDONLY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_THROW(append_recorded(path, kLine, std::chrono::milliseconds(20)), FileError);
  EXPECT_EQ(text(), kLine);
  close(other);
  EXPECT_TRUE(append_recorded(path, kLine, std::chrono::milliseconds(20)));
}

TEST_F(RecordFile, StaysLargeAndWholeWhereItCannotBeRewritten) {
  fill((1U << 20U) - kLine.size());
  EXPECT_TRUE(in_child([&] {
    // The file is where standard output goes.
    const int file = open(path.c_str(), O_WRONLY | O_APPEND);
    return dup2(file, STDOUT_FILENO) >= 0 && append_recorded(path, kLine);
  }));
  EXPECT_GE(std::filesystem::file_size(path), 1U << 20U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace attune::test
