// Options: a table of what there is, and reading a command line by it.
//
// Every value is kept as text and converted here, so that a message always names the option, and so
// that what general-purpose conversions let pass (NaN, "-1" as an unsigned number) is refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune::cli {

struct OptionInfo {
  std::string_view name;   // "budget"
  char letter = '\0';      // 'o' for -o
  std::string_view value;  // what it takes: "TIME"; "" for a flag
  std::string_view help;
  bool repeatable = false;
};

/// The options that every verb has, with one meaning everywhere.
std::span<const OptionInfo> global_options();

/// "--budget", "-o, --output-format".
std::string option_names(const OptionInfo& option);

class Options {
 public:
  /// Reads `arguments`. What is no option and no option's value is appended to `words`. Throws
  /// UsageError for an unknown option, one given twice, or one without its value.
  static Options parse(const std::vector<std::string>& arguments, std::span<const OptionInfo> known,
                       std::vector<std::string>& words);

  bool flag(std::string_view name) const { return values_.contains(name); }
  std::optional<std::string> text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;

  // Each throws UsageError, naming the option and what was expected.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least,
                                      std::int64_t most) const;
  std::optional<double> real(std::string_view name) const;
  std::optional<std::chrono::milliseconds> duration(std::string_view name) const;
  std::optional<std::string> one_of(std::string_view name,
                                    const std::vector<std::string>& legal) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

}  // namespace attune::cli
