// Lines of CSV, and the columns of tables of problems; formats are in README.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtune {

// Splits a line of CSV into fields, stripped of blanks. A field may stand in
// double quotes, with "" for a quote. Nothing if a quote is left open or is
// followed by text.
std::optional<std::vector<std::string>> SplitCsvLine(std::string_view line);

// Of the environment that the problem of a row is wanted for.
inline constexpr std::string_view kEnvironmentColumn = "environment_text";

// The column's canonical name; empty if it is not one of ours.
std::string_view CanonicalColumn(std::string_view name);

// True of columns that transposed rows alone use, so that they do not make a
// header a header.
bool IsOutputColumn(std::string_view column);

// True if some field of the line names a column that is ours.
bool LooksLikeCsvHeader(std::string_view line);

}  // namespace convtune
