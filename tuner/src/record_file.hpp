// The file that recorders append to.
#pragma once

#include <string>
#include <string_view>

namespace attune::chain {

/// Appends a line, its line feed included, under the file's lock; makes the file when it is not
/// there (mode 0600, for it tells what its owner computes), and rewrites it with one line a problem
/// when it has grown large. False when it is full. Throws ExecutionError, and then the file is as
/// it was.
bool append_recorded(const std::string& path, std::string_view line);

/// The lines of `text` with those of one problem added up, in the order they first came. What is
/// not a line of a recorder is left out.
std::string sum_recorded(std::string_view text);

}  // namespace attune::chain
