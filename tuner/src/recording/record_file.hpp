// The file that recorders append to, which people may write to as well.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <attune/tuner/recording.hpp>

namespace attune::chain {

/// Appends a line, its line feed included, under the file's lock; makes the file when it is not
/// there (mode 0600, for it tells what its owner computes), and rewrites it as sum_recorded() when
/// it has grown large. False when it is full. Throws FileError for what check_recording() refuses,
/// and when others hold the lock for longer than `patience`; then the file is as it was.
bool append_recorded(const std::string& path, std::string_view line,
                     std::chrono::milliseconds patience = std::chrono::seconds(10));

/// `text` with the lines that recorders append added up: one a problem, where the first one stood.
/// Every other line stays as it is, byte for byte: comments, specs, halves of lines.
std::string sum_recorded(std::string_view text);

}  // namespace attune::chain
