// Devices of one GPU, each with another cuDNN.
#include "gmock/gmock.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::tuner {
namespace {

using ::testing::HasSubstr;

constexpr char kOlder[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";
constexpr char kNewer[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.28.1,lib=full";

class SharedGpuTest : public TunerTest {
 protected:
  // Each environment's device; both on the GPU of that name.
  Tuner& StartOn(const std::string& gpu, const std::string& other_gpu,
                 const std::string& script = "measure_delay_ms=20") {
    AddDevice(script, kOlder);
    AddDevice(script, kNewer);
    options_.devices[0].gpu = gpu;
    options_.devices[1].gpu = other_gpu;
    return Start();
  }
  std::string CreateIn(const std::string& environment, std::vector<ConvProblem> problems) {
    jobs::JobRequest request;
    request.environment = environment;
    request.problems = std::move(problems);
    return tuner_->CreateJob(request).value().name();
  }
  // Problems that a worker began before another had closed its own.
  int Overlaps() const {
    std::ifstream log(Path("log"));
    std::string open;
    int overlaps = 0;
    for (std::string line; std::getline(log, line);) {
      const std::string kind = line.substr(0, line.find(' '));
      const std::string problem = line.substr(line.find(' ') + 1);
      if (kind == "hello" || problem.empty()) continue;
      overlaps += !open.empty() && problem != open;
      open = kind == "close" ? "" : problem;
    }
    return overlaps;
  }
  void TuneInBoth() {
    const std::string first = CreateIn(kOlder, {Problem(1), Problem(2), Problem(3)});
    const std::string second = CreateIn(kNewer, {Problem(4), Problem(5), Problem(6)});
    EXPECT_EQ(WaitFor(first).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(WaitFor(second).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_GE(Requests("measure"), 6);
  }
};

TEST_F(SharedGpuTest, TwoWorkersNeverMeasureAtOnce) {
  StartOn("gpu:0", "gpu:0");
  TuneInBoth();
  EXPECT_EQ(Overlaps(), 0);
  // One has ended its worker for the other's.
  int running = 0;
  for (const v1::Device& device : tuner_->ListDevices()) running += device.worker_pid() != 0;
  EXPECT_EQ(running, 1);
}

TEST_F(SharedGpuTest, WorkersOfTwoGpusDo) {
  StartOn("gpu:0", "gpu:1");
  TuneInBoth();
  EXPECT_GT(Overlaps(), 0);
}

TEST_F(SharedGpuTest, ALookUpStartsNothingAndNamesWhatToChooseFrom) {
  StartOn("gpu:0", "gpu:0");
  const auto ambiguous = Lookup(Request({Problem(1)}, jobs::OnMiss::kNone));
  EXPECT_THAT(std::string(ambiguous.status().message()),
              AllOf(HasSubstr(kOlder), HasSubstr(kNewer)));
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
  request.program.cudnn = {9, 28, 1};
  const auto found = Lookup(std::move(request));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->environment.ToText(), kNewer);
  for (const v1::Device& device : tuner_->ListDevices()) EXPECT_EQ(device.worker_starts(), 0);
  EXPECT_EQ(tuner_->ListDevices()[1].environment(), kNewer);
}

TEST_F(SharedGpuTest, TheWorkOfAProgramsCudnnIsDoneByItsWorker) {
  StartOn("gpu:0", "gpu:0");
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kTune);
  request.program.cudnn = {9, 28, 1};
  const auto found = Lookup(std::move(request));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->results[0].row.has_answer());
  EXPECT_EQ(tuner_->ListDevices()[0].worker_starts(), 0);
  EXPECT_EQ(tuner_->ListDevices()[1].worker_starts(), 1);
  // For the other cuDNN it is no answer.
  lookup::LookupRequest other = Request({Problem(1)}, jobs::OnMiss::kNone);
  other.environment = kOlder;
  EXPECT_TRUE(Lookup(std::move(other))->results[0].row.has_miss());
}

TEST_F(SharedGpuTest, LateWorkGivesWayToTheOtherCudnn) {
  options_.hang_timeout = absl::Seconds(3);
  options_.late_work_timeout = absl::Milliseconds(100);
  StartOn("gpu:0", "gpu:0",
          absl::StrCat("index=2;where=measure;fault=hang;problem=", Problem(1).ToText()));
  jobs::JobRequest request = Within(absl::Milliseconds(400));
  request.environment = kOlder;
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  // The candidate that hung is tried alone from when its worker is given up.
  ASSERT_TRUE(Eventually([this] { return tuner_->ListDevices()[0].worker_deaths() == 1; }));
  EXPECT_EQ(WaitFor(CreateIn(kNewer, {Problem(4)})).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(store_.ListQuarantine()->empty());
}

TEST_F(SharedGpuTest, AJobThatWaitsForTheGpuIsCancelled) {
  StartOn("gpu:0", "gpu:0", "measure_delay_ms=200");
  const std::string first = CreateIn(kOlder, {Problem(1), Problem(2)});
  ASSERT_TRUE(Eventually([&] { return Requests("measure") > 0; }));
  const std::string second = CreateIn(kNewer, {Problem(4)});
  ASSERT_TRUE(tuner_->jobs().Cancel(second).ok());
  EXPECT_EQ(WaitFor(second).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(tuner_->jobs().Cancel(first).ok());
  EXPECT_EQ(WaitFor(first).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(tuner_->ListDevices()[1].worker_starts(), 0);
}

}  // namespace
}  // namespace convtune::tuner
