// A store over files in a folder of the test's own, and the warnings it gives.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <attune/cache/config_store.hpp>
#include <attune/core/log.hpp>

#include "sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {

inline const std::string kBucket = sample_row(0).bucket;

class StoreFixture : public ::testing::Test {
 protected:
  StoreFixture() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) warnings.emplace_back(line);
    });
  }
  ~StoreFixture() override { set_log_sink({}); }

  StoreSettings settings() const {
    return {user, {folder.file("site.db")}, {folder.file("shipped.db")}, false};
  }
  StoreSettings user_only() const { return {user, {}, {}, false}; }

  void fill(const std::string& path, std::initializer_list<ConfigRow> rows) const {
    ConfigDatabase db(path, ConfigDatabase::Mode::kReadWrite);
    for (const ConfigRow& row : rows) db.put(row);
  }
  static ConfigRow row_of(std::int64_t i, const std::string& config) {
    ConfigRow row = sample_row(i);
    row.config = config;
    return row;
  }

  TemporaryFolder folder;
  std::string user = folder.file("home/attune.db");
  std::vector<std::string> warnings;
};

}  // namespace attune::test
