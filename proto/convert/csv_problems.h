// CSV tables of problems; problem_list.h is what callers use, and README.md has the columns.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/convert/problem_list.h"

namespace convtune {

// The spec with what is set in place of what it says: one for each batch.
std::vector<ConvProblemSpec> WithOverrides(const ProblemOverrides& overrides, ConvProblemSpec spec);

// True if some field of the line names a column that is ours.
bool LooksLikeCsvHeader(std::string_view line);

// Adds to a list a row for each data type and layout that a line names, or errors, which begin
// with `source`. Not thread-safe.
using CsvRowReader = std::function<void(std::string_view line, const std::string& source)>;

// Reads rows by the column names of `header`. Adds notices, and an error for each fault of the
// header, without which there is no reader. The list and the overrides outlive it.
CsvRowReader ReadCsvHeader(std::string_view header, std::string_view source,
                           const ProblemOverrides& overrides, ProblemList* list);

}  // namespace convtune
