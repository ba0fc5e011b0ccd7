// The command line: options of every kind, and the values they are read as. Each line of the input
// is an argument.
#include <string>
#include <vector>

#include "fuzz.hpp"
#include "program/exit_code.hpp"
#include "program/options.hpp"

namespace {

using namespace attune;       // NOLINT(google-build-using-namespace)
using namespace attune::cli;  // NOLINT(google-build-using-namespace)

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Each value as each kind of option reads it; what is refused names its option.
template <class Read>
void read_value(const OptionInfo& option, Read read) {
  try {
    read();
  } catch (const UsageError& error) {
    fuzz::expect(std::string_view(error.what()).find(option.name) != std::string_view::npos,
                 "a refusal that names the option");
  }
}

void read_arguments(const std::vector<std::string>& lines) {
  std::vector<OptionInfo> known(global_options().begin(), global_options().end());
  known.insert(known.end(), {{"input", '\0', "FILE", "a path", false},
                             {"trials", '\0', "N", "a number", false},
                             {"retune", '\0', "", "a flag", false}});
  std::vector<std::string> words;
  const Options options = Options::parse(lines, known, words);
  for (const OptionInfo& option : known) {
    if (option.value.empty() || option.repeatable) continue;
    read_value(option, [&] { static_cast<void>(options.integer(option.name, 0, 1'000'000)); });
    read_value(option, [&] { static_cast<void>(options.real(option.name)); });
    read_value(option, [&] { static_cast<void>(options.duration(option.name)); });
    read_value(option, [&] { static_cast<void>(options.one_of(option.name, {"one", "two"})); });
  }
  fuzz::expect(words.size() <= lines.size(), "no more words than arguments");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string> lines = lines_of(attune::fuzz::text_of(data, size));
  if (lines.empty()) return 0;
  try {
    read_arguments(lines);
  } catch (const UsageError&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
