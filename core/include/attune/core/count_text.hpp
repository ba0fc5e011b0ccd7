// Numbers with the word that they count, for messages.
#pragma once

#include <string>
#include <string_view>

#include <attune/core/error.hpp>

namespace attune {

/// "1 row", "2 rows"; with the word for several, "1 row is", "0 rows are".
template <class Count>
std::string count_text(Count count, std::string_view one, std::string_view several = {}) {
  if (count == 1) return str(count, ' ', one);
  return several.empty() ? str(count, ' ', one, 's') : str(count, ' ', several);
}

}  // namespace attune
