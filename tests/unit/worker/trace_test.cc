#include "server/worker/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "server/worker/session.h"
#include "tests/unit/worker/fake_backend.h"

namespace convtune::worker {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr char kProblem[] =
    "fwd,x=1x8x16x16,w=8x8x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32";

class TraceTest : public testing::Test {
 protected:
  TraceTest() : path_(testing::TempDir() + "convtune_trace_" + std::to_string(getpid())) {
    unlink(path_.c_str());
    setenv(Trace::kVariable, path_.c_str(), 1);
  }
  ~TraceTest() override {
    unsetenv(Trace::kVariable);
    unlink(path_.c_str());
  }

  static std::unique_ptr<Trace> Open() {
    absl::StatusOr<std::unique_ptr<Trace>> trace = Trace::FromEnvironment();
    EXPECT_TRUE(trace.ok()) << trace.status();
    return trace.ok() ? *std::move(trace) : nullptr;
  }

  // Every line, without who wrote it when.
  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    std::ifstream file(path_);
    for (std::string text; std::getline(file, text);) {
      Json line = Json::parse(text);
      EXPECT_EQ(line["pid"], getpid());
      EXPECT_GT(line["unix_us"], 1e15);
      line.erase("pid");
      line.erase("unix_us");
      lines.push_back(line);
    }
    return lines;
  }

  std::vector<std::string> Kinds() const {
    std::vector<std::string> kinds;
    for (const Json& line : Lines()) kinds.push_back(line["kind"]);
    return kinds;
  }

  const std::string path_;
};

TEST_F(TraceTest, ASessionPutsAllThatItMeasured) {
  FakeBackend backend;
  backend.Add(5).checked->set_capture(convtune::v1::CAPTURE_SUPPORT_NO);
  backend.candidates[0].checked->set_capture_refusal("begin a capture: \"no\"");
  const std::unique_ptr<Trace> trace = Open();
  Session session(&backend, trace.get());
  std::vector<worker::v1::Request> requests(5);
  requests[0].mutable_hello()->set_version(CONVTUNE_VERSION);
  requests[1].mutable_open_problem()->set_problem_text(kProblem);
  requests[1].mutable_open_problem()->set_listing(worker::v1::LISTING_HEURISTICS);
  requests[1].mutable_open_problem()->set_graph_api(true);
  requests[2].mutable_prepare();
  requests[3].mutable_check();
  for (size_t i = 2; i < 5; ++i) requests[i].add_indexes(0);
  requests[4].mutable_measure()->set_rounds(1);
  for (const worker::v1::Request& request : requests) {
    EXPECT_TRUE(
        session.Handle(request, [](const worker::v1::Reply&) { return absl::OkStatus(); }).ok());
  }
  EXPECT_THAT(Kinds(), ElementsAre("worker", "problem", "prepared", "check", "conditions", "sample",
                                   "conditions"));
  auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(7));
  EXPECT_EQ(lines[0]["trace"], Trace::kFormatVersion);
  EXPECT_EQ(lines[0]["environment"], backend.environment().ToText());
  EXPECT_EQ(lines[1]["problem"], kProblem);
  EXPECT_EQ(lines[2]["candidate"], "graph:eng5");
  EXPECT_GE(lines[2]["took_us"], 0);
  EXPECT_EQ(lines[2]["over_memory"], false);
  EXPECT_EQ(lines[3]["capture"], "no");
  EXPECT_EQ(lines[3]["capture_refusal"], "begin a capture: \"no\"");
  EXPECT_EQ(lines[4]["known"], false);
  EXPECT_EQ(lines[5]["index"], 0);
  EXPECT_EQ(lines[5]["candidate"], "graph:eng5");
  EXPECT_EQ(lines[5]["launch"], "eager");
  EXPECT_EQ(lines[5]["cache_state"], "input_hot");
  EXPECT_EQ(lines[5]["gpu_us"], 5);
}

TEST_F(TraceTest, WhatIsKnownOfTheCardIsThereWhereItsProcessesAreNotSeen) {
  ConditionsLook look;
  look.conditions.known = true;
  look.conditions.clock_reasons = 32;
  const std::unique_ptr<Trace> trace = Open();
  trace->PutConditions(look);
  look.unknown_reason = "NVML lists \"nobody\"";
  trace->PutConditions(look);
  auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_FALSE(lines[0].contains("unknown_reason"));
  EXPECT_EQ(lines[1]["known"], true);
  EXPECT_EQ(lines[1]["clock_reasons"], 32);
  EXPECT_EQ(lines[1]["unknown_reason"], "NVML lists \"nobody\"");
}

TEST_F(TraceTest, WhatWasGivenUpHasNoSecondRun) {
  worker::v1::Checked slow;
  slow.set_hopeless(true);
  slow.set_first_gpu_us(90'000);
  const std::unique_ptr<Trace> trace = Open();
  trace->PutChecked(0, EngineConfig{5, {}}, slow);
  auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0]["first"]["gpu_us"], 90'000);
  EXPECT_FALSE(lines[0].contains("second"));
}

TEST_F(TraceTest, ASampleHasWhatTheTimerSaw) {
  TimedRun run = {123456.75, 2.5, 1500};
  run.blocked = true;
  run.runs = 16;
  run.gave_up = 1;
  run.stamps = {{{1'000'000, 1000}, {1'100'000, 151'000}}};
  const std::unique_ptr<Trace> trace = Open();
  worker::v1::Measure how;
  how.set_launch(convtune::v1::LAUNCH_MODE_GRAPH_CAPTURE);
  how.set_cache_state(convtune::v1::CACHE_STATE_COLD);
  trace->PutSample(7, EngineConfig{5, {}}, 3, how, run);
  EXPECT_THAT(Lines(), ElementsAre(Json::parse(R"({
      "kind": "sample", "index": 7, "candidate": "graph:eng5", "round": 3,
      "launch": "graph_capture", "cache_state": "cold", "runs": 16, "gpu_us": 123456.75,
      "host_us": 2.5, "sm_clock_mhz": 1500, "blocked": true, "gave_up": 1,
      "stamps": [[1000000, 1000], [1100000, 151000]]})")));
}

TEST_F(TraceTest, ACheckHasWhatWasComputedAndBothTimes) {
  worker::v1::Checked checked;
  checked.set_first_gpu_us(5000);
  checked.set_first_host_us(4000);
  checked.set_gpu_us(20);
  checked.set_host_us(6);
  checked.set_error(std::numeric_limits<double>::infinity());
  checked.set_magnitude(2);
  checked.set_nonfinite(9);
  checked.set_out_of_bounds("output: 2 bytes");
  checked.set_capture(convtune::v1::CAPTURE_SUPPORT_YES);
  const std::unique_ptr<Trace> trace = Open();
  trace->PutChecked(0, EngineConfig{5, {}}, checked);
  checked.clear_error();
  trace->PutChecked(0, EngineConfig{5, {}}, checked);
  auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0], Json::parse(R"({
      "kind": "check", "index": 0, "candidate": "graph:eng5", "error": "inf", "magnitude": 2,
      "nonfinite": 9, "out_of_bounds": "output: 2 bytes", "capture": "yes", "capture_refusal": "",
      "first": {"gpu_us": 5000, "host_us": 4000}, "second": {"gpu_us": 20, "host_us": 6}})"));
  EXPECT_TRUE(lines[1]["error"].is_null());
}

TEST_F(TraceTest, FailuresAreInTheirOwnWords) {
  const std::unique_ptr<Trace> trace = Open();
  trace->PutChecked(0, EngineConfig{5, {}}, absl::InternalError("it fell over"));
  trace->PutSample(0, EngineConfig{5, {}}, 0, {}, absl::InternalError("it fell over"));
  for (const Json& line : Lines()) EXPECT_EQ(line["failure"], "it fell over");
  EXPECT_THAT(Kinds(), ElementsAre("check", "sample"));
}

TEST_F(TraceTest, WorkersShareAFile) {
  const std::unique_ptr<Trace> first = Open();
  const std::unique_ptr<Trace> second = Open();
  first->PutProblem("a");
  second->PutProblem("b");
  first->PutProblem("c");
  EXPECT_THAT(Kinds(), ElementsAre("problem", "problem", "problem"));
}

TEST_F(TraceTest, WithoutTheVariableThereIsNone) {
  setenv(Trace::kVariable, "", 1);
  EXPECT_EQ(Open(), nullptr);
  unsetenv(Trace::kVariable);
  EXPECT_EQ(Open(), nullptr);
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(TraceTest, AFileThatCannotBeWrittenIsAnError) {
  setenv(Trace::kVariable, "/nowhere/trace", 1);
  EXPECT_EQ(Trace::FromEnvironment().status().message(),
            "CONVTUNE_TRACE: /nowhere/trace: No such file or directory");
  setenv(Trace::kVariable, "trace", 1);
  EXPECT_THAT(std::string(Trace::FromEnvironment().status().message()),
              HasSubstr("must be an absolute path"));
}

TEST_F(TraceTest, ADiskThatIsFullEndsTheTraceAndNothingElse) {
  setenv(Trace::kVariable, "/dev/full", 1);
  const std::unique_ptr<Trace> trace = Open();
  testing::internal::CaptureStderr();
  trace->PutProblem("a");
  trace->PutProblem("b");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "convtune-worker: CONVTUNE_TRACE: /dev/full: No space left on device; nothing more is "
            "traced\n");
}

}  // namespace
}  // namespace convtune::worker
