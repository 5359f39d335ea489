#include "proto/convert/csv_problems.h"

#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "proto/base/strings.h"
#include "proto/model/problem/problem_text.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

// Of the environment that the problem of a row is wanted for.
constexpr std::string_view kEnvironmentColumn = "environment_text";

constexpr std::string_view kColumns[] = {
    "n",     "c",        "d",          "h",        "w",      "k",     "t",
    "r",     "s",        "pad_d",      "pad_h",    "pad_w",  "dil_d", "dil_h",
    "dil_w", "stride_d", "stride_h",   "stride_w", "groups", "op",    "dtype",
    "count", "layout",   "transposed", "out_d",    "out_h",  "out_w", "problem",
};
// Used for transposed rows alone, so that they do not make a header a header.
constexpr std::string_view kOutputColumns[] = {"out_d", "out_h", "out_w"};

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"dilation_d", "dil_d"}, {"dilation_h", "dil_h"}, {"dilation_w", "dil_w"},
    {"operation", "op"},     {"precisions", "dtype"}, {"filter_h", "r"},
    {"filter_w", "s"},       {"filter_d", "t"},       {"misses", "count"},
};

// The column's canonical name; empty if it is not one of ours.
std::string_view CanonicalColumn(std::string_view name) {
  const std::string lower = LowerCase(name);
  for (const auto& [alias, column] : kAliases) {
    if (lower == alias) return column;
  }
  for (const std::string_view column : kColumns) {
    if (lower == column) return column;
  }
  if (lower == kEnvironmentColumn) return kEnvironmentColumn;
  return {};
}

bool IsOutputColumn(std::string_view column) {
  for (const std::string_view known : kOutputColumns) {
    if (known == column) return true;
  }
  return false;
}

// Splits a line of CSV into fields, stripped of blanks. A field may stand in double quotes, with
// "" for a quote. Nothing if a quote is left open or is followed by text.
std::optional<std::vector<std::string>> SplitCsvLine(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] == '"') {
      std::string field;
      size_t i = first + 1;
      for (;; ++i) {
        if (i >= line.size()) return std::nullopt;
        if (line[i] == '"') {
          if (i + 1 >= line.size() || line[i + 1] != '"') break;
          ++i;
        }
        field.push_back(line[i]);
      }
      line.remove_prefix(i + 1);
      if (!Strip(line.substr(0, line.find(','))).empty()) return std::nullopt;
      fields.emplace_back(Strip(field));
    } else {
      fields.emplace_back(Strip(line.substr(0, line.find(','))));
    }
    const size_t comma = line.find(',');
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Reads rows by the column names of a header.
class CsvProblems {
 public:
  CsvProblems(std::string_view header, std::string_view source, const ProblemOverrides& overrides,
              ProblemList* list)
      : overrides_(overrides), list_(list) {
    const std::string where(source);
    const std::optional<std::vector<std::string>> fields = SplitCsvLine(header);
    if (!fields) {
      list_->errors.push_back({where, "header: a quoted column name must be closed"});
      ok_ = false;
      return;
    }
    names_ = *fields;
    for (size_t i = 0; i < names_.size(); ++i) {
      const std::string_view column = CanonicalColumn(names_[i]);
      if (column.empty()) continue;
      if (!columns_.emplace(column, i).second) {
        list_->errors.push_back({where, Concat("column ", Excerpt(names_[i]), ": given twice")});
        ok_ = false;
      }
    }
    CheckRequired(source);

    std::string ignored;
    for (const std::string& name : names_) {
      const std::string_view column = CanonicalColumn(name);
      const bool used =
          in_text_form() ? column == "problem" || column == "count" || column == kEnvironmentColumn
                         : !column.empty() && column != kEnvironmentColumn &&
                               (!IsOutputColumn(column) || columns_.contains("transposed"));
      if (!used) AppendTo(&ignored, ignored.empty() ? "" : ", ", Excerpt(name));
    }
    // `convtune wanted --csv` prints more than is read, and its reader chose none of it.
    const bool is_wanted = in_text_form() && columns_.contains(kEnvironmentColumn);
    if (!ignored.empty() && !is_wanted) {
      list_->notices.push_back(Concat("ignored columns: ", ignored));
    }
  }

  bool ok() const { return ok_; }

  void Read(std::string_view line, const std::string& source) {
    std::optional<std::vector<std::string>> fields = SplitCsvLine(line);
    if (!fields) {
      list_->errors.push_back({source, "row: a quoted field must be closed and end at a comma"});
      return;
    }
    if (fields->size() != names_.size()) {
      list_->errors.push_back({source, Concat("row: must have ", names_.size(),
                                              " columns as the header, has ", fields->size())});
      return;
    }
    Row row;
    row.fields = *std::move(fields);
    row.source = source;
    if (in_text_form()) {
      ReadTextForm(&row);
      return;
    }
    ReadKinds(&row);
    ReadShape(&row);
    ReadTransposed(&row);
    if (!row.ok) return;
    const int64_t channels = row.spec.x_dims[1];
    const int64_t groups = *row.spec.groups;
    if (groups < 1 || channels < 1 || channels % groups != 0) {
      if (channels < 1) {
        Fail(source, row.origin["x_dims[1]"], Concat("must be from 1 to 2^31-1, is ", channels));
      } else {
        Fail(source, "groups",
             Concat("must be at least 1 and divide the ", channels, " channels, is ", groups));
      }
      return;
    }
    row.spec.w_dims[1] = channels / groups;
    row.origin["w_dims[1]"] = row.origin["x_dims[1]"];
    for (const DataType type : row.types) {
      for (const TensorLayout layout : row.layouts) AddProblem(row, type, layout);
    }
  }

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
  bool in_text_form() const { return columns_.contains("problem"); }

  void ReadTextForm(Row* row) {
    if (!ReadNumber(row, "count", 1, &row->count)) return;
    if (row->count < 1) {
      Fail(row->source, "count", Concat("must be at least 1, is ", row->count));
      return;
    }
    std::vector<Violation> violations;
    const ConvProblemSpec spec = ParseProblemTokens(Cell(*row, "problem"), &violations);
    if (violations.empty()) {
      for (const ConvProblemSpec& one : WithOverrides(overrides_, spec)) {
        if (std::optional<ConvProblem> problem = ConvProblem::Create(one, &violations)) {
          list_->rows.push_back({*std::move(problem), row->count, row->source,
                                 std::string(Cell(*row, kEnvironmentColumn))});
        }
      }
      if (violations.empty()) return;
    }
    Fail(row->source, "problem", ToString(violations));
  }

  void CheckRequired(std::string_view source) {
    if (in_text_form()) return;
    const auto require = [&](std::string_view column, std::string_view instead) {
      if (columns_.contains(column)) return;
      list_->errors.push_back(
          {std::string(source),
           Concat("column ", column, ": required, and missing in the header", instead)});
      ok_ = false;
    };
    if (!overrides_.operation) require("op", "; it may be given for all rows instead (--op)");
    if (overrides_.batches.empty()) require("n", "");
    for (const std::string_view column : {"c", "h", "w", "k", "r", "s"}) require(column, "");
    if (columns_.contains("d")) require("t", " although there is a column d");
  }

  // The row's field in that column; empty if there is no such column.
  std::string_view Cell(const Row& row, std::string_view column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() ? std::string_view() : row.fields[found->second];
  }

  // The file's own name of a column, for messages.
  std::string ColumnName(std::string_view column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() ? std::string(column) : Excerpt(names_[found->second]);
  }

  void Fail(const std::string& source, std::string_view column, std::string_view rule) {
    list_->errors.push_back({source, Concat("column ", ColumnName(column), ": ", rule)});
  }

  bool ReadNumber(Row* row, std::string_view column, std::optional<int64_t> absent,
                  int64_t* value) {
    const std::string_view text = Cell(*row, column);
    if (text.empty()) {
      if (!absent) {
        Fail(row->source, column, "required, is empty");
        row->ok = false;
        return false;
      }
      *value = *absent;
      return true;
    }
    const NumberError error = ReadInt64(text, value);
    if (error == NumberError::kNone) return true;
    Fail(row->source, column, NumberRule(error, text));
    row->ok = false;
    return false;
  }

  void ReadShape(Row* row) {
    row->spatial = {"h", "w"};
    std::vector<std::string_view> filter = {"r", "s"};
    if (!Cell(*row, "d").empty()) {
      row->spatial.insert(row->spatial.begin(), "d");
      filter.insert(filter.begin(), "t");
    }
    ConvProblemSpec& spec = row->spec;
    const auto push = [&](std::string_view field, std::vector<int64_t>* list,
                          std::string_view column, std::optional<int64_t> absent) {
      int64_t value = 1;
      ReadNumber(row, column, absent, &value);
      row->origin[Concat(field, "[", list->size(), "]")] = std::string(column);
      list->push_back(value);
    };
    int64_t groups = 1;
    ReadNumber(row, "groups", 1, &groups);
    row->origin["groups"] = "groups";
    spec.groups = groups;
    push("x_dims", &spec.x_dims, "n",
         overrides_.batches.empty() ? std::nullopt : std::optional(overrides_.batches.front()));
    push("x_dims", &spec.x_dims, "c", std::nullopt);
    push("w_dims", &spec.w_dims, "k", std::nullopt);
    spec.w_dims.push_back(1);
    for (size_t i = 0; i < row->spatial.size(); ++i) {
      const std::string_view axis = row->spatial[i];
      push("x_dims", &spec.x_dims, axis, std::nullopt);
      push("w_dims", &spec.w_dims, filter[i], std::nullopt);
      push("pad_low", &spec.pad_low, Concat("pad_", axis), 0);
      push("strides", &spec.strides, Concat("stride_", axis), 1);
      push("dilations", &spec.dilations, Concat("dil_", axis), 1);
    }
    ReadNumber(row, "count", 1, &row->count);
    if (row->count < 1 || row->count > std::numeric_limits<int32_t>::max()) {
      Fail(row->source, "count", Concat("must be from 1 to 2^31-1, is ", row->count));
      row->ok = false;
    }
  }

  // A transposed convolution is the data gradient of a convolution whose input
  // is the transposed one's output: C and K change places, the sizes too.
  void ReadTransposed(Row* row) {
    const std::string flag = LowerCase(Cell(*row, "transposed"));
    if (flag != "1" && flag != "true") {
      if (!flag.empty() && flag != "0" && flag != "false") {
        Fail(row->source, "transposed", Concat("must be 0 or 1, is ", Quote(flag)));
        row->ok = false;
      }
      return;
    }
    ConvProblemSpec& spec = row->spec;
    std::swap(spec.x_dims[1], spec.w_dims[0]);
    row->origin["x_dims[1]"] = "k";
    row->origin["w_dims[0]"] = "c";
    for (size_t i = 0; i < row->spatial.size(); ++i) {
      const std::string column = Concat("out_", row->spatial[i]);
      int64_t size = 1;
      ReadNumber(row, column, std::nullopt, &size);
      row->required_output.push_back(std::exchange(spec.x_dims[i + 2], size));
      row->origin[Concat("x_dims[", i + 2, "]")] = column;
    }
    if (spec.operation == Operation::kFwd) {
      spec.operation = Operation::kBwdData;
    } else if (spec.operation == Operation::kBwdData) {
      spec.operation = Operation::kFwd;
    }
  }

  // Operation, data types and layouts.
  void ReadKinds(Row* row) {
    const auto refuse = [&](std::string_view column, std::string_view text,
                            std::string_view expected) {
      const std::optional<std::string_view> reason = VectorizedInt8Reason(text);
      Fail(row->source, column,
           reason ? std::string(*reason) : Concat("must be ", expected, ", is ", Quote(text)));
      row->ok = false;
    };
    row->spec.operation = overrides_.operation;
    if (!overrides_.operation) {
      const std::string op = LowerCase(Cell(*row, "op"));
      row->spec.operation = ParseOperation(op);
      if (!row->spec.operation) refuse("op", op, "fwd, bwd_data or bwd_filter");
    }
    row->origin["operation"] = "op";
    row->origin["data_type"] = "dtype";

    const auto read_list = [&](const auto& chosen, std::string_view column, auto absent, auto parse,
                               std::string_view expected, auto* values) {
      const std::string_view text = chosen ? std::string_view() : Cell(*row, column);
      if (text.empty()) {
        *values = {chosen.value_or(absent)};
        return;
      }
      for (const std::string_view part : Split(text, ';')) {
        if (const auto value = parse(part)) {
          values->push_back(*value);
        } else {
          refuse(column, Strip(part), expected);
        }
      }
    };
    read_list(overrides_.data_type, "dtype", DataType::kF32, ParseLooseDataType,
              "f64, f32, f16, bf16, i8, e4m3 or e5m2", &row->types);
    read_list(overrides_.layout, "layout", TensorLayout::kNchw, ParseLooseLayout, "nchw or nhwc",
              &row->layouts);
  }

  void AddProblem(const Row& row, DataType type, TensorLayout layout) {
    ConvProblemSpec spec = row.spec;
    spec.data_type = type;
    spec.layout = layout;
    const std::vector<int64_t> own = {spec.x_dims[0]};
    for (const int64_t batch : overrides_.batches.empty() ? own : overrides_.batches) {
      spec.x_dims[0] = batch;
      std::vector<Violation> violations;
      const std::optional<ConvProblem> problem = ConvProblem::Create(spec, &violations);
      for (const Violation& violation : violations) {
        const auto origin = row.origin.find(violation.field);
        Fail(row.source, origin == row.origin.end() ? violation.field : origin->second,
             violation.rule);
      }
      if (!problem) return;
      for (size_t i = 0; i < row.required_output.size(); ++i) {
        if (problem->y_dims()[i + 2] == row.required_output[i]) continue;
        Fail(row.source, Concat("out_", row.spatial[i]),
             Concat("does not fit: a forward convolution of it gives ", problem->y_dims()[i + 2],
                    ", not the ", row.required_output[i], " of column ",
                    ColumnName(row.spatial[i])));
        return;
      }
      list_->rows.push_back({*problem, row.count, row.source});
    }
  }

  const ProblemOverrides& overrides_;
  ProblemList* list_;
  std::map<std::string, size_t, std::less<>> columns_;  // canonical name to field index
  std::vector<std::string> names_;                      // as in the header
  bool ok_ = true;
};

}  // namespace

std::vector<ConvProblemSpec> WithOverrides(const ProblemOverrides& overrides,
                                           ConvProblemSpec spec) {
  if (overrides.operation) spec.operation = overrides.operation;
  if (overrides.data_type) {
    spec.data_type = overrides.data_type;
    spec.output_type.reset();
    spec.compute_type.reset();
    spec.intermediate_type.reset();
  }
  if (overrides.layout) {
    spec.layout = overrides.layout;
    spec.x_strides.clear();
    spec.w_strides.clear();
    spec.y_strides.clear();
  }
  if (overrides.batches.empty() || spec.x_dims.empty()) return {std::move(spec)};
  std::vector<ConvProblemSpec> specs;
  for (const int64_t batch : overrides.batches) {
    spec.x_dims[0] = batch;
    specs.push_back(spec);
  }
  return specs;
}

bool LooksLikeCsvHeader(std::string_view line) {
  const std::optional<std::vector<std::string>> fields = SplitCsvLine(line);
  if (!fields || ParseOperation(fields->front())) return false;
  for (const std::string& field : *fields) {
    const std::string_view column = CanonicalColumn(field);
    if (!column.empty() && !IsOutputColumn(column)) return true;
  }
  return false;
}

CsvRowReader ReadCsvHeader(std::string_view header, std::string_view source,
                           const ProblemOverrides& overrides, ProblemList* list) {
  auto problems = std::make_shared<CsvProblems>(header, source, overrides, list);
  if (!problems->ok()) return nullptr;
  return [problems](std::string_view line, const std::string& at) { problems->Read(line, at); };
}

}  // namespace convtune
