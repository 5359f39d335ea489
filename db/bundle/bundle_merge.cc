#include "db/bundle/bundle_merge.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"
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
        return CheckBundleSignature(reader_->trailer(), {}, reader_->name());
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

absl::StatusOr<std::string> Json(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) {
    return absl::InternalError("a record has no JSON form");
  }
  return json;
}

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

void AddRefusal(const BundleEntry& entry, const absl::Status& refusal,
                v1::ImportBundleResponse* counts) {
  counts->set_refused_count(counts->refused_count() + 1);
  const v1::RefusalReason reason = RefusalReasonOf(refusal);
  auto& refusals = *counts->mutable_refusals();
  const auto known =
      std::find_if(refusals.begin(), refusals.end(),
                   [reason](const v1::Refusal& other) { return other.reason() == reason; });
  v1::Refusal& counted = known != refusals.end() ? *known : *refusals.Add();
  counted.set_reason(reason);
  counted.set_count(counted.count() + 1);
  if (counted.examples_size() < kMaxExamples) counted.add_examples(RefusalText(entry, refusal));
}

std::string RefusalText(const BundleEntry& entry, const absl::Status& refusal) {
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(entry.row->problem_text());
  const std::string named = problem.ok() ? Concat(", ", problem->ToText()) : "";
  return Concat("byte ", entry.offset, named, ": ", refusal.message());
}

absl::Status WriteBundleJson(BundleReader* reader, const std::vector<std::string>& trusted,
                             const std::function<absl::Status(const std::string&)>& sink) {
  std::set<int> said;
  BundleEntry entry;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
    if (!more) break;
    const BundleEnvironmentRow& place = *entry.environment;
    if (said.insert(entry.row->environment_number()).second) {
      v1::BundleEnvironment proto = ToBundleEnvironment(0, place.environment, place.provenance);
      proto.set_text(place.text);
      ASSIGN_OR_RETURN(const std::string json, Json(proto));
      RETURN_IF_ERROR(sink(Concat(kBundleJson, json, "}\n")));
    }
    google::protobuf::StringValue text;
    text.set_value(place.text);
    ASSIGN_OR_RETURN(const std::string environment, Json(text));
    entry.row->clear_environment_number();
    for (v1::Candidate& candidate : *entry.row->mutable_candidates()) {
      Candidate read;
      if (!Read(candidate, &read).ok()) continue;
      candidate.set_text(ToText(read.id));
      candidate.set_deterministic(read.deterministic());
      candidate.clear_kind();
    }
    ASSIGN_OR_RETURN(const std::string tuning, Json(*entry.row));
    RETURN_IF_ERROR(sink(Concat("{\"environment\":", environment, ",\"tuning\":", tuning, "}\n")));
  }
  return CheckBundleSignature(reader->trailer(), trusted, reader->name());
}

}  // namespace convtune::db::bundle
