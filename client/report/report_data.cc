#include "client/report/report_data.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/base/strings.h"
#include "proto/convert/problem_order.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::report {
namespace {

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

template <typename Key, typename Value>
int ReportData::Number(const Key& key, const Value& value, std::map<Key, int>* numbers,
                       std::vector<Value>* list) {
  const auto [found, is_new] = numbers->emplace(key, static_cast<int>(list->size()));
  if (is_new) list->push_back(value);
  return found->second;
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
  return Number(text, text, &candidate_text_numbers_, &candidates_);
}

int ReportData::CandidateNumber(const CandidateId& id) {
  const auto [found, is_new] = candidate_numbers_.emplace(id, -1);
  if (is_new) found->second = AddCandidate(ToText(id));
  return found->second;
}

int ReportData::AddEnvironment(const std::string& text, const Environment& environment) {
  if (!MatchesGpu(environment.gpu_model)) return -1;
  return Number(text, environment, &environment_numbers_, &environments_);
}

int ReportData::AddPlace(const ReportPlace& place) {
  return Number(place, place, &place_numbers_, &places_);
}

std::span<const ReportTime> ReportData::Keep(std::span<const ReportTime> times) {
  // Those of one problem are few, those of a fleet many.
  constexpr size_t kFirstBlock = 64;
  constexpr size_t kLargestBlock = 1 << 16;
  if (times.size() > block_left_) {
    next_block_ = std::clamp(2 * next_block_, kFirstBlock, kLargestBlock);
    block_left_ = std::max(next_block_, times.size());
    blocks_.emplace_back(new std::byte[block_left_ * sizeof(ReportTime)]);
    next_time_ = reinterpret_cast<ReportTime*>(blocks_.back().get());
  }
  ReportTime* const kept = next_time_;
  std::uninitialized_copy(times.begin(), times.end(), kept);
  next_time_ += times.size();
  block_left_ -= times.size();
  return {kept, times.size()};
}

void ReportData::ReserveRows(size_t rows) { rows_.reserve(rows); }

void ReportData::Append(const ReportRow& row) {
  if (rows_.empty() || rows_.back().problem != row.problem ||
      rows_.back().environment != row.environment) {
    runs_.push_back(rows_.size());
  }
  rows_.push_back(row);
}

void ReportData::AddRow(ReportRow row) {
  row.times = Keep(row.times);
  Append(row);
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
  std::vector<ReportTime> times;
  for (const Candidate& c : tuning.candidates) {
    if (!c.usable()) continue;
    const bool first = row.winner < 0;
    if (!first && &c != stock && (!c.timed() || times.size() >= kKeptTimes)) continue;
    const int number = CandidateNumber(c.id);
    if (first) {
      row.winner = number;
      row.workspace_bytes = c.workspace_bytes;
      row.sm_clock_mhz = static_cast<float>(c.sm_clock_mhz);
    }
    if (&c == stock) row.stock = number;
    if (c.timed()) times.push_back(TimeOfCandidate(number, c));
  }
  const auto [known, is_new] =
      row_numbers_.emplace(std::tuple(row.place, row.environment, row.problem), rows_.size());
  if (!is_new && rows_[known->second].tune_time_us >= row.tune_time_us) return;
  row.times = Keep(times);
  if (is_new) {
    Append(row);
  } else {
    rows_[known->second] = row;
  }
}

void ReportData::AddCounters(const ReportCounters& counters) {
  if (!counters_) counters_.emplace();
  counters_->lookups += counters.lookups;
  counters_->hits += counters.hits;
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
