// The requests, conversion and handlers of ReleaseService.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "convtune/v1/release_service.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "server/release/publisher.h"
#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc::services {
namespace {

using ::testing::ElementsAre;

v1::Release TestRelease(int64_t number) {
  v1::Release release;
  release.set_number(number);
  release.set_author("ann");
  release.set_reason("because");
  return release;
}

Portfolio TestPortfolio(const std::string& candidate) {
  Portfolio portfolio;
  portfolio.key = FakeTuner::Key(ConvProblem::Parse(kHit).value());
  portfolio.evidence = Evidence::kObserved;
  portfolio.release = 4;
  portfolio.choices = {{TestCandidate(candidate, 12.5), kRoleBest | kRoleNoWorkspace | kRoleStock}};
  return portfolio;
}

constexpr char kOtherCudnn[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full";

// Does what a test says.
class FakeReleases : public release::Publisher {
 public:
  absl::Status failure;
  std::string author;
  int permille = -1;
  int64_t to = -1;
  // Several are long, more than 4 MiB together.
  int rows = 0;

  absl::Status Start() override { return absl::OkStatus(); }
  void NoteChange(const TuningKey&, bool) override {}
  void NoteBans() override {}
  void Stop() override {}
  v1::ListReleasesResponse ListReleases() override {
    v1::ListReleasesResponse list;
    *list.add_releases() = TestRelease(2);
    *list.add_releases() = TestRelease(1);
    for (int i = 0; i < rows; ++i) {
      *list.add_releases() = TestRelease(-i);
      list.mutable_releases()->rbegin()->set_reason(std::string(500, 'r'));
    }
    list.set_promoted(2);
    list.set_waiting_changes(3);
    return list;
  }
  absl::StatusOr<release::ReleaseDiff> DiffReleases(int64_t from, int64_t,
                                                    const std::string&) override {
    if (!failure.ok()) return failure;
    release::ReleaseDiff diff;
    diff.from = from;
    diff.changes = {{TestPortfolio("graph:eng1"), TestPortfolio("graph:eng2")}};
    for (int i = 0; i < rows; ++i) {
      diff.changes.push_back(diff.changes.front());
      diff.changes.back().after.key = FakeTuner::Row(static_cast<size_t>(i));
    }
    return diff;
  }
  absl::StatusOr<v1::Release> PromoteRelease(const std::string& by, const std::string&,
                                             int canary_permille) override {
    if (!failure.ok()) return failure;
    author = by;
    permille = canary_permille;
    return TestRelease(5);
  }
  absl::StatusOr<v1::Release> RollBackRelease(const std::string&, const std::string&,
                                              int64_t release) override {
    if (!failure.ok()) return failure;
    to = release;
    return TestRelease(6);
  }
  absl::StatusOr<int64_t> FollowFleet(const std::string&, const std::string&) override { return 0; }
  absl::StatusOr<std::vector<v1::WantedProblem>> ListWanted(const std::string&) override {
    if (!failure.ok()) return failure;
    std::vector<v1::WantedProblem> wanted;
    const auto add = [&wanted](const TuningKey& key) -> v1::WantedProblem& {
      v1::WantedProblem& problem = wanted.emplace_back();
      problem.set_problem_text(key.problem_text);
      problem.set_environment_text(key.environment_text);
      return problem;
    };
    const TuningKey key = TestPortfolio("graph:eng1").key;
    add(key).set_can_be_tuned(true);
    add({key.problem_text, kOtherCudnn});
    add(key);
    for (int i = 0; i < rows; ++i) {
      add(FakeTuner::Row(static_cast<size_t>(i))).set_last_error(std::string(500, 'e'));
    }
    return wanted;
  }
  v1::Publication Status() override {
    v1::Publication status;
    status.set_folder("/state/snapshot");
    return status;
  }
};

using ReleaseStub = v1::ReleaseService::Stub;

class ReleaseServiceTest : public testing::Test {
 protected:
  ReleaseServiceTest() {
    Server::Options options = base_.Options();
    options.listen = {"unix:" + base_.dir.path("r.sock")};
    options.releases = &releases_;
    server_ = Server::Create(options).value();
    stub_ = v1::ReleaseService::NewStub(grpc::CreateChannel("unix:" + base_.dir.path("r.sock"),
                                                            grpc::InsecureChannelCredentials()));
  }

  FakeReleases releases_;
  TestServer base_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<ReleaseStub> stub_;
};

TEST_F(ReleaseServiceTest, DiffSaysWhatEachChoiceIsForAndLeavesTheStockRoleOut) {
  v1::DiffReleasesRequest request;
  request.set_from(4);
  v1::DiffReleasesResponse diff;
  ASSERT_TRUE(Invoke(*stub_, &ReleaseStub::DiffReleases, request, &diff).ok());
  EXPECT_EQ(diff.from(), 4);
  EXPECT_EQ(diff.change_count(), 1);
  ASSERT_EQ(diff.changes_size(), 1);
  EXPECT_EQ(diff.changes(0).environment(), "nvidia-h200");
  const v1::Portfolio& after = diff.changes(0).after();
  EXPECT_EQ(after.choices(0).candidate().text(), "graph:eng2");
  EXPECT_THAT(after.choices(0).roles(),
              ElementsAre(v1::CHOICE_ROLE_BEST, v1::CHOICE_ROLE_NO_WORKSPACE));
  EXPECT_EQ(after.evidence(), v1::EVIDENCE_OBSERVED);
  EXPECT_EQ(after.release(), 4);
}

TEST_F(ReleaseServiceTest, PromotePassesOnWhoAndHowMany) {
  v1::PromoteReleaseRequest request;
  request.set_author("ann");
  request.set_reason("because");
  request.set_canary_permille(50);
  v1::Release release;
  ASSERT_TRUE(Invoke(*stub_, &ReleaseStub::PromoteRelease, request, &release).ok());
  EXPECT_EQ(release.number(), 5);
  EXPECT_EQ(releases_.author, "ann");
  EXPECT_EQ(releases_.permille, 50);
}

TEST_F(ReleaseServiceTest, RollBackPassesTheReleaseAndTheErrorOn) {
  v1::RollBackReleaseRequest request;
  request.set_author("ann");
  request.set_reason("slower");
  request.set_release(3);
  v1::Release release;
  ASSERT_TRUE(Invoke(*stub_, &ReleaseStub::RollBackRelease, request, &release).ok());
  EXPECT_EQ(releases_.to, 3);
  releases_.failure = absl::NotFoundError("release: there is no release 3");
  EXPECT_EQ(Invoke(*stub_, &ReleaseStub::RollBackRelease, request, &release).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ReleaseServiceTest, ReleasesOfMoreThanAReplyComeInPages) {
  releases_.rows = 15000;
  const auto all =
      AllPages(*stub_, &ReleaseStub::ListReleases, {}, [](const auto& page, auto* numbers) {
        EXPECT_EQ(page.promoted(), 2);
        EXPECT_EQ(page.waiting_changes(), 3);
        for (const v1::Release& release : page.releases()) {
          numbers->push_back(std::to_string(release.number()));
        }
      });
  ASSERT_EQ(all.size(), 15002U);
  for (int i = 0; i < 15002; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], std::to_string(2 - i));
}

TEST_F(ReleaseServiceTest, ChangesOfMoreThanAReplyComeInPages) {
  releases_.rows = 20000;
  v1::DiffReleasesRequest request;
  request.set_max_changes(10000);
  const auto all =
      AllPages(*stub_, &ReleaseStub::DiffReleases, request, [](const auto& page, auto* texts) {
        EXPECT_EQ(page.change_count(), 20001);
        EXPECT_LE(page.changes_size(), 10000);
        for (const v1::ChoiceChange& change : page.changes()) {
          texts->push_back(change.problem_text());
        }
      });
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 20001U);
}

TEST_F(ReleaseServiceTest, ChangesAreCutAndCounted) {
  releases_.rows = 1500;
  v1::DiffReleasesResponse diff;
  ASSERT_TRUE(Invoke(*stub_, &ReleaseStub::DiffReleases, {}, &diff).ok());
  EXPECT_EQ(diff.changes_size(), 1000);
  EXPECT_EQ(diff.change_count(), 1501);
}

TEST_F(ReleaseServiceTest, WantedOfMoreThanAReplyComeInPages) {
  releases_.rows = 10000;
  v1::ListWantedRequest request;
  request.set_max_problems(10000);
  const auto all =
      AllPages(*stub_, &ReleaseStub::ListWanted, request, [](const auto& page, auto* texts) {
        EXPECT_EQ(page.wanted_count(), 10003);
        for (const v1::WantedProblem& wanted : page.wanted()) {
          texts->push_back(wanted.problem_text());
        }
      });
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 10001U);
}

TEST_F(ReleaseServiceTest, WantedAreCutAndCounted) {
  v1::ListWantedRequest request;
  request.set_max_problems(2);
  v1::ListWantedResponse wanted;
  ASSERT_TRUE(Invoke(*stub_, &ReleaseStub::ListWanted, request, &wanted).ok());
  EXPECT_EQ(wanted.wanted_size(), 2);
  EXPECT_EQ(wanted.wanted_count(), 3);
  EXPECT_TRUE(wanted.wanted(0).can_be_tuned());
  EXPECT_FALSE(wanted.wanted(1).can_be_tuned());
  EXPECT_EQ(wanted.wanted(1).environment_text(), kOtherCudnn);
}

TEST_F(ReleaseServiceTest, PublicationSaysHowTheSnapshotIs) {
  v1::Publication publication;
  ASSERT_TRUE(Invoke(*stub_, &ReleaseStub::GetPublication, {}, &publication).ok());
  EXPECT_EQ(publication.folder(), "/state/snapshot");
}

}  // namespace
}  // namespace convtune::rpc::services
