// convtune-make-bundle COUNT FILE: a bundle of COUNT tunings that are made up,
// each with 12 candidates, of which 8 are timed (3 with 30 samples, 5 with 5),
// 2 were refused and 2 had no turn. Where FILE is a folder, a database with them
// there, as a daemon has it that took the bundle in.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "db/bundle/bundle_writer.h"
#include "db/store/sqlite_store.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace {

using convtune::Environment;
using convtune::Tuning;

Tuning MadeUp(int64_t n, const std::string& environment) {
  Tuning tuning;
  // Digits of equal length, so that text order is number order.
  tuning.key.problem_text = "fwd,x=" + std::to_string(1'000'000 + n) +
                            "x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,"
                            "nhwc,f16,acc=f32";
  tuning.key.environment_text = environment;
  tuning.provenance = {"580.65", "13.0", "GPU-1", "node-a", int64_t{141} << 30};
  tuning.evidence = convtune::Evidence::kMeasured;
  tuning.tune_time = absl::FromUnixSeconds(1'760'000'000 + n);
  tuning.elapsed = absl::Seconds(3);
  for (int i = 0; i < 12; ++i) {
    convtune::Candidate candidate;
    candidate.id = convtune::EngineConfig{10 + i, {{2, i}, {13, n % 4}, {14, 3}}};
    candidate.numerical_notes = convtune::NoteBit(convtune::NumericalNote::kTensorCore);
    candidate.workspace_bytes = i * 4096;
    candidate.heuristic_rank = i;
    if (i < 8) {
      candidate.status = convtune::CandidateStatus::kTimed;
      const int samples = i < 3 ? 30 : 5;
      for (int s = 0; s < samples; ++s) {
        candidate.samples_ns.push_back(20'000 + 1000 * i + 10 * s);
      }
      convtune::SummarizeSamples(&candidate);
    } else {
      candidate.status = i < 10 ? convtune::CandidateStatus::kUnsupported
                                : convtune::CandidateStatus::kSkippedBudget;
      if (i < 10) candidate.error_message = "CUDNN_STATUS_NOT_SUPPORTED";
    }
    tuning.candidates.push_back(candidate);
  }
  return tuning;
}

absl::Status WriteBundle(int64_t count, const Environment& environment, std::FILE* file) {
  convtune::db::bundle::BundleWriter writer([file](std::string_view bytes) {
    return std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size()
               ? absl::OkStatus()
               : absl::UnavailableError("the file cannot be written");
  });
  for (int64_t n = 0; n < count; ++n) {
    RETURN_IF_ERROR(writer.Add(MadeUp(n, environment.ToText()), environment));
  }
  return writer.Finish();
}

absl::Status WriteDatabase(int64_t count, const Environment& environment,
                           const std::string& folder) {
  const convtune::SystemClock clock;
  convtune::db::store::SqliteStore::Options options;
  options.state_dir = folder;
  options.clock = &clock;
  ASSIGN_OR_RETURN(const auto store, convtune::db::store::SqliteStore::Open(std::move(options)));
  int64_t next = 0;
  RETURN_IF_ERROR(
      store->PutTunings([&]() -> absl::StatusOr<std::optional<convtune::db::TuningRecord>> {
        if (next == count) return std::nullopt;
        Tuning tuning = MadeUp(next++, environment.ToText());
        tuning.origin = convtune::Origin::kImported;
        return convtune::db::TuningRecord{std::move(tuning), environment};
      }));
  return store->Close();
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t count = argc == 3 ? std::atoll(argv[1]) : 0;
  if (count < 1 || count > 8'000'000) {
    std::fprintf(stderr, "usage: convtune-make-bundle COUNT FILE|FOLDER (COUNT 1 to 8000000)\n");
    return 2;
  }
  Environment environment;
  environment.gpu_model = "NVIDIA H200";
  environment.cc_major = 9;
  environment.sm_count = 132;
  environment.cudnn = {9, 19, 0};
  environment.library = convtune::LibraryConfiguration::kFull;
  absl::Status status;
  if (std::filesystem::is_directory(argv[2])) {
    status = WriteDatabase(count, environment, argv[2]);
  } else {
    std::FILE* const file = std::fopen(argv[2], "wb");
    if (file == nullptr) {
      std::perror(argv[2]);
      return 1;
    }
    status = WriteBundle(count, environment, file);
    if (std::fclose(file) != 0 && status.ok()) {
      status = absl::UnavailableError("the file cannot be closed");
    }
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
