#include "client/report/report_data.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/base/strings.h"
#include "proto/convert/problem_list.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::report {
namespace {

// The number of what is in the list already, or gets to its end.
template <typename Key, typename Value>
int Number(const Key& key, const Value& value, std::map<Key, int>* numbers,
           std::vector<Value>* list) {
  const auto [found, is_new] = numbers->emplace(key, static_cast<int>(list->size()));
  if (is_new) list->push_back(value);
  return found->second;
}

ReportTime TimeOfCandidate(int number, const Candidate& candidate) {
  return {number, static_cast<float>(candidate.median_us), static_cast<float>(candidate.low_us),
          static_cast<float>(candidate.high_us)};
}

}  // namespace

const ReportTime* ReportRow::TimeOf(int candidate) const {
  for (const ReportTime& time : times) {
    if (time.candidate == candidate) return &time;
  }
  return nullptr;
}

double ReportRow::stock_us() const {
  const ReportTime* const time = TimeOf(stock);
  return time != nullptr ? time->median_us : 0;
}

int ReportData::AddProblem(const std::string& text) {
  const auto found = problem_numbers_.find(text);
  if (found != problem_numbers_.end()) return found->second;
  int number = -1;
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(text);
  if (problem.ok()) {
    const ReportProblem made{text,
                             problem->operation(),
                             problem->data_type(),
                             problem->layout(),
                             EstimatedFlops(*problem),
                             problem->TensorBytes()};
    const bool wanted =
        (!filter_.operation || *filter_.operation == made.operation) &&
        (!filter_.data_type || *filter_.data_type == made.data_type) &&
        (!filter_.layout || *filter_.layout == made.layout) &&
        (filter_.problem.empty() || text.find(filter_.problem) != std::string::npos);
    if (wanted) {
      number = static_cast<int>(problems_.size());
      problems_.push_back(made);
    }
  }
  problem_numbers_[text] = number;
  return number;
}

bool ReportData::MatchesGpu(const std::string& model_or_name) const {
  return Slug(model_or_name).find(Slug(filter_.gpu)) != std::string::npos;
}

int ReportData::AddCandidate(const std::string& text) {
  return Number(text, text, &candidate_numbers_, &candidates_);
}

int ReportData::AddEnvironment(const std::string& text, const Environment& environment) {
  if (!MatchesGpu(environment.gpu_model)) return -1;
  return Number(text, environment, &environment_numbers_, &environments_);
}

int ReportData::AddPlace(const ReportPlace& place) {
  return Number(place, place, &place_numbers_, &places_);
}

void ReportData::Add(const Tuning& tuning, const Environment& environment) {
  const Provenance& from = tuning.provenance;
  Add(tuning, environment, {from.node, from.gpu_uuid, from.driver_version, from.CudaText()});
}

void ReportData::Add(const Tuning& tuning, const Environment& environment,
                     const ReportPlace& place) {
  if (!MatchesGpu(environment.gpu_model)) return;
  ReportRow row;
  row.problem = AddProblem(tuning.key.problem_text);
  if (row.problem < 0) return;
  row.environment = AddEnvironment(tuning.key.environment_text, environment);
  row.place = AddPlace(place);
  row.evidence = tuning.evidence;
  row.tune_time_us = absl::ToUnixMicros(tuning.tune_time);
  row.elapsed_us = absl::ToInt64Microseconds(tuning.elapsed);
  row.candidate_count = static_cast<uint16_t>(
      std::min<size_t>(tuning.candidates.size(), std::numeric_limits<uint16_t>::max()));
  if (tuning.conditions.known) row.throttled = tuning.conditions.throttled();
  const std::optional<size_t> stock_index = StockIndex(tuning.candidates);
  const Candidate* const stock = stock_index ? &tuning.candidates[*stock_index] : nullptr;
  for (const Candidate& c : tuning.candidates) {
    if (!c.usable()) continue;
    const bool first = row.winner < 0;
    if (!first && &c != stock && (!c.timed() || row.times.size() >= kKeptTimes)) continue;
    const int number = AddCandidate(ToText(c.id));
    if (first) {
      row.winner = number;
      row.workspace_bytes = c.workspace_bytes;
      row.sm_clock_mhz = static_cast<float>(c.sm_clock_mhz);
    }
    if (&c == stock) row.stock = number;
    if (c.timed()) row.times.push_back(TimeOfCandidate(number, c));
  }
  std::vector<ReportRow>& rows = RowsOf(row.environment, row.problem);
  const auto known = std::find_if(rows.begin(), rows.end(), [&row](const ReportRow& other) {
    return other.place == row.place;
  });
  if (known == rows.end()) {
    rows.push_back(std::move(row));
  } else if (known->tune_time_us < row.tune_time_us) {
    *known = std::move(row);
  }
}

void ReportData::AddCounters(int64_t lookups, int64_t hits) {
  lookups_ += lookups;
  hits_ += hits;
}

std::optional<double> ReportData::hit_ratio() const {
  if (lookups_ <= 0) return std::nullopt;
  return static_cast<double>(hits_) / static_cast<double>(lookups_);
}

void ReportData::AddWanted(const ReportWanted& wanted) {
  if (!MatchesGpu(wanted.environment)) return;
  if (AddProblem(wanted.problem) < 0) return;
  const auto [found, is_new] =
      wanted_.emplace(std::pair(wanted.environment, wanted.problem), wanted);
  if (is_new) return;
  found->second.misses += wanted.misses;
  found->second.nodes += wanted.nodes;
  if (!wanted.last_error.empty()) found->second.last_error = wanted.last_error;
}

std::vector<ReportWanted> ReportData::Wanted() const {
  std::vector<ReportWanted> all;
  for (const auto& [key, wanted] : wanted_) all.push_back(wanted);
  std::stable_sort(all.begin(), all.end(), [](const ReportWanted& a, const ReportWanted& b) {
    return a.misses > b.misses;
  });
  return all;
}

std::string EngineOf(const std::string& candidate) {
  const std::string engine = candidate.substr(0, candidate.find(','));
  constexpr char kGraph[] = "graph:";
  return engine.rfind(kGraph, 0) == 0 ? engine.substr(sizeof(kGraph) - 1) : engine;
}

}  // namespace convtune::report
