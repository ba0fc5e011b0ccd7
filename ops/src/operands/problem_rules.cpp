#include "problem_rules.hpp"

#include <algorithm>
#include <cmath>

#include <attune/core/error.hpp>

namespace attune::ops {

Params expand_channels(std::string_view op, Params params) {
  const std::string* both = find_param(params, "D");
  if (both == nullptr) return params;
  const std::string value = *both;
  for (const char* name : {"K", "V"}) {
    if (find_param(params, name) != nullptr) {
      throw InvalidArgument(str(op, ": D: given together with ", name, ", expected one of them"));
    }
  }
  std::erase_if(params, [](const Param& param) { return param.name == "D"; });
  params.push_back(Param{"K", value});
  params.push_back(Param{"V", value});
  return params;
}

Params expand_gates(std::string_view op, Params params, std::string_view gates,
                    std::int32_t required, std::int32_t legal) {
  const std::string* given = find_param(params, "gate");
  if (given == nullptr) {
    params.push_back(Param{"gate", std::string(gates)});
    return params;
  }
  const FieldInfo info{"gate", Bucket::kExact, Labels::kBits, kGateNames};
  const std::int64_t bits = detail::parse_label(info, *given);
  if ((bits & required) != required || (bits & ~std::int64_t{legal}) != 0) {
    const bool only = required == legal;
    throw InvalidArgument(str(op, ": gate: got ", *given, ", expected ",
                              detail::label_text(info, required), only ? "" : " or ",
                              only ? "" : detail::label_text(info, legal)));
  }
  return params;
}

void require(std::string_view op, bool rule, std::string_view field, std::int64_t value,
             std::string_view expected) {
  if (rule) return;
  throw InvalidArgument(str(op, ": ", field, ": got ", value, ", expected ", expected));
}

bool fits_memory(std::initializer_list<std::int64_t> sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  std::int64_t bytes = 8;
  return std::none_of(sizes.begin(), sizes.end(), [&](std::int64_t size) {
    return __builtin_mul_overflow(bytes, size, &bytes);
  });
}

void check_scale(const CallCheck& check, const std::optional<double>& scale) {
  if (scale && !std::isfinite(*scale)) {
    check.refuse("scale", "got ", *scale, ", expected a finite number");
  }
}

double scale_or_default(const std::optional<double>& scale, std::int64_t key_channels) {
  return scale ? *scale : 1.0 / std::sqrt(static_cast<double>(key_channels));
}

}  // namespace attune::ops
