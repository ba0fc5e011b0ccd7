// Where verbs write: --output and its like, looked at before anything is run or written.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <attune/core/output_file.hpp>

namespace attune::cli {

/// Whether two paths lead to one file, be it there or not.
bool same_file(const std::string& a, const std::string& b);

/// Throws UsageError, naming `option`, when `path` is one of `inputs`: what is read is not written.
void check_not_an_input(std::string_view option, const std::string& path,
                        std::span<const std::string> inputs);

/// Throws ExecutionError, naming `option`, when the path may not be written.
std::unique_ptr<OutputFile> open_output(std::string_view option, const std::string& path,
                                        const OutputFile::Kind& kind);

}  // namespace attune::cli
