#include "tests/fakes/fake_script.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convtune {
namespace {

using google::protobuf::FieldDescriptor;

absl::StatusOr<FakeScript> Parse(const std::string& text) {
  FakeScript script;
  const auto* const reflection = FakeScript::GetReflection();
  for (const absl::string_view line :
       absl::StrSplit(text, absl::ByAnyChar("\n;"), absl::SkipWhitespace())) {
    if (line[0] == '#') continue;
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
    const FieldDescriptor* const field = FakeScript::descriptor()->FindFieldByName(pair.first);
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(pair.first, ": is no key of a script"));
    }
    int64_t number = 0;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      reflection->SetString(&script, field, pair.second);
    } else if (!absl::SimpleAtoi(pair.second, &number)) {
      return absl::InvalidArgumentError(absl::StrCat(pair.first, ": must be a number"));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      reflection->SetInt64(&script, field, number);
    } else {
      reflection->SetInt32(&script, field, static_cast<int>(number));
    }
  }
  return script;
}

}  // namespace

absl::StatusOr<FakeScript> LoadScript(const std::string& text_or_path) {
  if (text_or_path.find('=') != std::string::npos || text_or_path.empty()) {
    return Parse(text_or_path);
  }
  std::ifstream file(text_or_path);
  if (!file) return absl::NotFoundError(absl::StrCat("script: cannot read ", text_or_path));
  std::stringstream content;
  content << file.rdbuf();
  return Parse(content.str());
}

}  // namespace convtune
