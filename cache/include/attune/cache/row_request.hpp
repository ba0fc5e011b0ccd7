// What a row's request asked for besides the problem, as RowKey::platform has it in one text:
//
//   auto      simd      auto;objective=energy;workspace<=1048576;error<=1e-05
//
// Parts at their defaults are left out, so that a row is found under the text that it was stored
// under before there were such parts. Rows that differ in one are of different keys: they are never
// compared, merged or served for each other, by any version of attune.
#pragma once

#include <string>
#include <string_view>

#include <attune/core/selection.hpp>

namespace attune {

struct RowRequest {
  std::string platform = "auto";
  std::string objective = {};  // what was minimised; "": the time
  Constraints constraints = {};

  /// Throws InvalidArgument for a constraint that is none (an error that is negative or no number)
  /// and for a text of more than 64 bytes.
  std::string text() const;

  /// Throws InvalidArgument for what text() does not give.
  static RowRequest parse(std::string_view text);
};

/// The objective in RowKey::platform, "" for time; of any text, as a row of another's file may
/// have.
std::string_view objective_of(std::string_view platform);

/// Throws InvalidArgument unless rows may carry it: 1 to 16 lower-case letters, digits, '_' or '-'.
void check_objective_name(std::string_view name);

}  // namespace attune
