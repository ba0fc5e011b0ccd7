// How often this thread has allocated, for claims that something does not. A program that lists
// allocation_count.cpp among its sources gets counting versions of operator new and delete.
#pragma once

#include <cstddef>

namespace attune::test {

std::size_t allocation_count();

}  // namespace attune::test
