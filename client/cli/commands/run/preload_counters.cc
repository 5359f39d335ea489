#include "client/cli/commands/run/preload_counters.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace convtune::cli::commands::run {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

int64_t NumberOf(const Value& value) {
  if (value.kind_case() != Value::kNumberValue) return 0;
  const double number = value.number_value();
  constexpr double kMost = 9e15;  // a double holds every whole number below
  return number > 0 && number < kMost ? static_cast<int64_t>(number) : 0;
}

int64_t Member(const Struct& object, const char* name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? 0 : NumberOf(found->second);
}

}  // namespace

int64_t PreloadCounters::missed_count() const {
  int64_t count = 0;
  for (const auto& [reason, number] : missed) count += number;
  return count;
}

PreloadCounters ReadPreloadCounters(std::istream& in) {
  PreloadCounters sum;
  for (std::string line; std::getline(in, line);) {
    Struct object;
    if (!google::protobuf::util::JsonStringToMessage(line, &object).ok()) continue;
    if (object.fields().contains("bypassed")) {
      ++sum.bypassed;
      continue;
    }
    ++sum.processes;
    const auto snapshot = object.fields().find("snapshot");
    if (snapshot != object.fields().end() && snapshot->second.string_value() != "valid") {
      sum.no_snapshot.insert(snapshot->second.string_value());
    }
    sum.served += Member(object, "served");
    sum.observed += Member(object, "observed");
    sum.passed += Member(object, "passed");
    sum.learned += Member(object, "learned");
    sum.dropped += Member(object, "dropped");
    sum.over_limit += Member(object, "over_limit");
    const auto missed = object.fields().find("missed");
    if (missed == object.fields().end()) continue;
    for (const auto& [reason, value] : missed->second.struct_value().fields()) {
      if (const int64_t count = NumberOf(value); count > 0) sum.missed[reason] += count;
    }
  }
  return sum;
}

std::string Describe(const PreloadCounters& counters, const std::string& snapshot, bool audited) {
  if (counters.processes == 0 && counters.bypassed > 0) {
    return absl::StrCat(
        counters.bypassed, counters.bypassed == 1 ? " process" : " processes",
        " loaded cuDNN, and none called it through convtune: ",
        audited ? "none asked it for an algorithm, or it is not reached by LD_AUDIT either"
                : "if it looks cuDNN up by dlsym, as cudnn-frontend does, try --audit");
  }
  if (counters.processes == 0) return "no process of it called cuDNN through convtune";
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : counters.missed) {
    reasons.push_back(absl::StrCat(absl::StrReplaceAll(reason, {{"_", " "}}), " ", count));
  }
  std::string text = absl::StrCat(counters.served, " served, ", counters.missed_count(), " missed");
  if (!reasons.empty()) absl::StrAppend(&text, " (", absl::StrJoin(reasons, ", "), ")");
  absl::StrAppend(&text, ", ", counters.learned, " learned");
  if (counters.observed > 0) absl::StrAppend(&text, ", ", counters.observed, " left alone");
  if (counters.passed > 0) absl::StrAppend(&text, ", ", counters.passed, " of other forms");
  if (counters.dropped > 0) absl::StrAppend(&text, ", ", counters.dropped, " reports not taken");
  if (counters.over_limit > 0) {
    absl::StrAppend(&text, ", ", counters.over_limit, " with nothing below --max-workspace");
  }
  if (counters.processes > 1) absl::StrAppend(&text, ", in ", counters.processes, " processes");
  if (!counters.no_snapshot.empty()) {
    absl::StrAppend(&text, "; no snapshot: ", snapshot, ": ",
                    absl::StrJoin(counters.no_snapshot, ", "));
  }
  return text;
}

}  // namespace convtune::cli::commands::run
