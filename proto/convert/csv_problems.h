// One CSV table of problems; problem_list.h is what callers use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/convert/problem_list.h"

namespace convtune {

// The spec with what is set in place of what it says: one for each batch.
std::vector<ConvProblemSpec> WithOverrides(const ProblemOverrides& overrides, ConvProblemSpec spec);

// Reads rows by the column names of a header. Not thread-safe.
class CsvProblems {
 public:
  // Adds notices, and an error for each fault of the header; then ok() is
  // false and Read must not be called. Outlived by both arguments.
  CsvProblems(std::string_view header, std::string_view source, const ProblemOverrides& overrides,
              ProblemList* list);

  bool ok() const { return ok_; }

  // Adds a row for each data type and layout that the line names, or errors.
  void Read(std::string_view line, const std::string& source);

 private:
  // One line while it is read.
  struct Row {
    std::vector<std::string> fields;
    std::string source;
    bool ok = true;
    ConvProblemSpec spec;  // forward shapes
    int64_t count = 1;
    std::vector<DataType> types;
    std::vector<TensorLayout> layouts;
    // Spatial suffixes, "d"?, "h", "w".
    std::vector<std::string_view> spatial;
    // By a field of the spec: the column that it was read from.
    std::map<std::string, std::string> origin;
    // Spatial sizes that the forward output must have; empty if any will do.
    std::vector<int64_t> required_output;
  };

  // Whole problems in one column, as `convtune list` and `wanted` print them.
  bool in_text_form() const { return columns_.find("problem") != columns_.end(); }
  void ReadTextForm(Row* row);
  void CheckRequired(std::string_view source);
  void Fail(const std::string& source, std::string_view column, std::string_view rule);
  bool ReadNumber(Row* row, std::string_view column, std::optional<int64_t> absent, int64_t* value);
  void ReadShape(Row* row);
  void ReadTransposed(Row* row);
  void ReadKinds(Row* row);
  void AddProblem(const Row& row, DataType type, TensorLayout layout);
  // The file's own name of a column, for messages.
  std::string ColumnName(std::string_view column) const;

  const ProblemOverrides& overrides_;
  ProblemList* list_;
  std::map<std::string, size_t, std::less<>> columns_;  // canonical name to field index
  std::vector<std::string> names_;                      // as in the header
  bool ok_ = true;
};

}  // namespace convtune
