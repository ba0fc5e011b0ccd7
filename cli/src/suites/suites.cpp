#include "suites/suites.hpp"

#include <algorithm>
#include <string>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

#include "output/text.hpp"
#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

bool has_words(const SuiteRow& row, const std::vector<std::string>& wanted) {
  std::vector<std::string> words = words_of(row, row.ops.front());
  words.insert(words.end(), row.ops.begin(), row.ops.end());
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

}  // namespace

double gpu_copy_bytes_per_us(const DeviceInfo& gpu) {
  constexpr double kH100CopyBytesPerUs = 2.98e6;  // with HBM3, not of PCIe
  return gpu.name == "NVIDIA H100 80GB HBM3" ? kH100CopyBytesPerUs : kH200CopyBytesPerUs;
}

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all{h200_suite(),  cpu_suite(),    models_suite(),
                                      serve_suite(), cliffs_suite(), untuned_suite()};
  return all;
}

const Suite& find_suite(std::string_view name) {
  std::vector<std::string> known;
  for (const Suite& suite : suites()) {
    if (suite.name == name) return suite;
    known.emplace_back(suite.name);
  }
  throw UsageError(
      str("--suite '", name, "': expected ", join(known, ", "), did_you_mean(name, known)));
}

std::vector<SuiteRow> rows_with(const Suite& suite, const std::vector<std::string>& words) {
  std::vector<SuiteRow> rows = suite.rows;
  std::erase_if(rows, [&](const SuiteRow& row) { return !has_words(row, words); });
  if (rows.empty()) {
    throw UsageError(str("--suite ", suite.name, ": no row has '", join(words, " "),
                         "' among its ops and fields"));
  }
  return rows;
}

std::string ops_text(const SuiteRow& row) {
  return join(std::vector<std::string>(row.ops.begin(), row.ops.end()), " + ");
}

std::vector<std::string> words_of(const SuiteRow& row, std::string_view op) {
  std::vector<std::string> words{std::string(op)};
  for (const Param& field : parse_params(row.spec, ' ')) {
    words.push_back(str(field.name, '=', field.value));
  }
  return words;
}

}  // namespace attune::cli
