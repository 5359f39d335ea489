#include "proto/model/tuning/warm_summary.h"

#include "proto/base/strings.h"

namespace convtune {

void WarmSummary::AddFailure(const std::string& reason, const std::string& problem) {
  Failure& failure = failures[reason];
  if (failure.count++ == 0) failure.example = problem;
}

void WarmSummary::AddUnkept(Evidence evidence, bool pinned, bool persisted, bool stands_in) {
  if (!persisted && !stands_in) ++not_on_disk;
  if (!pinned && evidence < publish_evidence) ++not_published[evidence];
}

int64_t WarmSummary::not_published_count() const {
  int64_t sum = 0;
  for (const auto& [evidence, count] : not_published) sum += count;
  return sum;
}

std::string WarmSummary::ToText() const {
  std::string text = Concat(environment, ": ", problems, " problems: ", hits, " had an answer, ",
                            tuned, " were tuned, ", failed(), " have none");
  for (const auto& [reason, failure] : failures) {
    AppendTo(&text, "\n  ", failure.count, " x ", reason, ", first ", failure.example);
  }
  if (invalid > 0) {
    AppendTo(&text, "\nrows and files without a problem: ", invalid, ", named above");
  }
  if (not_on_disk > 0) {
    AppendTo(&text, "\nnot on disk, and lost with the daemon: ", not_on_disk,
             not_on_disk == 1 ? " result" : " results", "; see `convtune doctor`");
  }
  for (const auto& [evidence, count] : not_published) {
    AppendTo(&text, "\nnot published: ", count, " of ", problems, ": ", Name(evidence), " < ",
             Name(publish_evidence), " (--publish-evidence): `convtune run` serves none of them");
  }
  return text;
}

std::string WarmSummary::Verdict() const {
  if (!warm()) return "the model is not warm";
  return not_published_count() == 0 ? "the model is warm"
                                    : "the model is warm for programs that ask the daemon";
}

}  // namespace convtune
