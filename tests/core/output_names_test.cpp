// Which names beside a file are taken for its temporaries, and whose it stays.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <attune/core/output_file.hpp>

#include "support/temporary_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr OutputFile::Kind kAnything{.name = "text",
                                     .is_ours = [](std::string_view) { return true; }};

class OutputNames : public testing::Test {
 protected:
  void write_whole() const {
    OutputFile file(path, kAnything);
    file.write("new");
    file.commit();
  }
  test::TemporaryFolder folder;
  std::string path = folder.file("notes");
};

TEST_F(OutputNames, AreTemporariesOnlyWithAProcessAndANumber) {
  for (const char* name : {"notes.attune-tmp", "notes..attune-tmp", "notes.1.attune-tmp",
                           "notes.1.2.3.attune-tmp", "notes.a.1.attune-tmp", "notes.1.2.attune",
                           "notes.1.2.attune-tmp.txt", "xnotes.1.2.attune-tmp"}) {
    const std::string other = folder.file(name);
    std::ofstream(other) << "somebody else's";
    write_whole();
    EXPECT_TRUE(fs::exists(other)) << name;
    fs::remove(other);
  }
  const std::string dead = folder.file("notes.1.2.attune-tmp");
  std::ofstream(dead) << "half";
  write_whole();
  EXPECT_FALSE(fs::exists(dead));
}

TEST_F(OutputNames, AFolderOfATemporarysNameIsLeft) {
  const std::string other = folder.file("notes.1.2.attune-tmp");
  fs::create_directory(other);
  write_whole();
  EXPECT_TRUE(fs::is_directory(other));
}

TEST_F(OutputNames, AFileOfAnotherOwnerInTheSameGroupStaysTheirs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr uid_t kSomebody = 12'345;
  std::ofstream(path) << "old";
  ASSERT_EQ(chown(path.c_str(), kSomebody, getegid()), 0);
  write_whole();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kSomebody);
  ASSERT_EQ(chown(path.c_str(), geteuid(), 12'346), 0);
  write_whole();
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_gid, 12'346U);
}

}  // namespace
}  // namespace attune
