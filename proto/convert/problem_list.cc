#include "proto/convert/problem_list.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "convtune/v1/problem.pb.h"
#include "proto/base/strings.h"
#include "proto/convert/sizes.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr size_t kMaxLineBytes = 65536;
constexpr size_t kMaxErrors = 1000;
constexpr size_t kMaxMessageBytes = 300;

// Reads up to the next '\n' into `line`, without it and without a '\r' before
// it. Of a longer line only the first kMaxLineBytes + 1 bytes are kept, however
// long it is. False at the end of the stream.
bool ReadLine(std::istream& in, std::string* line) {
  line->clear();
  std::streambuf* const buffer = in.rdbuf();
  bool any = false;
  for (int c = buffer->sbumpc(); c != std::char_traits<char>::eof(); c = buffer->sbumpc()) {
    any = true;
    if (c == '\n') break;
    if (line->size() <= kMaxLineBytes) line->push_back(static_cast<char>(c));
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return any;
}

v1::ConvProblem FromJson(std::string_view line, std::vector<Violation>* violations) {
  v1::ConvProblem proto;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status =
      google::protobuf::util::JsonStringToMessage(std::string(line), &proto, options);
  if (!status.ok()) {
    const std::string message(status.message());
    // The first line says what is wrong, and may quote any part of the input.
    const std::string_view first = std::string_view(message).substr(0, message.find('\n'));
    violations->push_back(
        {"json", absl::CHexEscape(std::string(CutUtf8(first, kMaxMessageBytes)))});
  }
  return proto;
}

// Splits a line of CSV into fields, stripped of blanks. A field may stand in
// double quotes, with "" for a quote. Nothing if a quote is left open or is
// followed by text.
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

// The problem with what is set in place of what it says: one for each batch.
std::vector<v1::ConvProblem> WithOverrides(const ProblemOverrides& overrides,
                                           v1::ConvProblem problem) {
  if (overrides.operation) problem.set_operation(static_cast<v1::Operation>(*overrides.operation));
  if (overrides.data_type) {
    problem.set_data_type(static_cast<v1::DataType>(*overrides.data_type));
    problem.clear_output_type();
    problem.clear_compute_type();
    problem.clear_intermediate_type();
  }
  if (overrides.layout) {
    problem.set_layout(static_cast<v1::TensorLayout>(*overrides.layout));
    problem.clear_x_strides();
    problem.clear_w_strides();
    problem.clear_y_strides();
  }
  if (overrides.batches.empty() || problem.x_dims().empty()) return {std::move(problem)};
  std::vector<v1::ConvProblem> problems;
  for (const int64_t batch : overrides.batches) {
    problem.set_x_dims(0, batch);
    problems.push_back(problem);
  }
  return problems;
}

class ListReader {
 public:
  ListReader(std::string_view name, const ProblemOverrides& overrides)
      : name_(name), overrides_(overrides) {}

  ProblemList Read(std::istream& in) {
    std::string line;
    while (ReadLine(in, &line)) {
      ++line_number_;
      if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
      if (!ReadOne(line)) break;
      if (list_.errors.size() >= kMaxErrors) {
        list_.errors.resize(kMaxErrors);
        list_.notices.push_back(Concat("reading stopped at ", Source(), ": too many errors"));
        break;
      }
    }
    if (list_.rows.empty() && list_.errors.empty()) {
      if (csv_.environment) {
        list_.notices.push_back(Concat(name_, ": nothing is wanted"));
      } else {
        list_.errors.push_back({name_, "file: must hold at least one problem"});
      }
    }
    return std::move(list_);
  }

 private:
  std::string Source() const { return Concat(name_, ":", line_number_); }

  void Fail(std::string_view message) { list_.errors.push_back({Source(), std::string(message)}); }

  // False if nothing after this line can be understood.
  bool ReadOne(std::string_view line) {
    const std::string_view text = Strip(line);
    if (text.empty() || text.front() == '#') return true;
    if (text.size() > kMaxLineBytes) {
      Fail(Concat("line: must be at most ", kMaxLineBytes, " bytes"));
      return form_ != Form::kUnknown;
    }
    if (!IsValidUtf8(text) || HasControlCharacter(text)) {
      Fail(Concat("line: must be UTF-8 without control characters, is ", Quote(text)));
      return form_ != Form::kUnknown;
    }
    if (form_ == Form::kUnknown) {
      const auto names = SplitCsvLine(text);
      const bool is_header = names && std::any_of(names->begin(), names->end(), IsProblemColumn);
      form_ = is_header ? Form::kCsv : Form::kLines;
      if (is_header) return ReadHeader(*names);
    }
    form_ == Form::kCsv ? ReadRow(text) : ReadLineOfProblems(text);
    return true;
  }

  static bool IsProblemColumn(const std::string& name) { return LowerCase(name) == "problem"; }

  // False if the header is wrong.
  bool ReadHeader(const std::vector<std::string>& names) {
    csv_.names = names;
    std::string ignored;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name = LowerCase(names[i]);
      std::optional<size_t>* const column = name == "problem"                     ? &csv_.problem
                                            : name == "count" || name == "misses" ? &csv_.count
                                            : name == "environment_text" ? &csv_.environment
                                                                         : nullptr;
      if (column == nullptr) {
        AppendTo(&ignored, ignored.empty() ? "" : ", ", Excerpt(names[i]));
      } else if (*column) {
        Fail(Concat("column ", Excerpt(names[i]), ": given twice"));
        return false;
      } else {
        *column = i;
      }
    }
    // `convtune wanted --csv` prints more than is read, and its reader chose none of it.
    if (!ignored.empty() && !csv_.environment) {
      list_.notices.push_back(Concat("ignored columns: ", ignored));
    }
    return true;
  }

  void ReadRow(std::string_view text) {
    const std::optional<std::vector<std::string>> fields = SplitCsvLine(text);
    if (!fields) return Fail("row: a quoted field must be closed and end at a comma");
    if (fields->size() != csv_.names.size()) {
      return Fail(Concat("row: must have ", csv_.names.size(), " columns as the header, has ",
                         fields->size()));
    }
    int64_t count = 1;
    if (const std::string given = csv_.count ? (*fields)[*csv_.count] : ""; !given.empty()) {
      const absl::Status read = ReadInt64(given, &count);
      const std::string column = Concat("column ", Excerpt(csv_.names[*csv_.count]), ": ");
      if (!read.ok()) return Fail(Concat(column, read.message()));
      if (count < 1) return Fail(Concat(column, "must be at least 1, is ", count));
    }
    std::vector<Violation> violations;
    AddProblems(ParseProblemTokens((*fields)[*csv_.problem], &violations), &violations, count,
                csv_.environment ? (*fields)[*csv_.environment] : "");
    if (!violations.empty()) Fail(Concat("column problem: ", ToString(violations)));
  }

  // A line with open sizes is several problems, and one error at most.
  void ReadLineOfProblems(std::string_view text) {
    if (text.front() == '{') {
      std::vector<Violation> violations;
      const v1::ConvProblem given = FromJson(text, &violations);
      AddProblems(given, &violations);
      if (!violations.empty()) Fail(ToString(violations));
      return;
    }
    const absl::StatusOr<std::vector<std::string>> texts = ExpandSizes(text);
    if (!texts.ok()) return Fail(std::string(texts.status().message()));
    if (texts->size() * std::max<size_t>(1, overrides_.batches.size()) > kMaxExpansions) {
      return Fail(Concat("sizes: must stand for at most ", kMaxExpansions,
                         " problems, with each of the ", overrides_.batches.size(), " batches"));
    }
    std::string first_error;
    for (const std::string& one : *texts) {
      std::vector<Violation> violations;
      const v1::ConvProblem given = ParseProblemTokens(one, &violations);
      AddProblems(given, &violations);
      if (violations.empty() || !first_error.empty()) continue;
      first_error = ToString(violations);
      if (texts->size() > 1) AppendTo(&first_error, " in ", one);
    }
    if (!first_error.empty()) Fail(first_error);
  }

  // Adds the problem with each batch, or violations.
  void AddProblems(const v1::ConvProblem& given, std::vector<Violation>* violations,
                   int64_t count = 1, const std::string& environment = "") {
    if (!violations->empty()) return;
    for (const v1::ConvProblem& one : WithOverrides(overrides_, given)) {
      if (std::optional<ConvProblem> problem = ConvProblem::Create(one, violations)) {
        list_.rows.push_back({*std::move(problem), count, Source(), environment});
      }
    }
  }

  enum class Form { kUnknown, kLines, kCsv };

  const std::string name_;
  const ProblemOverrides& overrides_;
  ProblemList list_;
  // Places of the columns in a row.
  struct {
    std::vector<std::string> names;
    std::optional<size_t> problem, count, environment;
  } csv_;
  Form form_ = Form::kUnknown;
  int64_t line_number_ = 0;
};

template <typename E>
std::vector<std::string> NamesOf(std::initializer_list<E> values) {
  std::vector<std::string> names;
  for (const E value : values) names.emplace_back(Name(value));
  return names;
}

}  // namespace

ProblemList ReadProblemList(std::istream& in, std::string_view name,
                            const ProblemOverrides& overrides) {
  return ListReader(name, overrides).Read(in);
}

bool IsOnnxFile(const std::string& path) { return absl::EndsWithIgnoreCase(path, ".onnx"); }

absl::StatusOr<ProblemList> ReadProblemListFile(const std::string& path,
                                                const ProblemOverrides& overrides) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(Concat(path, ": must be a file, is a directory"));
  }
  if (IsOnnxFile(path)) {
    return absl::InvalidArgumentError(Concat(
        path, ": must be a list of problems, is an ONNX model: `python3 -m convtune problems ",
        path, "` prints its list"));
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(Concat(path, ": cannot be read: ", std::strerror(errno)));
  return ReadProblemList(in, path, overrides);
}

std::vector<std::string> OperationNames() {
  return NamesOf({Operation::kFwd, Operation::kBwdData, Operation::kBwdFilter});
}

std::vector<std::string> InputTypeNames() {
  using enum DataType;
  return NamesOf({kF64, kF32, kF16, kBF16, kI8, kE4M3, kE5M2});
}

std::optional<TensorLayout> ParseLooseLayout(std::string_view text) {
  const std::string lower = LowerCase(Strip(text));
  if (lower == "nchw" || lower == "ncdhw") return TensorLayout::kNchw;
  if (lower == "nhwc" || lower == "ndhwc") return TensorLayout::kNhwc;
  return std::nullopt;
}

double WorkOf(const ProblemRow& row) {
  return static_cast<double>(row.count) * EstimatedFlops(row.problem);
}

std::vector<ProblemRow> Distinct(const std::vector<ProblemRow>& rows) {
  std::vector<ProblemRow> ordered;
  std::unordered_map<std::string, size_t> place;
  for (const ProblemRow& row : rows) {
    const auto [it, is_new] = place.emplace(row.problem.ToText(), ordered.size());
    if (is_new) {
      ordered.push_back(row);
      continue;
    }
    int64_t& count = ordered[it->second].count;
    count = row.count > std::numeric_limits<int64_t>::max() - count
                ? std::numeric_limits<int64_t>::max()
                : count + row.count;
  }
  return ordered;
}

std::vector<ProblemRow> MostWorkFirst(const std::vector<ProblemRow>& rows) {
  std::vector<ProblemRow> ordered = Distinct(rows);
  std::ranges::stable_sort(ordered, std::greater(), WorkOf);
  return ordered;
}

}  // namespace convtune
