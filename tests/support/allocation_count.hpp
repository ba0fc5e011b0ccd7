// How often this thread has allocated, for claims that something does not, and memory that runs
// out. A program that lists allocation_count.cpp among its sources gets versions of operator new
// and delete that count and fail.
#pragma once

#include <cstddef>

namespace attune::test {

std::size_t allocation_count();

/// While it lives, this thread's allocation `n` from now fails, once; 0 is the next one.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::size_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  bool has_failed() const;
};

}  // namespace attune::test
