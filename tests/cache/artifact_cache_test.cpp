#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/cache/artifact_cache.hpp>
#include <attune/core/log.hpp>

#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;

class ArtifactCacheTest : public ::testing::Test {
 protected:
  ArtifactCacheTest() {
    set_log_sink([this](LogLevel, std::string_view line) { logged += std::string(line) + '\n'; });
  }
  ~ArtifactCacheTest() override { set_log_sink({}); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder.file("artifacts"))) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }

  TemporaryFolder folder;
  std::string logged;
  ArtifactCache cache{folder.file("artifacts"), 1 << 20};
};

TEST_F(ArtifactCacheTest, FindsWhatWasKeptUnderTheSameKeyAlone) {
  EXPECT_EQ(cache.find("key"), std::nullopt);
  const std::string bytes("\0cubin\n", 7);
  cache.keep("key", bytes);
  cache.keep("other key", "");
  EXPECT_EQ(cache.find("key"), bytes);
  EXPECT_EQ(cache.find("other key"), "");
  EXPECT_EQ(cache.find("ke"), std::nullopt);
  cache.keep("key", "newer");
  EXPECT_EQ(cache.find("key"), "newer");
  EXPECT_EQ(ArtifactCache(folder.file("artifacts"), 1).find("key"), "newer");
}

TEST_F(ArtifactCacheTest, ADamagedFileIsNotFoundAndGivesWayToANewOne) {
  const std::string bytes(1000, 'x');
  cache.keep("key", bytes);
  const fs::path file = files().at(0);
  const auto size = fs::file_size(file);
  for (std::uintmax_t at = 0; at < size; at += 7) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
    stream.close();
    EXPECT_EQ(cache.find("key"), std::nullopt) << at;
    EXPECT_FALSE(fs::exists(file)) << at;
    cache.keep("key", bytes);
    ASSERT_EQ(cache.find("key"), bytes) << at;
  }
  for (const std::uintmax_t cut : {size - 1, size / 2, std::uintmax_t{5}, std::uintmax_t{0}}) {
    fs::resize_file(file, cut);
    EXPECT_EQ(cache.find("key"), std::nullopt) << cut;
    cache.keep("key", bytes);
    ASSERT_EQ(cache.find("key"), bytes) << cut;
  }
}

TEST_F(ArtifactCacheTest, StaysWithinItsBoundByRemovingWhatWasUsedLongestAgo) {
  const ArtifactCache small(folder.file("artifacts"), 10'000);
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 8; ++i) {
    small.keep(std::to_string(i), std::string(1000, 'x'));
    for (const fs::path& file : files()) {
      if (fs::last_write_time(file) > now - std::chrono::minutes(1)) {
        fs::last_write_time(file, now - std::chrono::hours(100 - i));
      }
    }
  }
  EXPECT_TRUE(small.find("0"));  // used now
  small.keep("8", std::string(3000, 'x'));
  EXPECT_TRUE(small.find("0"));
  EXPECT_TRUE(small.find("8"));
  EXPECT_FALSE(small.find("1"));
  EXPECT_TRUE(small.find("7"));
  std::uintmax_t bytes = 0;
  for (const fs::path& file : files()) bytes += fs::file_size(file);
  EXPECT_LE(bytes, 10'000U);
  EXPECT_FALSE(small.try_to_keep("too large", std::string(10'001, 'x')));
  EXPECT_FALSE(small.find("too large"));
}

TEST_F(ArtifactCacheTest, WhereNothingCanBeKeptItSaysSoOnceAndGoesOn) {
  std::ofstream(folder.file("file")) << "in the way";
  const ArtifactCache nowhere(folder.file("file/artifacts"), 1 << 20);
  EXPECT_FALSE(nowhere.try_to_keep("key", "bytes"));
  EXPECT_FALSE(nowhere.try_to_keep("another key", "bytes"));
  EXPECT_EQ(nowhere.find("key"), std::nullopt);
  EXPECT_NE(logged.find("compiled kernels are not kept"), std::string::npos) << logged;
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;

  const ArtifactCache none("", 1 << 20);
  EXPECT_FALSE(none.try_to_keep("key", "bytes"));
  EXPECT_EQ(none.find("key"), std::nullopt);
}

TEST_F(ArtifactCacheTest, ItsFolderIsTheUsersAlone) {
  cache.keep("key", "bytes");
  struct stat status {};
  ASSERT_EQ(stat(folder.file("artifacts").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST_F(ArtifactCacheTest, EightProcessesShareAFolder) {
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      const ArtifactCache small(folder.file("artifacts"), 50'000);
      for (int i = 0; i < 200; ++i) {
        const std::string key = std::to_string((i * 7 + child) % 40);
        const std::string bytes(1000 + key.size(), key[0]);
        const auto found = small.find(key);
        if (found && *found != bytes) _exit(1);
        if (!found) small.keep(key, bytes);
      }
      _exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(logged, "");
}

}  // namespace
}  // namespace attune::test
