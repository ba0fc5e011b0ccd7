#include <algorithm>

#include <attune/core/problem.hpp>

namespace attune::detail {
namespace {

std::string bits_text(const FieldInfo& info, std::int64_t value) {
  std::string text;
  for (std::size_t bit = 0; bit < info.labels.size(); ++bit) {
    if (((value >> bit) & 1) == 0) continue;
    if (!text.empty()) text += '+';
    text += info.labels[bit];
  }
  return text.empty() ? "none" : text;
}

[[noreturn]] void refuse_label(const FieldInfo& info, std::string_view text) {
  std::string legal;
  for (const std::string_view label : info.labels) {
    if (!legal.empty()) legal += ", ";
    legal += label;
  }
  if (info.label_kind == Labels::kBits) legal += " (joined by '+'), or none";
  throw InvalidArgument(str(info.name, "=", text, ": expected ", legal));
}

std::int64_t label_index(const FieldInfo& info, std::string_view text, std::string_view label) {
  for (std::size_t i = 0; i < info.labels.size(); ++i) {
    if (info.labels[i] == label) return static_cast<std::int64_t>(i);
  }
  refuse_label(info, text);
}

}  // namespace

std::string label_text(const FieldInfo& info, std::int64_t value) {
  if (info.label_kind == Labels::kBits) return bits_text(info, value);
  if (info.label_kind == Labels::kValues && value >= 0 &&
      static_cast<std::size_t>(value) < info.labels.size()) {
    return std::string(info.labels[static_cast<std::size_t>(value)]);
  }
  return std::to_string(value);
}

std::int64_t parse_label(const FieldInfo& info, std::string_view text) {
  if (info.label_kind == Labels::kValues) return label_index(info, text, text);
  if (info.label_kind == Labels::kBits) {
    std::int64_t value = 0;
    for (std::string_view rest = text; text != "none";) {
      const std::size_t end = std::min(rest.find('+'), rest.size());
      value |= std::int64_t{1} << label_index(info, text, rest.substr(0, end));
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
    return value;
  }
  std::int64_t value = 0;
  if (!parse_integer(text, value) || value < 0) {
    throw InvalidArgument(str(info.name, "=", text, ": expected an integer >= 0"));
  }
  return value;
}

void add_needed_features(const FieldInfo& info, std::int64_t value,
                         std::vector<std::string>& needed) {
  if (info.feature_name.empty() || value == 0) return;
  if (info.label_kind == Labels::kBits) {
    for (std::size_t bit = 0; bit < info.labels.size(); ++bit) {
      if (((value >> bit) & 1) != 0) needed.emplace_back(info.labels[bit]);
    }
    return;
  }
  const bool is_flag = std::ranges::equal(info.labels, kNoYes);
  std::string feature(info.feature_name);
  if (info.label_kind == Labels::kValues && !is_flag) feature += '=' + label_text(info, value);
  needed.push_back(std::move(feature));
}

}  // namespace attune::detail
