#include "proto/convert/problem_list.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/strings.h"
#include "proto/convert/csv_problems.h"
#include "proto/convert/problem_proto.h"
#include "proto/convert/sizes.h"
#include "proto/model/problem/problem_text.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr size_t kMaxLineBytes = 65536;
constexpr size_t kMaxErrors = 1000;

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

ConvProblemSpec SpecFromJson(std::string_view line, std::vector<Violation>* violations) {
  v1::ConvProblem proto;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status =
      google::protobuf::util::JsonStringToMessage(std::string(line), &proto, options);
  if (!status.ok()) {
    // Kept in one line and in printable characters: it quotes the input.
    constexpr std::string_view kUnknown = ": Cannot find field.";
    std::string text(status.message());
    if (text.ends_with(kUnknown)) {
      text.resize(text.size() - kUnknown.size());
      text = Concat("there is no field ", Quote(text), "; see convtune.v1.ConvProblem");
    }
    std::string message;
    for (const char c : text) {
      const bool printable = c >= ' ' && c <= '~';
      message.push_back(printable ? c : c == '\n' ? ' ' : '?');
      if (message.size() == 300) break;
    }
    violations->push_back({"json", message});
    return {};
  }
  return SpecFromProto(proto, "", violations);
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
      list_.errors.push_back({name_, "file: must hold at least one problem"});
    }
    return std::move(list_);
  }

 private:
  std::string Source() const { return Concat(name_, ":", line_number_); }

  void Fail(std::string_view message) { list_.errors.push_back({Source(), std::string(message)}); }

  // False if nothing after this line can be understood.
  bool ReadOne(std::string_view line) {
    if (line.size() > kMaxLineBytes) {
      Fail(Concat("line: must be at most ", kMaxLineBytes, " bytes"));
      return form_ != Form::kUnknown;
    }
    const std::string_view text = Strip(line);
    if (text.empty() || text.front() == '#') return true;
    if (!IsValidUtf8(text) || HasControlCharacter(text)) {
      Fail(BadBytes(text));
      return form_ != Form::kUnknown;
    }
    if (form_ == Form::kUnknown) {
      form_ = text.front() != '{' && LooksLikeCsvHeader(text) ? Form::kCsv : Form::kLines;
      if (form_ == Form::kCsv) {
        csv_ = ReadCsvHeader(text, Source(), overrides_, &list_);
        return csv_ != nullptr;
      }
    }
    if (form_ == Form::kCsv) {
      csv_(text, Source());
    } else {
      ReadLineOfProblems(text);
    }
    return true;
  }

  // Says which field of the line has bytes that are not text.
  static std::string BadBytes(std::string_view text) {
    const std::vector<std::string_view> fields = Split(text, ',');
    for (size_t i = 0; i < fields.size(); ++i) {
      const bool utf8 = IsValidUtf8(fields[i]);
      if (utf8 && !HasControlCharacter(fields[i])) continue;
      return Concat("column ", i + 1, ": must ",
                    utf8 ? "not have control characters" : "be valid UTF-8", ", is ",
                    Quote(fields[i]));
    }
    return Concat("line: must be valid UTF-8, is ", Quote(text));
  }

  // A line with open sizes is several problems, and one error at most.
  void ReadLineOfProblems(std::string_view text) {
    if (text.front() == '{') {
      std::vector<Violation> violations;
      const ConvProblemSpec spec = SpecFromJson(text, &violations);
      AddProblems(spec, &violations);
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
      const ConvProblemSpec spec = ParseProblemTokens(one, &violations);
      AddProblems(spec, &violations);
      if (violations.empty() || !first_error.empty()) continue;
      first_error = ToString(violations);
      if (texts->size() > 1) AppendTo(&first_error, " in ", one);
    }
    if (!first_error.empty()) Fail(first_error);
  }

  // Adds the problem with each batch, or violations.
  void AddProblems(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
    if (!violations->empty()) return;
    for (const ConvProblemSpec& one : WithOverrides(overrides_, spec)) {
      if (std::optional<ConvProblem> problem = ConvProblem::Create(one, violations)) {
        list_.rows.push_back({*std::move(problem), 1, Source()});
      }
    }
  }

  enum class Form { kUnknown, kLines, kCsv };

  const std::string name_;
  const ProblemOverrides& overrides_;
  ProblemList list_;
  CsvRowReader csv_;
  Form form_ = Form::kUnknown;
  int64_t line_number_ = 0;
};

}  // namespace

ProblemList ReadProblemList(std::istream& in, std::string_view name,
                            const ProblemOverrides& overrides) {
  return ListReader(name, overrides).Read(in);
}

absl::StatusOr<ProblemList> ReadProblemListFile(const std::string& path,
                                                const ProblemOverrides& overrides) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(Concat(path, ": must be a file, is a directory"));
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(Concat(path, ": cannot be read: ", std::strerror(errno)));
  return ReadProblemList(in, path, overrides);
}

std::vector<std::string> OperationNames() {
  std::vector<std::string> names;
  for (const Operation operation : {Operation::kFwd, Operation::kBwdData, Operation::kBwdFilter}) {
    names.emplace_back(Name(operation));
  }
  return names;
}

std::vector<std::string> InputTypeNames() {
  std::vector<std::string> names;
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16,
                              DataType::kI8, DataType::kE4M3, DataType::kE5M2}) {
    names.emplace_back(Name(type));
  }
  return names;
}

std::optional<TensorLayout> ParseLooseLayout(std::string_view text) {
  std::string_view name = Strip(text);
  if (name.ends_with(')')) name = Strip(name.substr(0, name.find('(')));
  const std::string lower = LowerCase(name);
  if (lower == "nchw" || lower == "ncdhw") return TensorLayout::kNchw;
  if (lower == "nhwc" || lower == "ndhwc") return TensorLayout::kNhwc;
  return std::nullopt;
}

}  // namespace convtune
