// The table of operands in an op's public header says what the op declares.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/operand_table.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

namespace attune {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// "k, v" as two; commas within brackets do not count.
std::vector<std::string> items(const std::string& text) {
  std::vector<std::string> found(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  for (std::string& item : found) item = trimmed(item);
  return found;
}

/// The rows of the table under "tensor  shape  type  notes", one an operand: "q [B,T,H,K] f32".
std::vector<std::string> manual_rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> rows;
  std::size_t shape_at = 0, type_at = 0, notes_at = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("//   tensor ")) {
      shape_at = line.find("shape");
      type_at = line.find("type");
      notes_at = line.find("notes");
    } else if (shape_at != 0 && line == "//") {
      break;
    } else if (shape_at != 0 && line.size() > shape_at && line[5] != ' ') {
      const std::vector<std::string> names = items(line.substr(5, shape_at - 5));
      const std::vector<std::string> shapes = items(line.substr(shape_at, type_at - shape_at));
      const std::string types = trimmed(line.substr(type_at, notes_at - type_at));
      for (std::size_t i = 0; i < names.size(); ++i) {
        rows.push_back(names[i] + ' ' + shapes.at(std::min(i, shapes.size() - 1)) + ' ' + types);
      }
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

template <class Op>
std::vector<std::string> declared_rows() {
  std::vector<std::string> rows;
  for (const OperandText& text : operand_texts(operand_table<Op>())) {
    if (text.name == "slopes") continue;  // lightning's
    rows.push_back(text.name + ' ' + text.shape + ' ' + text.types);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(ManualTable, OfRecurrentAttentionIsWhatItDeclares) {
  EXPECT_EQ(manual_rows(ATTUNE_OPS_HEADERS "/recurrent_attention.hpp"),
            declared_rows<ops::RecurrentAttention>());
}

TEST(ManualTable, OfRecurrentDecodeIsWhatItDeclares) {
  EXPECT_EQ(manual_rows(ATTUNE_OPS_HEADERS "/recurrent_decode.hpp"),
            declared_rows<ops::RecurrentDecode>());
}

TEST(ManualTable, OfSummariesIsWhatTheyDeclare) {
  EXPECT_EQ(manual_rows(ATTUNE_OPS_HEADERS "/state_summary_op.hpp"),
            declared_rows<ops::StateSummary>());
  EXPECT_EQ(manual_rows(ATTUNE_OPS_HEADERS "/state_fold_op.hpp"), declared_rows<ops::StateFold>());
}

}  // namespace
}  // namespace attune
