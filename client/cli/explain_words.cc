#include "client/cli/explain_words.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/units.h"

namespace convtune {
namespace {

using Candidates = google::protobuf::RepeatedPtrField<v1::Candidate>;

bool Timed(const v1::Candidate& candidate) {
  return candidate.status() == v1::CANDIDATE_STATUS_TIMED && candidate.median_us() > 0;
}

bool Overlap(const v1::Candidate& a, const v1::Candidate& b) {
  return a.q1_us() <= b.q3_us() && b.q1_us() <= a.q3_us();
}

std::string TimeOf(const v1::Candidate& candidate) {
  return FormatMicroseconds(candidate.median_us());
}

// The first in the order of the daemon's list that is not the winner and for
// which `wanted` holds.
template <typename Wanted>
const v1::Candidate* FirstOther(const Candidates& candidates, const v1::Candidate& winner,
                                Wanted wanted) {
  for (const v1::Candidate& candidate : candidates) {
    if (candidate.text() != winner.text() && wanted(candidate)) return &candidate;
  }
  return nullptr;
}

// What sets the winner apart from one that is as fast.
std::string TieBreak(const v1::Candidate& winner, const v1::Candidate& other) {
  if (winner.workspace_bytes() < other.workspace_bytes()) {
    return absl::StrCat("it needs less workspace (", FormatBytes(winner.workspace_bytes()),
                        " against ", FormatBytes(other.workspace_bytes()), ")");
  }
  if (winner.deterministic() && !other.deterministic()) return "it is deterministic";
  if (winner.stock()) return "it is the stock choice";
  return "it comes first in the fixed order";
}

void ExplainTimed(const v1::Candidate& winner, const Candidates& candidates,
                  std::vector<std::string>* words) {
  const auto faster = [&](const v1::Candidate& candidate) {
    return Timed(candidate) && candidate.median_us() < winner.median_us();
  };
  const auto slower = [&](const v1::Candidate& candidate) {
    return Timed(candidate) && candidate.median_us() >= winner.median_us();
  };
  if (const v1::Candidate* ahead = FirstOther(candidates, winner, faster); ahead != nullptr) {
    if (Overlap(winner, *ahead)) {
      words->push_back(absl::StrCat("It ties with ", ahead->text(), " (", TimeOf(*ahead),
                                    "), as their quartiles overlap; ", TieBreak(winner, *ahead),
                                    "."));
    } else {
      words->push_back(absl::StrCat(ahead->text(), " is faster (", TimeOf(*ahead),
                                    "), but is left out by the constraints or a pin."));
    }
  } else if (const v1::Candidate* next = FirstOther(candidates, winner, slower); next != nullptr) {
    const double ahead_by = 100 * (next->median_us() / winner.median_us() - 1);
    words->push_back(absl::StrFormat("It is the fastest: %s, %.1f%% ahead of %s (%s).",
                                     TimeOf(winner), ahead_by, next->text(), TimeOf(*next)));
    if (Overlap(winner, *next)) {
      words->push_back(absl::StrCat("Their quartiles overlap, so that is a tie; ",
                                    TieBreak(winner, *next), "."));
    }
  } else {
    words->push_back("It is the only one that was timed.");
  }
  const auto is_stock = [](const v1::Candidate& candidate) { return candidate.stock(); };
  if (winner.stock()) {
    words->push_back("It is also what cuDNN's heuristic would have run (the stock choice).");
  } else if (const v1::Candidate* stock = FirstOther(candidates, winner, is_stock);
             stock != nullptr && Timed(*stock)) {
    words->push_back(
        absl::StrFormat("cuDNN's heuristic would have run %s (%s): %.2f times the time.",
                        stock->text(), TimeOf(*stock), stock->median_us() / winner.median_us()));
  }
}

void ExplainHeuristic(const v1::Candidate& winner, const Candidates& candidates,
                      std::vector<std::string>* words) {
  words->push_back("Nothing was timed: this is cuDNN's heuristic, not a measurement.");
  if (winner.heuristic_rank() < 0) return;
  const auto skipped =
      std::count_if(candidates.begin(), candidates.end(), [&](const v1::Candidate& candidate) {
        return candidate.heuristic_rank() >= 0 &&
               candidate.heuristic_rank() < winner.heuristic_rank() &&
               candidate.status() != v1::CANDIDATE_STATUS_FINALIZED;
      });
  words->push_back(winner.heuristic_rank() == 0
                       ? std::string("cuDNN lists it first.")
                       : absl::StrCat("cuDNN lists it at place ", winner.heuristic_rank() + 1, "; ",
                                      skipped, " of those before it cannot run."));
}

}  // namespace

std::vector<std::string> ExplainWinner(const v1::Answer& answer, const Candidates& candidates) {
  const v1::Candidate& winner = answer.winner();
  std::vector<std::string> words = {absl::StrCat("The winner is ", winner.text(), ".")};
  if (answer.pinned()) {
    words.push_back(absl::StrCat("It is pinned: ", answer.pin_reason()));
  }
  if (Timed(winner)) {
    if (!answer.pinned()) ExplainTimed(winner, candidates, &words);
  } else {
    ExplainHeuristic(winner, candidates, &words);
  }
  if (answer.eligible_count() < answer.candidate_count()) {
    words.push_back(absl::StrCat(answer.eligible_count(), " of ", answer.candidate_count(),
                                 " candidates run and keep to the constraints."));
  }
  if (!answer.note().empty()) words.push_back(absl::StrCat("Note: ", answer.note()));
  return words;
}

}  // namespace convtune
