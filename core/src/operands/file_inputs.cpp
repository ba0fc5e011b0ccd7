#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include <attune/core/case_tensors.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/params.hpp>

namespace attune {

FileInputs::FileInputs(std::string_view op, const TensorMap& tensors, const Attributes& attributes,
                       const std::vector<std::string>& known)
    : op_(op), tensors_(tensors), attributes_(attributes) {
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(kExpectPrefix)) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw InvalidArgument(
        str(op, ": ", name, ": not an input of this op", did_you_mean(name, known)));
  }
}

const Tensor* FileInputs::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const Tensor& FileInputs::required(std::string_view name) const {
  if (const Tensor* tensor = find(name); tensor != nullptr) return *tensor;
  throw InvalidArgument(str(op_, ": ", name, ": not among the given tensors"));
}

void FileInputs::warn_of_unread_attributes() const {
  for (const auto& [name, text] : attributes_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    log_once(LogLevel::kWarning,
             str(op_, ": attribute '", name, "' is not used: the op has none of that name",
                 did_you_mean(name, asked_)));
  }
}

const std::string* FileInputs::attribute(std::string_view name) const {
  asked_.emplace_back(name);
  const auto found = attributes_.find(name);
  return found == attributes_.end() ? nullptr : &found->second;
}

std::optional<double> FileInputs::number(std::string_view name) const {
  const std::string* text = attribute(name);
  if (text == nullptr) return std::nullopt;
  double value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) {
    throw InvalidArgument(str(op_, ": ", name, ": got '", *text, "', expected a number"));
  }
  return value;
}

std::optional<std::int64_t> FileInputs::integer(std::string_view name) const {
  const std::string* text = attribute(name);
  if (text == nullptr) return std::nullopt;
  std::int64_t value = 0;
  if (!parse_integer(*text, value)) {
    throw InvalidArgument(str(op_, ": ", name, ": got '", *text, "', expected an integer"));
  }
  return value;
}

bool FileInputs::flag(std::string_view name) const {
  const std::string* text = attribute(name);
  if (text == nullptr || *text == "false" || *text == "no" || *text == "0") return false;
  if (*text == "true" || *text == "yes" || *text == "1") return true;
  throw InvalidArgument(str(op_, ": ", name, ": got '", *text, "', expected true or false"));
}

}  // namespace attune
