// A tuner with the fake worker behind it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "server/tuner/tuner.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/candidates.h"

namespace convtune::tuner {

inline constexpr char kProfile[] = "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";

class TunerTest : public ::testing::Test {
 protected:
  TunerTest() {
    std::string pattern = ::testing::TempDir() + "/convtune-tuner-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) directory_ = pattern;
    options_.store = &store_;
    options_.clock = &clock_;
    options_.backoff_initial = absl::Milliseconds(10);
    options_.backoff_max = absl::Milliseconds(40);
  }
  ~TunerTest() override {
    if (tuner_ != nullptr) tuner_->Drain(SteadyTime::Now());
    unlink(Path("log").c_str());
    unlink(Path("once").c_str());
    rmdir(directory_.c_str());
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  // Adds a device whose worker follows `script`; see fake_script.proto.
  void AddDevice(const std::string& script, const std::string& environment = kH200,
                 const std::string& program = CONVTUNE_FAKE_WORKER) {
    devices::DeviceSpec device;
    device.name = absl::StrCat("gpu:", options_.devices.size());
    device.environment = Environment::Parse(environment).value();
    device.provenance.driver_version = driver_;
    device.worker_argv = {program, "--environment", environment, "--script",
                          absl::StrCat("log=", Path("log"), ";", script)};
    options_.devices.push_back(device);
  }
  Tuner& Start() {
    auto tuner = Tuner::Create(options_);
    EXPECT_TRUE(tuner.ok()) << tuner.status();
    tuner_ = *std::move(tuner);
    return *tuner_;
  }
  // With one device.
  Tuner& Start(const std::string& script, const std::string& environment = kH200) {
    AddDevice(script, environment);
    return Start();
  }
  // Another tuner, with one device, on the same store.
  Tuner& Restart(const std::string& script, const std::string& environment = kH200) {
    if (tuner_ != nullptr) tuner_->Drain(SteadyTime::Now());
    options_.devices.clear();
    return Start(script, environment);
  }

  static ConvProblem Problem(int n) {
    return ConvProblem::Parse(absl::StrCat("fwd,x=", n, "x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"))
        .value();
  }
  static lookup::LookupRequest Request(std::vector<ConvProblem> problems, jobs::OnMiss on_miss) {
    lookup::LookupRequest request;
    request.problems = std::move(problems);
    request.demand.on_miss = on_miss;
    return request;
  }
  absl::StatusOr<lookup::LookupResponse> Lookup(lookup::LookupRequest request) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<lookup::LookupResponse>>>();
    auto future = promise->get_future();
    tuner_->Lookup(std::move(request), [promise](absl::StatusOr<lookup::LookupResponse> response) {
      promise->set_value(std::move(response));
    });
    return future.get();
  }
  v1::BatchGetResult LookupOne(const ConvProblem& problem, jobs::OnMiss on_miss) {
    return Lookup(Request({problem}, on_miss)).value().results.at(0).row;
  }
  v1::TuningJob Create(std::vector<ConvProblem> problems, bool force = false) {
    jobs::JobRequest request;
    request.problems = std::move(problems);
    if (force) request.demand.max_age = absl::ZeroDuration();
    return tuner_->CreateJob(request).value();
  }
  // Blocks until the job ended.
  v1::TuningJob WaitFor(const std::string& job) {
    auto promise = std::make_shared<std::promise<v1::TuningJob>>();
    auto future = promise->get_future();
    EXPECT_TRUE(tuner_->jobs()
                    .Watch(job,
                           [promise](const v1::TuningJob& snapshot, bool) {
                             if (jobs::HasEnded(snapshot)) promise->set_value(snapshot);
                           })
                    .ok());
    return future.get();
  }
  v1::TuningJob Tune(std::vector<ConvProblem> problems, bool force = false) {
    return WaitFor(Create(std::move(problems), force).name());
  }
  v1::TuningJob RunJob(const jobs::JobRequest& request) {
    return WaitFor(tuner_->CreateJob(request).value().name());
  }
  // A job of Problem(n) within this budget.
  static jobs::JobRequest Within(absl::Duration budget, int n = 1) {
    jobs::JobRequest request;
    request.problems = {Problem(n)};
    request.demand.options.time_budget = budget;
    return request;
  }
  Tuning Tuned() { return tuner_->GetTuning("", Problem(1)).value(); }
  // Restarts with this script, and tunes Problem(1), whatever is known of it.
  Tuning TuneOn(const std::string& script) {
    Restart(script);
    const v1::TuningJob job = Tune({Problem(1)}, /*force=*/true);
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED)
        << (job.failures().empty() ? "" : job.failures(0).reason());
    return Tuned();
  }
  // Polls; false after a long while.
  template <typename Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }
  // Requests of this kind that workers got.
  int Requests(const std::string& kind) const {
    std::ifstream log(Path("log"));
    int count = 0;
    for (std::string line; std::getline(log, line);) count += line.rfind(kind + " ", 0) == 0;
    return count;
  }

  std::string directory_;
  std::string driver_;  // of devices that are added from now on
  SystemClock clock_;
  MemoryStore store_;
  Tuner::Options options_;
  std::unique_ptr<Tuner> tuner_;
};

}  // namespace convtune::tuner
