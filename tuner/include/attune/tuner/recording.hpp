// Recordings (ATTUNE_RECORD): files of the problems that nothing was tuned for, each with the
// number of its calls. One JSON object a line. People may add lines, under flock(2) while programs
// record: problems, and comments that begin with '#'.
//
// A recording is an empty file, or one whose first line that is neither blank nor a comment is a
// JSON object with a string "op" within the first 16 KiB. No other file is added to. Symbolic links
// are followed; recordings end at 16 MiB.
#pragma once

#include <string>

#include <attune/core/input_file.hpp>

namespace attune {

/// Throws FileError with the reason when problems cannot be recorded into `path`: what is there is
/// not a regular file, not a recording, full, or may not be written; or nothing is there, and no
/// file can be made. Changes nothing.
void check_recording(const std::string& path);

}  // namespace attune
