#include "server/convtuned/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_replace.h"
#include "tests/unit/temp_dir.h"

namespace convtune::convtuned {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> WordsOf(const ProbeResult& result) {
  std::vector<std::string> words;
  for (const LeftOut& one : result.left_out) {
    words.push_back(one.what + (one.named ? ", asked for" : ""));
  }
  return words;
}

ProbeResult Probe(const ProbeOptions& options) {
  ProbeResult result;
  ProbeDevices(options, &result);
  return result;
}

const char kDevice[] =
    R"({"name":"gpu:0","environment":"nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full",)"
    R"("gpu_model":"NVIDIA H200","driver_version":"13.0","cuda_version":"13.0",)"
    R"("cublaslt_build":"a7d4","nvrtc_build":"65be",)"
    R"("gpu_uuid":"GPU-1","memory_bytes":150000000000,"error":""})";
const char kProfile[] =
    R"({"name":"profile:nvidia-l4","environment":"profile:nvidia-l4,cc=8.9,sms=58,)"
    R"(cudnn=9.19.0,lib=full","gpu_model":"NVIDIA L4","memory_bytes":1,"error":""})";

// A worker that answers to --devices and --profile with this line.
class FakeWorker {
 public:
  FakeWorker(const std::string& gpus, const std::string& profile) {
    std::ofstream(dir_.path("gpus")) << gpus << "\n";
    std::ofstream(dir_.path("profile")) << profile << "\n";
    std::ofstream(path()) << "#!/bin/sh\ncase \"$*\" in\n*--profile*) cat " << dir_.path("profile")
                          << ";;\n*) cat " << dir_.path("gpus") << ";;\nesac\n";
    chmod(path().c_str(), 0755);
  }
  std::string path() const { return dir_.path("worker"); }

 private:
  TempDir dir_;
};

TEST(ParseProbeLine, ReadsEveryField) {
  const auto device = ParseProbeLine(kDevice);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->name, "gpu:0");
  EXPECT_EQ(device->environment.gpu_model, "NVIDIA H200");
  EXPECT_EQ(device->environment.ToText(), "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  EXPECT_EQ(device->provenance.driver_version, "13.0");
  EXPECT_EQ(device->provenance.cuda_version, "13.0");
  EXPECT_EQ(device->provenance.cublaslt_build, "a7d4");
  EXPECT_EQ(device->provenance.nvrtc_build, "65be");
  EXPECT_EQ(device->provenance.gpu_uuid, "GPU-1");
  EXPECT_EQ(device->provenance.memory_bytes, 150000000000);
}

TEST(ParseProbeLine, DeviceWithAnErrorSaysIt) {
  const auto device =
      ParseProbeLine(R"({"name":"gpu:1","environment":"","error":"cuDNN not found"})");
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device.status().message(), "gpu:1: cuDNN not found");
}

TEST(ParseProbeLine, RefusesWhatIsNotSuchAnObject) {
  for (const char* line :
       {"", "nonsense", "[]", "{}", R"({"name":"gpu:0"})",
        R"({"name":"gpu:0","environment":"h200"})",
        R"({"name":"gpu:0","gpu_model":"NVIDIA L4",)"
        R"("environment":"nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full"})"}) {
    EXPECT_EQ(ParseProbeLine(line).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
}

TEST(ProbeDevices, ListsCardsThenProfilesWithTheirWorkers) {
  const FakeWorker worker(kDevice, kProfile);
  const ProbeResult result =
      Probe({.worker = worker.path(), .devices = "all", .profiles = {"/p/l4.json"}});
  EXPECT_THAT(result.left_out, IsEmpty());
  ASSERT_EQ(result.devices.size(), 2u);
  EXPECT_EQ(result.devices[0].name, "gpu:0");
  EXPECT_THAT(result.devices[0].worker_argv, ElementsAre(worker.path(), "--device", "gpu:0"));
  EXPECT_THAT(result.devices[1].worker_argv, ElementsAre(worker.path(), "--profile", "/p/l4.json"));
}

TEST(ProbeDevices, ResultsCarryTheNodesName) {
  const FakeWorker worker(kDevice, kProfile);
  const ProbeResult named = Probe({.worker = worker.path(),
                                   .devices = "all",
                                   .profiles = {"/p/l4.json"},
                                   .node = "gpu-node-7"});
  ASSERT_EQ(named.devices.size(), 2u);
  EXPECT_EQ(named.devices[0].provenance.node, "gpu-node-7");
  EXPECT_EQ(named.devices[1].provenance.node, "gpu-node-7");
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  const ProbeResult unnamed = Probe({.worker = worker.path(), .devices = "all"});
  ASSERT_EQ(unnamed.devices.size(), 1u);
  EXPECT_EQ(unnamed.devices[0].provenance.node, host);
}

TEST(ProbeDevices, LeavesOutWhatFailsAndSaysWhy) {
  const FakeWorker worker(R"({"name":"gpu:0","error":"broken"})", kProfile);
  const ProbeResult result =
      Probe({.worker = worker.path(), .devices = "all", .profiles = {"/p/l4.json", "/p/l4.json"}});
  ASSERT_EQ(result.devices.size(), 1u);
  EXPECT_THAT(WordsOf(result), ElementsAre("gpu:0: broken"));
}

TEST(ProbeDevices, WhatWasAskedForByNameIsToldFromWhatWasNot) {
  const FakeWorker worker(R"({"name":"gpu:0","error":"broken"})",
                          R"({"name":"profile:l4","error":"no cuDNN"})");
  ProbeOptions options{.worker = worker.path(), .devices = "0", .profiles = {"/p/l4.json"}};
  EXPECT_THAT(WordsOf(Probe(options)),
              ElementsAre("gpu:0: broken, asked for", "profile:l4: no cuDNN, asked for"));
  options.devices = "none";
  EXPECT_THAT(WordsOf(Probe(options)), ElementsAre("profile:l4: no cuDNN, asked for"));
}

TEST(ProbeDevices, AProgramThatSaysNothingIsNoWorker) {
  ProbeOptions options{.worker = "/bin/true", .devices = "0", .profiles = {"/p/l4.json"}};
  const std::string nothing = ": /bin/true --probe said nothing: is it convtune-worker?, asked for";
  EXPECT_THAT(WordsOf(Probe(options)), ElementsAre("GPUs" + nothing, "/p/l4.json" + nothing));
  // Of all GPUs there may be none.
  options.devices = "all";
  EXPECT_THAT(WordsOf(Probe(options)), ElementsAre("/p/l4.json" + nothing));
}

TEST(ProbeDevices, WithoutAWorkerThereAreNone) {
  ProbeOptions options{.worker = "/no/such/worker", .devices = "all", .profiles = {"/p/l4.json"}};
  const ProbeResult result = Probe(options);
  EXPECT_TRUE(result.devices.empty());
  EXPECT_THAT(WordsOf(result),
              ElementsAre(AllOf(HasSubstr("/no/such/worker"), Not(HasSubstr("asked for"))),
                          AllOf(HasSubstr("l4.json"), HasSubstr("asked for"))));
  options.worker_named = true;
  EXPECT_THAT(WordsOf(Probe(options)), Each(HasSubstr("asked for")));
}

TEST(ProbeDevices, AnotherCudnnMakesAnotherDeviceOfTheSameGpu) {
  const auto with = [](const std::string& cudnn) {
    return absl::StrReplaceAll(kDevice, {{"cudnn=9.19.0", "cudnn=" + cudnn}});
  };
  const FakeWorker older(with("9.19.0"), ""), newer(with("9.28.1"), "");
  ProbeResult result;
  for (const FakeWorker* worker : {&older, &newer, &newer, &older}) {
    ProbeDevices({.worker = worker->path(), .devices = "all"}, &result);
  }
  EXPECT_THAT(result.left_out, IsEmpty());
  ASSERT_EQ(result.devices.size(), 2u);
  EXPECT_EQ(result.devices[0].name, "gpu:0");
  EXPECT_EQ(result.devices[1].name, "gpu:0@9.28.1");
  EXPECT_EQ(result.devices[1].gpu, "gpu:0");
}

TEST(ProbeDevices, NoneAsksForNothing) {
  const ProbeResult result = Probe({.worker = "/no/such/worker", .devices = "none"});
  EXPECT_TRUE(result.devices.empty());
  EXPECT_THAT(result.left_out, IsEmpty());
}

}  // namespace
}  // namespace convtune::convtuned
