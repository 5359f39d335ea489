// A tuner that does what a test says.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/strings.h"
#include "proto/convert/ban_proto.h"
#include "proto/convert/record_codec.h"
#include "proto/convert/terms_proto.h"
#include "proto/model/violation.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc {

inline Environment TestEnvironment() {
  return Environment::Parse("nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full").value();
}

inline Candidate TestCandidate(const std::string& text, double median_us) {
  Candidate candidate;
  candidate.id = ParseCandidateId(text).value();
  candidate.status = CandidateStatus::kTimed;
  candidate.samples_ns = {SampleNs(median_us)};
  candidate.median_us = candidate.q1_us = candidate.q3_us = median_us;
  candidate.sample_count = 1;
  return candidate;
}

// Thread-safe. Look-ups wait until Release, unless `answer_at_once`.
class FakeTuner : public tuner::Tuner {
 public:
  FakeTuner() : Tuner(&kClock) {}

  bool answer_at_once = false;
  // Of every answer.
  bool persisted = true;
  bool stands_in = false;
  // That each list has; several are long, more than 4 MiB together.
  size_t rows = 1;
  // Given by every method that can fail, if it is not OK.
  absl::Status failure;
  std::vector<Ban> bans;          // each of 7 tunings
  int64_t deleted_fleet_ban = 0;  // that was asked for last

  absl::StatusOr<v1::ApplyTuningsResponse> ApplyFleetTunings(const db::TuningSource&) override {
    return v1::ApplyTuningsResponse();
  }

  uint64_t Lookup(lookup::LookupRequest request, lookup::LookupCallback done) override {
    uint64_t token = 0;
    {
      MutexLock lock(mutex_);
      token = next_token_++;
      last_request_ = request;
      if (!answer_at_once && failure.ok()) {
        waiting_.emplace(token, std::make_pair(std::move(request), std::move(done)));
        return token;
      }
    }
    done(Answer(request));
    return token;
  }

  void EndLookup(uint64_t token, bool keep_work) override {
    std::optional<lookup::LookupCallback> done;
    {
      MutexLock lock(mutex_);
      ++(keep_work ? left_ : abandoned_);
      const auto found = waiting_.find(token);
      if (found != waiting_.end()) {
        if (!keep_work) done = std::move(found->second.second);
        waiting_.erase(found);
      }
    }
    if (done.has_value()) {
      (*done)(absl::CancelledError("the caller went away"));
    }
  }
  int left() {
    MutexLock lock(mutex_);
    return left_;
  }

  // Answers everybody who waits.
  void Release() {
    std::map<uint64_t, std::pair<lookup::LookupRequest, lookup::LookupCallback>> waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(waiting_);
    }
    for (auto& [token, entry] : waiting) {
      entry.second(Answer(entry.first));
    }
  }

  size_t waiting() {
    MutexLock lock(mutex_);
    return waiting_.size();
  }
  int abandoned() {
    MutexLock lock(mutex_);
    return abandoned_;
  }
  std::optional<lookup::LookupRequest> last_request() {
    MutexLock lock(mutex_);
    return last_request_;
  }

  // Of the real table; nobody works on it.
  absl::StatusOr<v1::TuningJob> CreateJob(const jobs::JobRequest& request) override {
    if (!failure.ok()) return failure;
    return jobs_.Create("nvidia-h200", static_cast<int>(request.problems.size()), 0, "")->job;
  }

  absl::StatusOr<Tuning> GetTuning(const std::string&, const ConvProblem& problem) override {
    if (!failure.ok()) return failure;
    Tuning tuning;
    tuning.key = Key(problem);
    tuning.candidates = {TestCandidate("graph:eng34,k2=5", 12.5),
                         TestCandidate("legacy:algo1,math2", 20)};
    tuning.evidence = Evidence::kMeasured;
    return tuning;
  }
  std::map<CandidateId, QuarantineEntry> QuarantineOf(const TuningKey& key) override {
    QuarantineEntry entry{key,
                          LegacyAlgorithm{3, 0},
                          QuarantineReason::kHung,
                          "hung with a budget of 2s",
                          absl::FromUnixSeconds(7),
                          absl::Seconds(2),
                          4};
    return {{entry.candidate, entry}};
  }
  absl::StatusOr<lookup::TuningPage> ListTunings(const std::string&, int, const TuningKey&,
                                                 const std::string& text_filter) override {
    if (!failure.ok()) return failure;
    lookup::TuningPage page;
    for (size_t i = 0; i < rows; ++i) {
      Tuning tuning;
      tuning.key = i == 0 ? Key(ConvProblem::Parse("fwd,x=1x2x3x3,w=4x2x1x1").value()) : Row(i);
      tuning.candidates = {TestCandidate("graph:eng1", 12.5)};
      tuning.incomplete_message = i == 0 ? text_filter : std::string(5000, 'r');
      page.tunings.push_back(
          std::make_shared<const lookup::IndexedTuning>(lookup::KeepAll(tuning)));
    }
    return page;
  }
  // As if the first of them came from the fleet.
  absl::StatusOr<int64_t> DeleteTunings(const std::string&,
                                        const std::vector<ConvProblem>& problems,
                                        bool only_from_fleet) override {
    if (!failure.ok()) return failure;
    return only_from_fleet ? 1 : static_cast<int64_t>(problems.size());
  }
  absl::StatusOr<v1::ImportBundleResponse> ImportTunings(const db::TuningSource&) override {
    return v1::ImportBundleResponse();
  }
  absl::StatusOr<Pin> PutPin(const std::string&, const ConvProblem& problem,
                             const CandidatePattern& candidate, const std::string& reason,
                             std::optional<absl::Duration> ttl, int64_t fleet_pin) override {
    if (!failure.ok()) return failure;
    Pin pin{Key(problem), ParseCandidateId(candidate.ToText()).value(),
            reason,       absl::UnixEpoch(),
            std::nullopt, fleet_pin};
    if (ttl.has_value()) {
      pin.expire_time = pin.create_time + *ttl;
    }
    return pin;
  }
  absl::Status DeletePin(const std::string&, const ConvProblem&, int64_t) override {
    return failure;
  }
  absl::StatusOr<std::vector<Pin>> ListPins(const std::string&) override {
    if (!failure.ok()) return failure;
    Pin pin{Key(ConvProblem::Parse("fwd,x=1x2x3x3,w=4x2x1x1").value()), EngineConfig{1, {}}, "test",
            absl::UnixEpoch(), std::nullopt};
    std::vector<Pin> pins(rows, pin);
    for (size_t i = 1; i < rows; ++i) {
      pins[i].key = Row(i);
      pins[i].reason = std::string(500, 'r');
    }
    return pins;
  }
  absl::StatusOr<v1::CreateBanResponse> CreateBan(Ban ban, int max_changes, bool dry_run) override {
    if (!failure.ok()) return failure;
    if (!dry_run) ban.number = 3;
    v1::CreateBanResponse created;
    *created.mutable_ban() = ToProto(ban);
    for (int i = 0; i < max_changes; ++i) created.add_changes();
    return created;
  }
  absl::Status DeleteBan(int64_t number, int64_t fleet_ban) override {
    deleted_fleet_ban = fleet_ban;
    if (!failure.ok()) return failure;
    if (number == 3) return absl::OkStatus();
    return MissingError({"ban", absl::StrCat("bans/", number)}, "ban: there is none");
  }
  std::vector<v1::Ban> ListBans() override {
    std::vector<v1::Ban> listed;
    for (const Ban& ban : bans) {
      listed.push_back(ToProto(ban));
      listed.back().set_tuning_count(7);
    }
    return listed;
  }
  Bans BansOf(const TuningKey&) override {
    std::vector<Bans::Shared> all;
    for (const Ban& ban : bans) all.push_back(std::make_shared<const Ban>(ban));
    return Bans(std::move(all));
  }
  absl::StatusOr<Environment> ResolveEnvironment(const std::string&,
                                                 const Environment& program) override {
    if (!Fits(program, TestEnvironment())) return absl::FailedPreconditionError("another one");
    return TestEnvironment();
  }
  std::vector<v1::Environment> ListEnvironments() override {
    Environment environment = TestEnvironment();
    environment.gpu_model = "NVIDIA H200";
    std::vector<v1::Environment> known;
    for (size_t i = 0; i < rows; ++i) {
      if (i > 0) {
        environment.gpu_model = Concat("GPU ", i, " ", std::string(100, 'x'));
        environment.sm_count = static_cast<int>(i);
      }
      known.push_back(ToProto(environment));
      known.back().set_current(true);
    }
    return known;
  }
  std::vector<v1::Device> ListDevices() override {
    v1::Device device;
    device.set_name("gpu:0");
    device.set_environment("nvidia-h200");
    device.set_state(v1::DEVICE_STATE_READY);
    return {device};
  }
  tuner::TunerStats Stats() override {
    tuner::TunerStats stats;
    stats.info.set_lookups(7);
    stats.info.set_writable(true);
    return stats;
  }
  void Drain(SteadyTime) override { Release(); }

  static TuningKey Key(const ConvProblem& problem) {
    return {problem.ToText(), TestEnvironment().ToText()};
  }
  // Of a row of a long list.
  static TuningKey Row(size_t i) {
    return {Concat("fwd,x=2x2x3x3,w=", i + 1, "x2x1x1"), TestEnvironment().ToText()};
  }

 private:
  // 1x1 filters are answered, others missed.
  absl::StatusOr<lookup::LookupResponse> Answer(const lookup::LookupRequest& request) {
    if (!failure.ok()) return failure;
    lookup::LookupResponse response;
    response.environment = TestEnvironment();
    for (const ConvProblem& problem : request.problems) {
      lookup::LookupResult result;
      result.row.set_tuning_id(Key(problem).Digest().ToString());
      result.row.set_problem_text(problem.ToText());
      if (problem.w_dims()[2] == 1) {
        v1::Answer& answer = *result.row.mutable_answer();
        convtune::Fill(TestCandidate("graph:eng34,k2=5,k3=0", 12.5), problem.operation(),
                       answer.mutable_winner());
        *answer.add_portfolio() = answer.winner();
        answer.set_evidence(v1::EVIDENCE_MEASURED);
        answer.set_environment("nvidia-h200");
        answer.set_persisted(persisted);
        answer.set_stands_in(stands_in);
      } else {
        result.row.mutable_miss()->set_reason(v1::MISS_REASON_NOT_FOUND);
        result.row.mutable_miss()->set_message("nothing is known");
      }
      response.results.push_back(std::move(result));
    }
    return response;
  }

  static inline const SystemClock kClock;
  Mutex mutex_;
  uint64_t next_token_ GUARDED_BY(mutex_) = 1;
  int abandoned_ GUARDED_BY(mutex_) = 0;
  int left_ GUARDED_BY(mutex_) = 0;
  std::optional<lookup::LookupRequest> last_request_ GUARDED_BY(mutex_);
  std::map<uint64_t, std::pair<lookup::LookupRequest, lookup::LookupCallback>> waiting_
      GUARDED_BY(mutex_);
};

}  // namespace convtune::rpc
