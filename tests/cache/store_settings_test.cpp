// Where databases are looked for, by the environment.
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <attune/cache/config_store.hpp>

namespace attune {
namespace {

/// Sets or unsets a variable until destroyed.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

class StoreSettingsFromEnvironment : public ::testing::Test {
 protected:
  Variable db{"ATTUNE_DB", nullptr};
  Variable system{"ATTUNE_SYSTEM_DB_PATH", nullptr};
  Variable data{"XDG_DATA_HOME", "/data"};
  Variable home{"HOME", "/home/me"};
};

TEST_F(StoreSettingsFromEnvironment, FollowXdg) {
  EXPECT_EQ(default_store_settings().user_path, "/data/attune/attune.db");
  for (const char* ignored : {"", "relative/folder"}) {
    const Variable other("XDG_DATA_HOME", ignored);
    EXPECT_EQ(default_store_settings().user_path, "/home/me/.local/share/attune/attune.db");
  }
  const Variable unset("XDG_DATA_HOME", nullptr);
  EXPECT_EQ(default_store_settings().user_path, "/home/me/.local/share/attune/attune.db");
}

TEST_F(StoreSettingsFromEnvironment, GoWithoutAUserDatabaseWhenThereIsNoHome) {
  const Variable no_data("XDG_DATA_HOME", nullptr);
  for (const char* nowhere : {static_cast<const char*>(nullptr), "", "not/absolute"}) {
    const Variable no_home("HOME", nowhere);
    EXPECT_EQ(default_store_settings().user_path, "");
  }
}

TEST_F(StoreSettingsFromEnvironment, AStoreWithoutAUserDatabaseSaysWhy) {
  const auto reason = [] { return ConfigStore(StoreSettings{}).status().at(0).reason; };
  EXPECT_EQ(reason(), "no user database: this context is to have none");
  const Variable no_data("XDG_DATA_HOME", nullptr), no_home("HOME", nullptr);
  EXPECT_EQ(reason(), "no user database: neither ATTUNE_DB nor HOME is set");
}

TEST_F(StoreSettingsFromEnvironment, TakeAttuneDbFirst) {
  const Variable mine("ATTUNE_DB", "/somewhere/my.db");
  EXPECT_EQ(default_store_settings().user_path, "/somewhere/my.db");
  const Variable relative("ATTUNE_DB", "my.db");
  EXPECT_EQ(default_store_settings().user_path,
            (std::filesystem::current_path() / "my.db").string());
}

TEST_F(StoreSettingsFromEnvironment, SplitTheSystemPathAtColons) {
  EXPECT_TRUE(default_store_settings().site_paths.empty());
  const Variable list("ATTUNE_SYSTEM_DB_PATH", ":/a/db.d::/b.db:");
  EXPECT_EQ(default_store_settings().site_paths, (std::vector<std::string>{"/a/db.d", "/b.db"}));
}

TEST_F(StoreSettingsFromEnvironment, NameShippedDatabasesOnlyWhereThereAreSome) {
  for (const std::string& path : default_store_settings().shipped_paths) {
    EXPECT_TRUE(std::filesystem::is_directory(path)) << path;
  }
  EXPECT_FALSE(default_store_settings().read_only);
}

}  // namespace
}  // namespace attune
