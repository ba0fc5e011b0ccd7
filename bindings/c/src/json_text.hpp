// JSON as it is given to callers.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <attune/core/kernel.hpp>

#include "status.hpp"

namespace attune::c {

using Json = nlohmann::ordered_json;

/// For attune_free(). What is no UTF-8, as a file's name may be, has replacement characters.
inline char* json_text(const Json& json) {
  return copy_text(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// "" as null.
inline Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(std::string(text));
}

}  // namespace attune::c
