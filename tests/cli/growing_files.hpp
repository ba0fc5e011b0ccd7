// Files with n of something, for tests of what n cost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace attune::test::growing {

/// Makes a file of n things, which begin with the one of number `first`.
using Maker = std::function<void(const std::string& path, std::int64_t first, std::int64_t n)>;
using Text = std::function<std::string(std::int64_t i)>;

inline constexpr std::int64_t kTokens =
    1025;  // T of the first tuned row; to 2048 they share a bucket

// Databases, or their text by the file's name.
void tuned_rows(const std::string& path, std::int64_t first, std::int64_t n);
/// One tuned row with n trials.
void trials(const std::string& path, std::int64_t first, std::int64_t n);
/// Rows of an op that is not loaded, so that little is done with each but what is done with all.
void decisions(const std::string& path, std::int64_t first, std::int64_t n);
void pins(const std::string& path, std::int64_t first, std::int64_t n);
void quarantined(const std::string& path, std::int64_t first, std::int64_t n);

// Tensor files.
void empty_tensors(const std::string& path, std::int64_t first, std::int64_t n);
void file_attributes(const std::string& path, std::int64_t first, std::int64_t n);

/// One line: what stands before and after n elements, which are joined by commas.
Maker elements(const std::string& before, Text element, const std::string& after);
/// n lines and a last one, which may be one that is refused, so that reading is all that is done.
Maker lines(Text line, const std::string& last = "");

/// A problem of a recording made on a device that is not here.
std::string recorded(std::int64_t i);

}  // namespace attune::test::growing
