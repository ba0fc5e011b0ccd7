#include "support/allocation_count.hpp"

#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
thread_local std::size_t count = 0;
thread_local std::size_t fails_at = kNever;

void* allocate(std::size_t bytes) {
  return count++ == fails_at ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* memory = allocate(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace attune::test {

std::size_t allocation_count() { return count; }

FailingAllocation::FailingAllocation(std::size_t n) { fails_at = count + n; }
FailingAllocation::~FailingAllocation() { fails_at = kNever; }
bool FailingAllocation::has_failed() const { return count > fails_at; }

}  // namespace attune::test
