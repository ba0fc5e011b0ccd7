// Recordings: files of problems that nothing was tuned for, and how often they came
// (ATTUNE_RECORD). One JSON object a line; people may add lines of their own, under flock(2) while
// programs record: comments that begin with '#', and specs.
//
// A file is taken for a recording when its first line that is neither blank nor a comment is a JSON
// object with a string "op", and lies within the first 16 KiB. No other file is added to, but an
// empty one. Symbolic links are followed; recordings end at 16 MiB.
#pragma once

#include <string>

#include <attune/core/input_file.hpp>

namespace attune {

/// Throws FileError, which says why, when problems cannot be recorded into `path`: what is there is
/// no regular file, no recording, full, or may not be written; or nothing is there, and no file can
/// be made. Changes nothing.
void check_recording(const std::string& path);

}  // namespace attune
