#include "client/cli/commands/warm/warm_summary.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"

namespace convtune::cli::commands::warm {
namespace {

// Problems that the budget left out and that are named for people.
constexpr size_t kMostNamed = 10;

}  // namespace

int64_t WarmSummary::not_published_count() const {
  int64_t sum = 0;
  for (const auto& [evidence, count] : not_published) sum += count;
  return sum;
}

std::string WarmSummary::ToText() const {
  std::string text =
      absl::StrCat(environment, ": ", problems, " problems: ", hits, " had an answer, ", tuned,
                   " were tuned, ", failed(), " have none");
  for (const auto& [reason, failure] : failures) {
    absl::StrAppend(&text, "\n  ", failure.count, " x ", reason, ", first ", failure.example);
  }
  if (invalid > 0) {
    absl::StrAppend(&text, "\nrows and models without a problem: ", invalid, ", named above");
  }
  if (not_on_disk > 0) {
    absl::StrAppend(&text, "\nnot on disk, and lost with the daemon: ", not_on_disk,
                    not_on_disk == 1 ? " result" : " results", "; see `convtune doctor`");
  }
  for (const auto& [evidence, count] : not_published) {
    absl::StrAppend(&text, "\nnot published: ", count, " of ", problems, ": ",
                    output::EnumWord(evidence), " < ", output::EnumWord(publish_evidence),
                    " (--publish-evidence): without the daemon nothing is served for them");
  }
  const size_t named = std::min(not_tuned.size(), kMostNamed);
  for (size_t i = 0; i < named; ++i) {
    absl::StrAppend(&text, "\n  not tuned: ", input::ShortProblem(not_tuned[i]));
  }
  if (named < not_tuned.size()) {
    absl::StrAppend(&text, "\n  and ", not_tuned.size() - named,
                    " more, which --json lists; a second run goes on with them");
  }
  return text;
}

output::Members WarmSummary::ToDocument() const {
  std::vector<output::Json> rows;
  for (const auto& [reason, failure] : failures) {
    rows.push_back(output::JsonObject(
        {{"reason", reason}, {"count", failure.count}, {"example", failure.example}}));
  }
  return {{"environment", environment},
          {"problems", problems},
          {"hits", hits},
          {"tuned", tuned},
          {"failed", failed()},
          {"failures", rows},
          {"invalid", invalid},
          {"notTuned", not_tuned},
          {"notOnDisk", not_on_disk},
          {"notPublished", not_published_count()},
          {"warm", warm()}};
}

bool IsWarm(const v1::BatchGetResult& result, v1::Evidence least, bool profile) {
  if (least == v1::EVIDENCE_UNSPECIFIED) {
    least = profile ? v1::EVIDENCE_HEURISTIC : v1::EVIDENCE_INCOMPLETE;
  }
  return result.has_answer() && (result.answer().pinned() || result.answer().evidence() >= least);
}

std::string ColdReason(const v1::BatchGetResult& result) {
  return result.has_answer()
             ? absl::StrCat("only ", output::EnumWord(result.answer().evidence()), " evidence")
             : output::EnumWord(result.miss().reason());
}

}  // namespace convtune::cli::commands::warm
