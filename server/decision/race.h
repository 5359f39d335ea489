// A Race decides which candidates run in the next rounds, and when there have been
// enough.
//
// Sequential elimination, as in racing algorithms (Maron and Moore, "Hoeffding
// races", NIPS 1993); README.md says how. There is one race with a leader for each
// contest; who has left all of its contests does not run any more.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/model/enums.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/samples.h"

namespace convtune::decision {

// Writes the samples of each series, and what they say, into the candidate of its number, unless it
// has no valid sample. median_us is m * r: m is the median of the fastest one (by the ratios to the
// one that ran in most rounds), r the median, over the rounds that both ran in, of the candidate's
// time over the fastest's in that round. low_us and high_us are m times the ends of the 99%
// interval of r (MedianInterval). For the fastest itself all three are m. Why by ratios: what slows
// all candidates of a round cancels out, and candidates that ran in different rounds can be
// compared. No median is below m: what left a race early has too few rounds to be known to be
// faster. Quartiles are of the samples as they are. REQUIRES: no candidate has samples yet.
void Summarize(const std::vector<Series>& series, const std::vector<Candidate*>& candidates);

// A Contest is a kind of caller, such as one that has no workspace to give. Each kind has a
// winner of its own: callers differ in what they can use, so that not every candidate takes part
// in every contest. A contest is named for what its candidates have, and has a bit in a mask.
enum class Contest {
  kAny = 0,
  kNoWorkspace = 1,
  kDeterministic = 2,
  kStockNumerics = 3,  // see KeepsNumerics
  kCapturable = 4,
  kGraphApi = 5,
  kLegacyApi = 6
};
inline constexpr int kContests = 7;

constexpr uint32_t ContestBit(Contest contest) { return 1U << static_cast<int>(contest); }

// The contests that the candidate takes part in; `stock` may be nullptr.
uint32_t ContestsOf(const Candidate& candidate, const Candidate* stock);

// The most rounds of a race.
inline constexpr int kMaxRounds = 93;

struct Contender {
  uint32_t contests = 0;  // mask of ContestBit
  bool stock = false;     // does not leave before the end
};

struct RaceStep {
  // The numbers of those that run next; empty if the race is over.
  std::vector<size_t> runners;
  int rounds = 0;
  // All run, and who is far behind leaves: short samples show that.
  bool screening = false;
  // The reason for which the race is over; kNone while it is not.
  StopReason stop = StopReason::kNone;
};

// A race while it is run: who is in it, and what they gave. A contender's number is its index in
// `contenders`. Value type.
class Race {
 public:
  // All contenders can run.
  explicit Race(std::vector<Contender> contenders);

  // The runs of a round of the last step. REQUIRES: `number` is one of its
  // runners, and `round` one of its rounds: rounds() up to rounds() + its
  // number of rounds - 1. Where no step was asked for, any contender and any round.
  void Add(size_t number, int round, const RunSample& run);
  // It runs no more, and nothing that it gave counts.
  void Leave(size_t number) {
    series_[number].clear();
    std::erase(runners_, number);
  }
  // Removes the runners whose samples are not of the kind that counts (see CountsBlocked),
  // since they cannot be compared with the others'. Returns their numbers.
  std::vector<size_t> LeaveOtherKind();
  // Ends the last step, and gives the next one.
  RaceStep Next();

  int rounds() const { return rounds_; }
  // One more than the number of the last step's last round.
  int end_round() const { return rounds_ + step_rounds_; }
  // The numbers of the last step's runners that did not leave.
  const std::vector<size_t>& runners() const { return runners_; }
  // Each contender's samples, by its number; those that are discarded are 0.
  std::vector<Series> Samples() const {
    std::vector<Series> samples = series_;
    DiscardOtherKind(&samples);
    DiscardSlowClocks(&samples);
    return samples;
  }
  // Does Summarize(Samples(), candidates). Where a look has found a candidate to be slower than its
  // leader by some factor, none of its times is then below that factor times the leader's.
  void WriteTimes(const std::vector<Candidate*>& candidates) const;

 private:
  // The bound of a slower candidate, known from some look: its time is at least `low`
  // times that of `leader`.
  struct Behind {
    size_t leader = 0;
    double low = 0;
  };

  RaceStep NextStep(const std::vector<Series>& samples) const;
  void NoteWhoIsBehind(const std::vector<Series>& samples);

  std::vector<Contender> contenders_;
  std::vector<Series> series_;  // as they came
  std::vector<size_t> runners_;
  std::map<size_t, Behind> behind_;
  int rounds_ = 0;
  int step_rounds_ = 0;
};

}  // namespace convtune::decision
