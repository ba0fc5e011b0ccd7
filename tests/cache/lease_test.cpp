// How long a lease may last, and whose it is.
#include "database/lease.hpp"

#include <ctime>

#include <gtest/gtest.h>

#include "database/process_identity.hpp"
#include "database/schema.hpp"
#include "rows/row_cells.hpp"

namespace attune {
namespace {

class LeaseBounds : public testing::Test {
 protected:
  LeaseBounds() { prepare_for_writing(db); }
  std::int64_t rest() { return db.integer("SELECT expires FROM lease") - std::time(nullptr); }
  /// Makes it another machine's, which nobody can ask.
  void give_away(std::int64_t expires_in) {
    db.execute(
        str("UPDATE lease SET boot = 'elsewhere', expires = ", std::time(nullptr) + expires_in));
  }

  sqlite::Db db = sqlite::Db::in_memory();
  const std::string key = key_hash("key");
};

TEST_F(LeaseBounds, LastsFromOneSecondToADay) {
  EXPECT_TRUE(take_lease(db, key, 1));
  EXPECT_LE(rest(), 1);
  EXPECT_TRUE(take_lease(db, key, kLongestLeaseSeconds));
  EXPECT_GT(rest(), kLongestLeaseSeconds - 60);
  EXPECT_THROW(take_lease(db, key, 0), InvalidArgument);
  EXPECT_THROW(take_lease(db, key, kLongestLeaseSeconds + 1), InvalidArgument);
  EXPECT_EQ(db.integer("SELECT count(*) FROM lease"), 1);
}

TEST_F(LeaseBounds, OfAnotherHoldsUntilItEndsAndNotForAges) {
  ASSERT_TRUE(take_lease(db, key, 10));
  give_away(60);
  EXPECT_FALSE(take_lease(db, key, 10));
  give_away(kLongestLeaseSeconds - 60);
  EXPECT_FALSE(take_lease(db, key, 10));
  give_away(-1);
  EXPECT_TRUE(take_lease(db, key, 10));
  give_away(kLongestLeaseSeconds + 60);
  EXPECT_TRUE(take_lease(db, key, 10));
  EXPECT_TRUE(take_lease(db, key_hash("another"), 10));
}

TEST_F(LeaseBounds, IsGivenBackByItsOwnerAlone) {
  ASSERT_TRUE(take_lease(db, key, 10));
  ASSERT_TRUE(take_lease(db, key_hash("another"), 10));
  give_lease_back(db, key);
  EXPECT_EQ(db.integer("SELECT count(*) FROM lease"), 1);
  give_away(60);
  give_lease_back(db, key_hash("another"));
  EXPECT_EQ(db.integer("SELECT count(*) FROM lease"), 1);
}

}  // namespace
}  // namespace attune
