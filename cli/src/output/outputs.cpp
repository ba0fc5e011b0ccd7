#include "output/outputs.hpp"

#include <filesystem>
#include <system_error>

#include "program/exit_code.hpp"

namespace attune::cli {

namespace fs = std::filesystem;

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path real_a = fs::weakly_canonical(a, error);
  if (error) return a == b;
  const fs::path real_b = fs::weakly_canonical(b, error);
  return error ? a == b : real_a == real_b;
}

void check_not_an_input(std::string_view option, const std::string& path,
                        std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    if (same_file(path, input)) {
      throw UsageError(str(option, ": ", input, " is an input, which is not written"));
    }
  }
}

std::unique_ptr<OutputFile> open_output(std::string_view option, const std::string& path,
                                        const OutputFile::Kind& kind) {
  try {
    return std::make_unique<OutputFile>(path, kind);
  } catch (const FileError& error) {
    throw ExecutionError(str(option, ' ', error.what()));
  }
}

}  // namespace attune::cli
