#include <algorithm>
#include <charconv>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {

std::string to_text(const Params& params, char separator) {
  std::string text;
  for (const Param& param : params) {
    if (!text.empty()) text += separator;
    text += param.name;
    text += '=';
    text += param.value;
  }
  return text;
}

namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

Param parse_pair(std::string_view pair) {
  if (std::any_of(pair.begin(), pair.end(), is_control)) {
    throw InvalidArgument("a name=value pair has a control character");
  }
  const std::size_t equals = pair.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
    throw InvalidArgument(str("'", pair, "': expected name=value"));
  }
  return {std::string(pair.substr(0, equals)), std::string(pair.substr(equals + 1))};
}

}  // namespace

Params parse_params(std::string_view text, char separator) {
  Params params;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty() && separator == ' ') continue;  // runs of spaces
    Param param = parse_pair(pair);
    if (find_param(params, param.name) != nullptr) {
      throw InvalidArgument(str("'", param.name, "' is given twice"));
    }
    params.push_back(std::move(param));
  }
  return params;
}

const std::string* find_param(const Params& params, std::string_view name) {
  const auto found =
      std::find_if(params.begin(), params.end(), [&](const Param& p) { return p.name == name; });
  return found == params.end() ? nullptr : &found->value;
}

bool parse_integer(std::string_view text, std::int64_t& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

namespace {

/// Of an edit; a letter of the other case costs half of one.
constexpr std::size_t kEdit = 2;

std::size_t substitution(char a, char b) {
  if (a == b) return 0;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
  return lower(a) == lower(b) ? kEdit / 2 : kEdit;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j * kEdit;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i * kEdit;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + substitution(a[i - 1], b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + kEdit, row[j - 1] + kEdit, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = (given.size() / 3 + 2) * kEdit;  // further away is another word, not a slip
  for (const std::string& name : known) {
    const bool prefix = given.size() >= 3 && std::string_view(name).starts_with(given);
    const std::size_t distance = prefix ? kEdit : edit_distance(given, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  const std::string best = nearest_name(given, known);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

}  // namespace attune
