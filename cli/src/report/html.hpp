// Text inside a report's page.
#pragma once

#include <string>
#include <string_view>

namespace attune::cli {

/// `text` safe inside HTML and SVG, in an element or a quoted attribute; of a text that a database
/// made too long for any page, its beginning.
std::string escaped(std::string_view text);

/// The same, where lines may break after commas: a config.
std::string breakable(std::string_view text);

/// Elements around HTML: a paragraph beside the matter, a link to an anchor, a cell's two lines.
std::string note(const std::string& html);
std::string link(const std::string& anchor, const std::string& html);
std::string two_lines(const std::string& first, const std::string& second);

/// What the page looks like: as wide as a telephone or a desk, light or dark, or on paper.
std::string_view page_style();

/// Makes the headings of tables buttons that sort. The page says the same without it.
std::string_view page_script();

}  // namespace attune::cli
