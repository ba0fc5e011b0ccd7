// Which instruction sets this build has CPU kernels for: tests of one that it leaves out skip.
#pragma once

#include <algorithm>
#include <string_view>

namespace attune::test {

/// Whether `isa` is among CMake's ATTUNE_CPU_ISAS.
constexpr bool build_has(std::string_view isa) {
  std::string_view words = ATTUNE_CPU_ISAS;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    if (word == isa) return true;
    words.remove_prefix(std::min(word.size() + 1, words.size()));
  }
  return false;
}

}  // namespace attune::test
