#include <algorithm>
#include <charconv>
#include <cmath>

#include <attune/cache/row_request.hpp>
#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {
namespace {

constexpr std::size_t kMostBytes = 64;  // of the column
constexpr std::string_view kObjective = ";objective=";
constexpr std::string_view kWorkspace = ";workspace<=";
constexpr std::string_view kError = ";error<=";

/// As short as reads back as the same.
std::string shortest(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

/// Takes the value behind `name` off the front of `rest`; false when it does not begin so.
bool take(std::string_view& rest, std::string_view name, std::string_view& value) {
  if (!rest.starts_with(name)) return false;
  rest.remove_prefix(name.size());
  value = rest.substr(0, rest.find(';'));
  rest.remove_prefix(value.size());
  return true;
}

template <class Number>
bool read(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string_view objective_of(std::string_view platform) {
  const std::size_t at = platform.find(kObjective);
  if (at == std::string_view::npos) return "";
  platform.remove_prefix(at + kObjective.size());
  return platform.substr(0, platform.find(';'));
}

void check_objective_name(std::string_view name) {
  constexpr std::size_t kMost = 16;
  const bool legal = !name.empty() && name.size() <= kMost && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (legal) return;
  throw InvalidArgument(str("objective '", name, "': expected a name of 1 to ", kMost,
                            " lower-case letters, digits, '_' or '-'"));
}

std::string RowRequest::text() const {
  std::string all = platform;
  if (!objective.empty()) {
    check_objective_name(objective);
    all += str(kObjective, objective);
  }
  if (constraints.workspace_bytes != kNoLimit) all += str(kWorkspace, constraints.workspace_bytes);
  if (std::isnan(constraints.error) || constraints.error < 0) {
    throw InvalidArgument(
        str("constraint: error ", constraints.error, ", expected a number of at least 0"));
  }
  if (constraints.bounds_error()) all += str(kError, shortest(constraints.error));
  if (all.size() > kMostBytes) {
    throw InvalidArgument(str("request '", all, "': ", all.size(), " bytes, expected at most ",
                              kMostBytes, "; give constraints in fewer digits"));
  }
  return all;
}

RowRequest RowRequest::parse(std::string_view text) {
  RowRequest request;
  std::string_view rest = text;
  std::string_view value;
  request.platform = rest.substr(0, rest.find(';'));
  rest.remove_prefix(request.platform.size());
  if (take(rest, kObjective, value)) request.objective = value;
  bool legal = !request.platform.empty();
  if (take(rest, kWorkspace, value)) legal &= read(value, request.constraints.workspace_bytes);
  if (take(rest, kError, value)) legal &= read(value, request.constraints.error);
  if (!legal || !rest.empty() || request.text() != text) {
    throw InvalidArgument(str("'", text, "' is no request of a row's"));
  }
  return request;
}

}  // namespace attune
