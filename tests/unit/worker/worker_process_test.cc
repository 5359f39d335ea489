// The program, over its socket.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/clock.h"
#include "proto/base/framing.h"
#include "proto/model/environment.h"
#include "tests/unit/worker/device/test_profile.h"

namespace convtune::worker {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kReplyTimeout = absl::Seconds(60);

class WorkerProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    profile_ = testing::TempDir() + "convtune_profile_XXXXXX";
    const int file = mkstemp(profile_.data());
    ASSERT_GE(file, 0);
    close(file);
    std::ofstream(profile_) << device::kTestProfile;
  }

  void TearDown() override {
    CloseSocket();
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    unlink(profile_.c_str());
  }

  // Starts the worker as a child of this process.
  void Start() {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      Exec(ends[1]);
    }
    close(ends[1]);
    socket_ = ends[0];
  }

  // In a child: becomes the worker.
  [[noreturn]] void Exec(int fd) {
    fcntl(fd, F_SETFD, 0);
    const std::string number = std::to_string(fd);
    const char* const kind = gpu_ ? "--device" : "--profile";
    execl(CONVTUNE_WORKER_PROGRAM, CONVTUNE_WORKER_PROGRAM, "--fd", number.c_str(), kind,
          gpu_ ? "gpu:0" : profile_.c_str(), nullptr);
    _exit(127);
  }

  void CloseSocket() {
    if (socket_ >= 0) {
      close(socket_);
      socket_ = -1;
    }
  }

  std::vector<worker::v1::Reply> Ask(const worker::v1::Request& request) {
    EXPECT_TRUE(WriteFrame(socket_, request.SerializeAsString()).ok());
    std::vector<worker::v1::Reply> replies;
    while (replies.empty() || !replies.back().last()) {
      const absl::StatusOr<std::string> frame =
          ReadFrame(socket_, SteadyTime::Now() + kReplyTimeout);
      EXPECT_TRUE(frame.ok()) << frame.status();
      worker::v1::Reply reply;
      if (!frame.ok() || !reply.ParseFromString(*frame)) {
        ADD_FAILURE() << "no reply";
        reply.set_last(true);
      }
      replies.push_back(reply);
    }
    return replies;
  }

  worker::v1::Reply Hello(const std::string& version = CONVTUNE_VERSION) {
    worker::v1::Request request;
    request.mutable_hello()->set_version(version);
    return Ask(request).back();
  }

  // The worker's exit code; -1 if a signal ended it.
  int ExitCode() {
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Output of the worker with these arguments, whose exit code goes to exit_code_.
  std::string Output(const std::string& arguments) {
    // For a shell: the checkout's path may have a space.
    FILE* output = popen(("'" CONVTUNE_WORKER_PROGRAM "' " + arguments + " 2>&1").c_str(), "r");
    EXPECT_NE(output, nullptr);
    char line[1024] = {};
    std::string text;
    while (fgets(line, sizeof(line), output) != nullptr) text += line;
    exit_code_ = WEXITSTATUS(pclose(output));
    return text;
  }

  std::string profile_;
  bool gpu_ = false;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  int socket_ = -1;
};

TEST_F(WorkerProcessTest, SaysWhoItIs) {
  Start();
  const worker::v1::Reply reply = Hello();
  EXPECT_EQ(reply.hello().version(), CONVTUNE_VERSION);
  EXPECT_THAT(reply.hello().environment_text(), HasSubstr("profile:nvidia-h200,cc=9.0,sms=132"));
  EXPECT_FALSE(reply.hello().has_gpu());
}

TEST_F(WorkerProcessTest, RefusesAnotherVersionAndEnds) {
  Start();
  EXPECT_FALSE(Hello("0.0.9").outcome().ok());
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(WorkerProcessTest, ListsAndPreparesProblemAfterProblem) {
  Start();
  Hello();
  for (const char* text : {"fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
                           "bwd_filter,x=8x32x28x28,w=32x32x3x3,pad=1"}) {
    worker::v1::Request open;
    open.mutable_open_problem()->set_problem_text(text);
    open.mutable_open_problem()->set_listing(worker::v1::LISTING_FIRST_CONFIGS);
    open.mutable_open_problem()->set_graph_api(true);
    const std::vector<worker::v1::Reply> listed = Ask(open);
    ASSERT_GT(listed.size(), 1U);
    EXPECT_TRUE(listed.back().outcome().ok()) << listed.back().outcome().message();

    worker::v1::Request prepare;
    prepare.mutable_prepare();
    for (size_t i = 0; i + 1 < listed.size(); ++i) {
      prepare.add_indexes(listed[i].index());
    }
    prepare.mutable_prepare()->set_stop_after(1);
    const std::vector<worker::v1::Reply> prepared = Ask(prepare);
    ASSERT_GE(prepared.size(), 3U);
    EXPECT_TRUE(prepared[0].has_touching());
    EXPECT_TRUE(prepared[prepared.size() - 2].prepared().ok());
  }
  worker::v1::Request close;
  close.mutable_close_problem();
  EXPECT_TRUE(Ask(close).back().outcome().ok());
}

TEST_F(WorkerProcessTest, EndsWithZeroWhenTheDaemonClosesTheSocket) {
  Start();
  Hello();
  CloseSocket();
  EXPECT_EQ(ExitCode(), 0);
}

TEST_F(WorkerProcessTest, ABrokenMessageEndsItWithOne) {
  Start();
  Hello();
  ASSERT_TRUE(WriteFrame(socket_, "\xff\xff\xff").ok());
  EXPECT_EQ(ExitCode(), 1);
}

// The daemon's end of the socket stays open here, so that only the parent's
// death can be what ends the worker.
TEST_F(WorkerProcessTest, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  int pids[2];
  ASSERT_EQ(pipe(pids), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const pid_t child = fork();
    if (child == 0) {
      close(pids[0]);
      close(pids[1]);
      Exec(ends[1]);
    }
    [[maybe_unused]] const ssize_t written = write(pids[1], &child, sizeof(child));
    pause();
    _exit(0);
  }
  pid_t child = -1;
  ASSERT_EQ(read(pids[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  close(pids[0]);
  close(pids[1]);
  socket_ = ends[0];
  close(ends[1]);
  EXPECT_TRUE(Hello().has_hello());

  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  const absl::StatusOr<std::string> frame = ReadFrame(socket_, SteadyTime::Now() + kReplyTimeout);
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(WorkerProcessTest, WhatKeepsItFromStartingIsTheAnswerToTheHandshake) {
  std::ofstream(profile_) << "{}";
  Start();
  const worker::v1::Reply reply = Hello();
  ASSERT_TRUE(reply.has_outcome());
  EXPECT_FALSE(reply.outcome().ok());
  EXPECT_THAT(reply.outcome().message(), HasSubstr(profile_));
  EXPECT_EQ(ExitCode(), 1);
}

// A folder with a library of cuDNN that is also elsewhere.
class MixedCudnnTest : public WorkerProcessTest {
 protected:
  void SetUp() override {
    WorkerProcessTest::SetUp();
    folder_ = testing::TempDir() + "convtune_cudnn_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    copy_ = folder_ + "/libcudnn_heuristic.so.9";
    std::filesystem::copy_file(
        std::filesystem::canonical(std::string(CONVTUNE_CUDNN_FOLDER) + "/libcudnn_heuristic.so.9"),
        copy_);
    setenv("LD_LIBRARY_PATH", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LD_LIBRARY_PATH");
    std::filesystem::remove_all(folder_);
    WorkerProcessTest::TearDown();
  }

  std::string folder_, copy_;
};

TEST_F(MixedCudnnTest, TheOddOneIsNamedAndNoSessionBegins) {
  Start();
  const worker::v1::Reply reply = Hello();
  ASSERT_TRUE(reply.has_outcome());
  EXPECT_FALSE(reply.outcome().ok());
  EXPECT_THAT(reply.outcome().message(), HasSubstr("cuDNN's libraries are mixed: "));
  EXPECT_THAT(reply.outcome().message(), HasSubstr("libcudnn_heuristic.so.9 of folder " + folder_));
}

TEST_F(WorkerProcessTest, ADriverThatIsTooOldIsSaidInTheSameWordsEverywhere) {
  setenv("LD_LIBRARY_PATH", CONVTUNE_OLD_DRIVER_FOLDER, 1);
  gpu_ = true;
  Start();
  const worker::v1::Reply reply = Hello();
  const std::string all = Output("--probe --devices all");
  const std::string one = Output("--probe --devices 0");
  const std::string dump = Output("--dump-profile --device gpu:0");
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_FALSE(reply.outcome().ok());
  const std::string& words = reply.outcome().message();
  EXPECT_THAT(words, HasSubstr("the driver is for CUDA up to 11.8, this worker is built for CUDA"));
  EXPECT_THAT(all, HasSubstr("\"name\":\"GPUs\""));
  EXPECT_THAT(all, HasSubstr(words));
  EXPECT_THAT(one, HasSubstr("\"name\":\"gpu:0\""));
  EXPECT_THAT(one, HasSubstr(words));
  EXPECT_THAT(dump, HasSubstr(words));
}

TEST_F(WorkerProcessTest, TheDriverIsNotToldToLeaveTheClocksDown) {
  setenv("LD_LIBRARY_PATH", CONVTUNE_OLD_DRIVER_FOLDER, 1);
  setenv("CUDA_DISABLE_PERF_BOOST", "1", 1);
  const std::string output = Output("--dump-profile --device gpu:0");
  unsetenv("CUDA_DISABLE_PERF_BOOST");
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_THAT(output, HasSubstr("the driver is for CUDA up to 11.8"));
  EXPECT_THAT(output, testing::Not(HasSubstr("clocks are not kept up")));
}

// What of `name` the process has mapped.
bool HasMapped(pid_t pid, const std::string& name) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (absl::StrContains(line, name)) return true;
  }
  return false;
}

TEST_F(WorkerProcessTest, BringsADriverStubWhereCudnnNeedsOneAndThereIsNoDriver) {
  const bool has_driver = dlopen("libcuda.so.1", RTLD_LAZY) != nullptr;
  Start();
  const worker::v1::Reply reply = Hello();
  const Environment environment = Environment::Parse(reply.hello().environment_text()).value();
  const bool needs_one = environment.cudnn.minor >= 27;
  EXPECT_EQ(HasMapped(pid_, "convtune-driver-stub"), needs_one && !has_driver)
      << environment.ToText();
}

TEST_F(WorkerProcessTest, BringsNoDriverStubWhereALibcudaCanBeLoaded) {
  setenv("LD_LIBRARY_PATH", CONVTUNE_OLD_DRIVER_FOLDER, 1);
  Start();
  EXPECT_TRUE(Hello().has_hello());
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_TRUE(HasMapped(pid_, CONVTUNE_OLD_DRIVER_FOLDER));
  EXPECT_FALSE(HasMapped(pid_, "convtune-driver-stub"));
}

TEST_F(WorkerProcessTest, SaysWhereItsLibrariesAre) {
  const std::string output = Output("--libraries");
  const std::string folder = std::filesystem::canonical(CONVTUNE_CUDNN_FOLDER);
  EXPECT_THAT(output, HasSubstr("cudnn " + folder + "\n"));
  EXPECT_THAT(output, testing::ContainsRegex("cuda 1[23]\n"));
  EXPECT_THAT(output, testing::ContainsRegex("cublaslt /.*libcublasLt.so.1[23]\n"));
}

class CoreLimitTest : public WorkerProcessTest {
 protected:
  // The soft limit that the kernel holds for the worker's core, as a text.
  std::string CoreLimit() {
    std::ifstream limits("/proc/" + std::to_string(pid_) + "/limits");
    for (std::string line; std::getline(limits, line);) {
      if (absl::StartsWith(line, "Max core file size")) {
        return std::vector<std::string>(absl::StrSplit(line.substr(25), ' ', absl::SkipEmpty()))[0];
      }
    }
    return "not found";
  }
};

TEST_F(CoreLimitTest, AWorkerLeavesNoCore) {
  Start();
  Hello();
  rlimit ours = {};
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &ours), 0);
  EXPECT_EQ(CoreLimit(), ours.rlim_max == 0 ? "0" : "1");
}

TEST_F(CoreLimitTest, UnlessAVariableAsksForIt) {
  rlimit ours = {};
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &ours), 0);
  const rlimit before = ours;
  ours.rlim_cur = std::min<rlim_t>(8192, ours.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_CORE, &ours), 0);
  setenv("CONVTUNE_WORKER_CORES", "1", 1);
  Start();
  Hello();
  unsetenv("CONVTUNE_WORKER_CORES");
  setrlimit(RLIMIT_CORE, &before);
  EXPECT_EQ(CoreLimit(), std::to_string(ours.rlim_cur));
}

TEST_F(WorkerProcessTest, WithoutASocketItEndsWithTheReason) {
  EXPECT_THAT(Output("--fd 0 --profile " + profile_ + " </dev/null"),
              HasSubstr("the peer closed the connection"));
  EXPECT_NE(exit_code_, 0);
}

TEST_F(WorkerProcessTest, ProbePrintsOneLineForEachDevice) {
  const std::string output =
      Output("--probe --profile " + profile_ + " --profile /nonexistent.json");
  const std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2U) << output;
  EXPECT_THAT(lines[0], HasSubstr(R"("name":"profile:nvidia-h200")"));
  EXPECT_THAT(lines[0], HasSubstr(R"("error":"")"));
  EXPECT_THAT(lines[1], HasSubstr("cannot be read"));
  EXPECT_EQ(exit_code_, 0);
}

}  // namespace
}  // namespace convtune::worker
