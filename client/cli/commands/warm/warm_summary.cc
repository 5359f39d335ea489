#include "client/cli/commands/warm/warm_summary.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/output/json.h"

namespace convtune::cli {
namespace {

std::string LowerName(const std::string& name, const std::string& prefix) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name.substr(prefix.size()), {{"_", " "}}));
}

}  // namespace

std::string WarmSummary::ToText() const {
  std::string text =
      absl::StrCat(environment, ": ", problems, " problems: ", hits, " had an answer, ", tuned,
                   " were tuned, ", failed(), " have none");
  for (const auto& [reason, failure] : failures) {
    absl::StrAppend(&text, "\n  ", failure.count, " x ", reason, ", first ", failure.example);
  }
  if (search_time_of > 0) {
    absl::StrAppend(&text, absl::StrFormat("\nsaved per restart: %.1f s, what the searches of %d "
                                           "of these problems took when they were made",
                                           absl::ToDoubleSeconds(search_time), search_time_of));
  }
  return text;
}

std::string WarmSummary::ToJson() const {
  std::vector<std::string> rows;
  for (const auto& [reason, failure] : failures) {
    rows.push_back(JsonObject()
                       .Add("reason", reason)
                       .Add("count", failure.count)
                       .Add("example", failure.example)
                       .Take());
  }
  return JsonObject()
      .Add("environment", environment)
      .Add("problems", problems)
      .Add("hits", hits)
      .Add("tuned", tuned)
      .Add("failed", failed())
      .AddRaw("failures", JsonArray(rows))
      .Add("searchSeconds", absl::ToDoubleSeconds(search_time))
      .Add("searchSecondsOf", search_time_of)
      .Add("warm", warm())
      .Take();
}

bool IsWarm(const v1::BatchGetResult& result, v1::Evidence least, bool profile) {
  if (least == v1::EVIDENCE_UNSPECIFIED) {
    least = profile ? v1::EVIDENCE_HEURISTIC : v1::EVIDENCE_INCOMPLETE;
  }
  return result.has_answer() && (result.answer().pinned() || result.answer().evidence() >= least);
}

std::string ColdReason(const v1::BatchGetResult& result) {
  if (result.has_answer()) {
    return absl::StrCat("only ",
                        LowerName(v1::Evidence_Name(result.answer().evidence()), "EVIDENCE_"),
                        " evidence");
  }
  return LowerName(v1::MissReason_Name(result.miss().reason()), "MISS_REASON_");
}

}  // namespace convtune::cli
