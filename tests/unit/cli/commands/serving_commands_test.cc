// The verbs release, wanted and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <sstream>

#include "client/cli/commands/run/run.h"
#include "convtune/v1/release_service.grpc.pb.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FakeReleaseService final : public v1::ReleaseService::Service {
 public:
  v1::ListReleasesResponse list;
  v1::DiffReleasesResponse diff;
  v1::ListWantedResponse wanted;
  v1::PromoteReleaseRequest promoted;
  v1::RollBackReleaseRequest rolled_back;
  grpc::Status error;
  // A snapshot, of which each request gets two bytes.
  std::string snapshot;
  std::function<void(int64_t offset)> on_read = [](int64_t) {};

 private:
  using Context = grpc::ServerContext;
  grpc::Status ReadSnapshot(Context*, const v1::ReadSnapshotRequest* request,
                            v1::ReadSnapshotResponse* reply) override {
    on_read(request->offset());
    reply->set_chunk(snapshot.substr(static_cast<size_t>(request->offset()), 2));
    reply->set_size_bytes(static_cast<int64_t>(snapshot.size()));
    reply->set_version(7);
    return error;
  }
  grpc::Status ListReleases(Context*, const v1::ListReleasesRequest*,
                            v1::ListReleasesResponse* reply) override {
    *reply = list;
    return error;
  }
  grpc::Status DiffReleases(Context*, const v1::DiffReleasesRequest* request,
                            v1::DiffReleasesResponse* reply) override {
    *reply = diff;
    reply->set_from(request->from());
    reply->set_to(request->to());
    return error;
  }
  grpc::Status PromoteRelease(Context*, const v1::PromoteReleaseRequest* request,
                              v1::Release* reply) override {
    promoted = *request;
    reply->set_number(7);
    reply->set_canary_permille(request->canary_permille());
    reply->set_state(request->canary_permille() > 0 ? v1::RELEASE_STATE_CANARY
                                                    : v1::RELEASE_STATE_PROMOTED);
    return error;
  }
  grpc::Status RollBackRelease(Context*, const v1::RollBackReleaseRequest* request,
                               v1::Release* reply) override {
    rolled_back = *request;
    reply->set_number(8);
    reply->set_restores(6);
    return error;
  }
  grpc::Status ListWanted(Context*, const v1::ListWantedRequest*,
                          v1::ListWantedResponse* reply) override {
    *reply = wanted;
    return error;
  }
};

class ServingCommandsTest : public testing::Test {
 protected:
  RunResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--address", daemon_.address()});
    return RunProgram(arguments);
  }
  v1::Release* AddRelease(int64_t number, v1::ReleaseState state) {
    v1::Release* release = service_.list.add_releases();
    release->set_number(number);
    release->set_state(state);
    release->set_author("ann");
    release->set_reason("because");
    return release;
  }

  FakeReleaseService service_;
  FakeDaemon daemon_{&service_};
};

TEST_F(ServingCommandsTest, ListSaysWhichIsServedAndWhatWaits) {
  AddRelease(3, v1::RELEASE_STATE_CANARY)->set_canary_permille(50);
  AddRelease(2, v1::RELEASE_STATE_PROMOTED)->set_restores(1);
  AddRelease(1, v1::RELEASE_STATE_PROMOTED);
  service_.list.set_promoted(2);
  service_.list.set_waiting_changes(4);
  const RunResult result = Run({"release", "list"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("canary 5%"));
  EXPECT_THAT(result.out, HasSubstr("promoted"));
  EXPECT_THAT(result.out, HasSubstr("replaced"));
  EXPECT_THAT(result.out, HasSubstr("the choices of 1"));
  EXPECT_THAT(result.err, HasSubstr("4 changed portfolios wait"));
  EXPECT_THAT(Run({"release", "list", "--csv"}).out, HasSubstr("3,canary,50,,ann,because"));
  EXPECT_THAT(Run({"release", "list", "--json"}).out, HasSubstr("\"waitingChanges\":\"4\""));
}

TEST_F(ServingCommandsTest, DiffShowsBothChoices) {
  v1::ChoiceChange* change = service_.diff.add_changes();
  change->set_problem_text(ProblemText(8));
  change->set_environment("nvidia-h200");
  change->mutable_before()->add_choices()->mutable_candidate()->set_text("graph:eng1");
  change->mutable_before()->set_evidence(v1::EVIDENCE_OBSERVED);
  auto* after = change->mutable_after()->add_choices()->mutable_candidate();
  after->set_text("graph:eng2");
  after->set_median_us(12.5);
  change->mutable_after()->set_evidence(v1::EVIDENCE_MEASURED);
  service_.diff.set_change_count(1);
  const RunResult result = Run({"release", "diff", "1", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("graph:eng1"));
  EXPECT_THAT(result.out, HasSubstr("observed -> measured"));
  EXPECT_THAT(result.err, HasSubstr("1 change from release 1 to release 2"));
  EXPECT_THAT(Run({"release", "diff", "--csv"}).out, HasSubstr("graph:eng1,graph:eng2"));
}

TEST_F(ServingCommandsTest, EachPieceOfASnapshotGoesToTheDiskAtOnce) {
  const std::filesystem::path folder = daemon_.folder() + "/snapshot";
  service_.snapshot = "no snapshot";
  std::vector<int64_t> written;
  service_.on_read = [&](int64_t) {
    int64_t bytes = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
    written.push_back(bytes);
  };
  const RunResult result = Run({"release", "fetch", folder});
  EXPECT_EQ(written, (std::vector<int64_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("the snapshot that came is not sound"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(ServingCommandsTest, PromoteTakesTheUserForTheAuthor) {
  const RunResult result = Run({"release", "promote", "--reason", "faster"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(service_.promoted.author().empty());
  EXPECT_EQ(service_.promoted.reason(), "faster");
  EXPECT_EQ(service_.promoted.canary_permille(), 0);
  EXPECT_THAT(result.err, HasSubstr("release 7 is promoted"));
}

TEST_F(ServingCommandsTest, PromoteReadsAShareInBothForms) {
  EXPECT_EQ(Run({"release", "promote", "--canary", "5%", "--author", "bob"}).code, 0);
  EXPECT_EQ(service_.promoted.canary_permille(), 50);
  EXPECT_EQ(service_.promoted.author(), "bob");
  EXPECT_EQ(Run({"release", "promote", "--canary", "0.25"}).code, 0);
  EXPECT_EQ(service_.promoted.canary_permille(), 250);
}

TEST_F(ServingCommandsTest, RollbackMayNameTheRelease) {
  const RunResult result = Run({"release", "rollback", "6"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(service_.rolled_back.release(), 6);
  EXPECT_THAT(result.err, HasSubstr("release 8 has the choices of release 6 again"));
}

TEST_F(ServingCommandsTest, NothingToPromoteEndsWithOne) {
  service_.error = {grpc::StatusCode::FAILED_PRECONDITION, "there is nothing to promote"};
  const RunResult result = Run({"release", "promote"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is nothing to promote"));
}

TEST_F(ServingCommandsTest, WantedShowsCountsAndReasons) {
  v1::WantedProblem* problem = service_.wanted.add_wanted();
  problem->set_problem_text(ProblemText(8));
  problem->set_miss_count(12);
  problem->set_last_error("no candidate ran");
  service_.wanted.set_wanted_count(1);
  const RunResult result = Run({"wanted"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("12"));
  EXPECT_THAT(result.out, HasSubstr("no candidate ran"));
  EXPECT_THAT(result.err, HasSubstr("1 problem wanted"));
  EXPECT_THAT(Run({"wanted", "--json"}).out, HasSubstr("\"missCount\":\"12\""));
}

TEST_F(ServingCommandsTest, WantedSaysWhatNoDeviceHereCanTune) {
  const std::string other = "nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full";
  for (const bool here : {true, false}) {
    v1::WantedProblem* problem = service_.wanted.add_wanted();
    problem->set_problem_text(ProblemText(here ? 8 : 16));
    problem->set_environment("nvidia-h200");
    problem->set_environment_text(here ? "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full"
                                       : other);
    problem->set_can_be_tuned(here);
  }
  service_.wanted.set_wanted_count(2);
  const RunResult result = Run({"wanted"});
  EXPECT_THAT(result.out, HasSubstr(other));
  EXPECT_THAT(result.err, HasSubstr("2 problems wanted; 1 of them for " + other +
                                    ", which no device here has: tune them where one has it; tune "
                                    "the others with"));
  const RunResult csv = Run({"wanted", "--csv"});
  EXPECT_THAT(csv.out, HasSubstr(",\"" + other + "\",false\n"));
  EXPECT_EQ(csv.err, "") << "it is for `convtune warm -`";
  service_.wanted.mutable_wanted()->DeleteSubrange(0, 1);
  service_.wanted.set_wanted_count(1);
  EXPECT_THAT(Run({"wanted"}).err, Not(HasSubstr("convtune warm"))) << "what cannot be tuned here";
}

TEST_F(ServingCommandsTest, ListSaysWhatIsNotPublished) {
  service_.list.set_publish_evidence(v1::EVIDENCE_OBSERVED);
  EXPECT_THAT(Run({"release", "list"}).err, Not(HasSubstr("--publish-evidence")));
  service_.list.set_below_evidence_count(44);
  EXPECT_THAT(
      Run({"release", "list"}).err,
      HasSubstr("44 problems are not published: evidence below observed (--publish-evidence)"));
}

run::PreloadCounters Read(const std::string& lines) {
  std::istringstream in(lines);
  return run::ReadPreloadCounters(in);
}

TEST(PreloadCountersTest, ProcessesAreSummedAndNonsenseIsLeftOut) {
  const run::PreloadCounters counters = Read(
      "{\"pid\":1,\"served\":3,\"legacy_served\":2,\"passed\":1,\"learned\":4,"
      "\"missed\":{\"no_entry\":2,\"refused\":0},\"new\":9}\n"
      "not json\n"
      "{\"served\":\"many\",\"missed\":7,\"dropped\":-1}\n"
      "{\"served\":1,\"missed\":{\"no_entry\":1,\"not_neutral\":1}}\n"
      "{\"cut sho");
  EXPECT_EQ(counters.processes, 3);
  EXPECT_EQ(counters.Sum("served"), 4);
  EXPECT_EQ(counters.Sum("learned"), 4);
  EXPECT_EQ(counters.Sum("dropped"), 0);
  EXPECT_EQ(counters.Sum("missed"), 4);
  EXPECT_EQ(run::Describe(counters, "/s").front(),
            "4 served, 4 missed (no entry 3, not neutral 1), 4 learned, 1 of other forms, in 3 "
            "processes");
}

TEST(PreloadCountersTest, NoProcessSaysSo) {
  EXPECT_THAT(run::Describe(run::PreloadCounters(), "/s"),
              ElementsAre("no process said that it loaded cuDNN; one that is killed or "
                          "leaves by _exit says nothing"));
}

TEST(PreloadCountersTest, EachProcessSaysHowCudnnWasReached) {
  std::string lines =
      "{\"pid\":7,\"name\":\"python3\",\"reached\":\"linked\",\"served\":3,\"missed\":{\"no_"
      "entry\":2}}\n"
      "{\"pid\":8,\"name\":\"ort\",\"reached\":\"dlsym\",\"served\":1}\n";
  const std::string bypassed = "{\"pid\":9,\"name\":\"sh\",\"bypassed\":true}\n";
  const run::PreloadCounters counters = Read(lines + bypassed);
  EXPECT_EQ(counters.processes, 2);
  EXPECT_EQ(counters.bypassed, 1);
  EXPECT_THAT(run::Describe(counters, "/s"),
              ElementsAre("4 served, 2 missed (no entry 2), 0 learned, in 2 processes",
                          "process 7 (python3): cuDNN linked: 3 served, 2 missed",
                          "process 8 (ort): cuDNN looked up by dlsym: 1 served, 0 missed",
                          "process 9 (sh): cuDNN was loaded and never asked through convtune"));
  EXPECT_THAT(run::Describe(Read(R"({"pid":8,"name":"ort","reached":"dlsym","served":1})"), "/s"),
              ElementsAre("1 served, 0 missed, 0 learned, cuDNN looked up by dlsym"));
  EXPECT_EQ(run::Describe(Read(bypassed), "/s").front(),
            "no process asked cuDNN for an algorithm through convtune");
  for (int i = 0; i < 20; ++i) lines += bypassed;
  const std::vector<std::string> described = run::Describe(Read(lines), "/s");
  EXPECT_EQ(described.size(), 18);
  EXPECT_EQ(described.back(), "and 6 more processes");
}

TEST(PreloadCountersTest, WithoutASnapshotTheFileAndTheReasonAreNamed) {
  const run::PreloadCounters counters = Read(
      "{\"snapshot\":\"checksum does not match\",\"missed\":{\"no_snapshot\":8}}\n"
      "{\"snapshot\":\"valid\",\"served\":1}\n");
  EXPECT_EQ(run::Describe(counters, "/s/current.snapshot").front(),
            "1 served, 8 missed (no snapshot 8), 0 learned, in 2 processes; no snapshot: "
            "/s/current.snapshot: checksum does not match");
}

}  // namespace
}  // namespace convtune::cli::commands
