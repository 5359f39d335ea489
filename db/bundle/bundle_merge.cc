#include "db/bundle/bundle_merge.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::db::bundle {
namespace {

constexpr int kMaxExamples = 5;

// One input and the tuning that it stands at.
class Input {
 public:
  Input(std::unique_ptr<BundleReader> reader, const BundleMergeOptions& options)
      : reader_(std::move(reader)), options_(options) {}

  const std::optional<Tuning>& tuning() const { return tuning_; }
  const Environment& environment() const { return entry_.environment->environment; }
  int64_t offset() const { return reader_->offset(); }

  // To the next valid tuning, or to the end.
  absl::Status Advance(BundleMergeCounts* counts) {
    tuning_.reset();
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader_->Next(&entry_));
      if (!more) {
        return CheckBundleSignature(reader_->trailer(), options_.trusted, reader_->name());
      }
      ++counts->read;
      absl::StatusOr<Tuning> tuning =
          FromBundleTuning(*entry_.row, *entry_.environment, options_.now);
      if (tuning.ok()) {
        tuning_ = *std::move(tuning);
        return absl::OkStatus();
      }
      ++counts->refused;
      const std::string text = Concat(reader_->name(), ": ", RefusalText(entry_, tuning.status()));
      if (!options_.skip_refused) return absl::InvalidArgumentError(text);
      if (options_.refused) options_.refused(text);
    }
  }

 private:
  std::unique_ptr<BundleReader> reader_;
  const BundleMergeOptions& options_;
  BundleEntry entry_;
  std::optional<Tuning> tuning_;
};

}  // namespace

absl::StatusOr<BundleMergeCounts> MergeBundles(const std::vector<std::string>& inputs,
                                               const BundleMergeOptions& options,
                                               BundleWriter* out) {
  BundleMergeCounts counts;
  std::vector<Input> open;
  for (const std::string& path : inputs) {
    ASSIGN_OR_RETURN(std::unique_ptr<BundleReader> reader, BundleReader::Open(path));
    open.emplace_back(std::move(reader), options);
  }
  for (Input& input : open) RETURN_IF_ERROR(input.Advance(&counts));
  while (true) {
    Input* best = nullptr;
    for (Input& input : open) {
      if (!input.tuning().has_value()) continue;
      if (best == nullptr || input.tuning()->key < best->tuning()->key ||
          (input.tuning()->key == best->tuning()->key &&
           Supersedes(*input.tuning(), *best->tuning()))) {
        best = &input;
      }
    }
    if (best == nullptr) break;
    RETURN_IF_ERROR(out->Add(*best->tuning(), best->environment()));
    ++counts.written;
    const TuningKey key = best->tuning()->key;
    int64_t bytes = 0;
    for (Input& input : open) {
      if (input.tuning().has_value() && input.tuning()->key == key) {
        if (&input != best) ++counts.superseded;
        RETURN_IF_ERROR(input.Advance(&counts));
      }
      bytes += input.offset();
    }
    if (options.progress) options.progress(bytes);
  }
  RETURN_IF_ERROR(out->Finish());
  return counts;
}

void RefusalCounts::Add(const BundleEntry& entry, const absl::Status& refusal) {
  ++rows_;
  const v1::RefusalReason reason = RefusalReasonOf(refusal);
  auto it = std::lower_bound(
      refusals_.begin(), refusals_.end(), reason,
      [](const v1::Refusal& known, v1::RefusalReason r) { return known.reason() < r; });
  if (it == refusals_.end() || it->reason() != reason) {
    it = refusals_.insert(it, v1::Refusal());
    it->set_reason(reason);
  }
  it->set_count(it->count() + 1);
  if (it->examples_size() < kMaxExamples) {
    it->add_examples(RefusalText(entry, refusal));
  }
}

std::string RefusalText(const BundleEntry& entry, const absl::Status& refusal) {
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(entry.row->problem_text());
  const std::string named = problem.ok() ? Concat(", ", problem->ToText()) : "";
  return Concat("byte ", entry.offset, named, ": ", refusal.message());
}

}  // namespace convtune::db::bundle
