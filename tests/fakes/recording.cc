#include "tests/fakes/recording.h"

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/status_macros.h"

namespace convtune {

absl::StatusOr<Recording> Recording::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                   db::bundle::BundleReader::Open(path));
  Recording recording;
  db::bundle::BundleEntry entry;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
    if (!more) break;
    absl::StatusOr<Tuning> tuning =
        db::bundle::FromBundleTuning(*entry.row, *entry.environment, absl::Now());
    if (!tuning.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", entry.row->problem_text(), ": ", tuning.status().message()));
    }
    recording.tunings_.emplace(tuning->key.problem_text, *std::move(tuning));
  }
  if (reader->environments().size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must hold one environment, holds ", reader->environments().size()));
  }
  recording.environment_ = reader->environments()[0].environment;
  return recording;
}

const Tuning* Recording::Find(const std::string& problem_text) const {
  const auto found = tunings_.find(problem_text);
  return found == tunings_.end() ? nullptr : &found->second;
}

std::vector<Candidate> Recording::Listed(const Tuning& tuning) {
  std::vector<Candidate> listed = tuning.candidates;
  // As a worker lists them: the graph API first, each API in its own order.
  const auto place = [](const Candidate& candidate) {
    return std::pair(ApiOf(candidate.id) == Api::kLegacy,
                     candidate.heuristic_rank < 0 ? INT_MAX : candidate.heuristic_rank);
  };
  std::stable_sort(listed.begin(), listed.end(), [&place](const Candidate& a, const Candidate& b) {
    return place(a) < place(b);
  });
  return listed;
}

double Recording::TimeInRound(const Candidate& candidate, int round) {
  const std::vector<int64_t>& samples = candidate.samples_ns;
  const auto at = static_cast<size_t>(round);
  if (at < samples.size() && samples[at] > 0) return static_cast<double>(samples[at]) / 1e3;
  std::vector<int64_t> taken;
  for (const int64_t sample : samples) {
    if (sample > 0) taken.push_back(sample);
  }
  return taken.empty() ? 0 : static_cast<double>(taken[at % taken.size()]) / 1e3;
}

}  // namespace convtune
