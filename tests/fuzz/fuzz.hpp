// Fuzz targets: each defines LLVMFuzzerTestOneInput for libFuzzer (preset `fuzz`). In every other
// build the same program runs the files of its corpus, which keeps what was found from coming back.
//
// A target refuses bad input by the exceptions that the code under test documents. Any other
// exception, a crash, a sanitizer's report or a broken expect() is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attune::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the program with what was expected, so that the input is kept.
inline void expect(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "expected: " << what << '\n';
  std::abort();
}

}  // namespace attune::fuzz
