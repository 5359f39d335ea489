#include "server/rpc/services/bundle_export.h"

#include <utility>

#include "proto/base/status_macros.h"
#include "server/rpc/messages/proto_converter.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr int kPageSize = 1000;

}  // namespace

BundleExport::BundleExport(tuner::Tuner* tuner, std::string environment, bool with_samples,
                           bool with_simulated)
    : tuner_(tuner),
      with_simulated_(with_simulated || !environment.empty()),
      environment_(std::move(environment)),
      known_(tuner->ListEnvironments()),
      writer_({.with_samples = with_samples}, [this](std::string_view bytes) {
        piece_ += bytes;
        return absl::OkStatus();
      }) {}

absl::Status BundleExport::NextPage() {
  const TuningKey after = page_.more ? page_.last() : TuningKey();
  ASSIGN_OR_RETURN(page_, tuner_->ListTunings(environment_, kPageSize, after, ""));
  next_ = 0;
  return absl::OkStatus();
}

absl::Status BundleExport::AddNext() {
  const TuningKey key = page_.tunings[next_++]->tuning.key.Whole();
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(key.problem_text));
  absl::StatusOr<Tuning> tuning = tuner_->GetTuning(key.environment_text, problem);
  // It may have been deleted since, and another alignment's found in its place.
  if (absl::IsNotFound(tuning.status()) || (tuning.ok() && !(tuning->key == key))) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(tuning.status());
  const Environment environment =
      messages::FindEnvironment(known_, key.environment_text).environment;
  if (!with_simulated_ && environment.simulated()) return absl::OkStatus();
  return writer_.Add(*tuning, environment);
}

absl::StatusOr<std::string> BundleExport::NextPiece() {
  if (!finished_ && writer_.offset() == 0 && page_.tunings.empty()) RETURN_IF_ERROR(NextPage());
  while (!finished_ && piece_.size() < kPieceBytes) {
    if (next_ < page_.tunings.size()) {
      RETURN_IF_ERROR(AddNext());
    } else if (page_.more) {
      RETURN_IF_ERROR(NextPage());
    } else {
      RETURN_IF_ERROR(writer_.Finish());
      finished_ = true;
    }
  }
  return std::exchange(piece_, std::string());
}

}  // namespace convtune::rpc::services
