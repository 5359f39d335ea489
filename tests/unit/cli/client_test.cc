#include "client/cpp/client.h"

#include <gtest/gtest.h>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli {
namespace {

std::unique_ptr<client::Client> ClientOf(const std::string& address) {
  client::Client::Options options;
  options.address = *Address::Parse(address);
  return *client::Client::Create(options);
}

TEST(RefusedProblemsTest, AreNoneWhereAnythingElseIsWrong) {
  FakeDaemon daemon;
  const auto refused = [&](const std::string& field) {
    daemon.error = BadRequest({{"problems[1].text", "must be short"}, {field, "must be"}});
    return client::RefusedProblems(
        ClientOf(daemon.address())->Call<v1::ServerInfo>(v1::GetServerInfoRequest()).status(), 18);
  };
  const std::vector<std::pair<size_t, std::string>> both = {{1, "problems[1].text: must be short"},
                                                            {17, "problems[17].text: must be"}};
  EXPECT_EQ(refused("problems[17].text"), both);
  for (const char* field :
       {"problems[18].text", "problems", "problems[x]", "options.time_budget"}) {
    EXPECT_TRUE(refused(field).empty()) << field;
  }
}

TEST(ClientTest, AListHasTheRowsOfAllPages) {
  FakeDaemon daemon;
  daemon.environments.clear_environments();
  for (const char* name : {"a", "b", "c"}) {
    daemon.environments.add_environments()->set_name(name);
  }
  const auto all = ClientOf(daemon.address())
                       ->CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest());
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->environments_size(), 3);
  EXPECT_EQ(all->environments(0).name() + all->environments(1).name() + all->environments(2).name(),
            "abc");
  EXPECT_EQ(all->next_page_token(), "");
}

TEST(ClientTest, AsksForHealthByName) {
  FakeDaemon daemon;
  const auto client = ClientOf(daemon.address());
  EXPECT_TRUE(*client->IsServing("readiness"));
  daemon.SetReady(false);
  EXPECT_FALSE(*client->IsServing("readiness"));
  EXPECT_TRUE(absl::IsNotFound(client->IsServing("nobody").status()));
}

TEST(ClientTest, AnAnswerThatIsLateIsNotOutOfReach) {
  FakeDaemon daemon;
  daemon.error = {grpc::StatusCode::DEADLINE_EXCEEDED, "late"};
  const auto client = ClientOf(daemon.address());
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(client->Call<v1::ServerInfo>(v1::GetServerInfoRequest()).status()));
}

TEST(ClientTest, DetailsThatAreNoStatusAreIgnored) {
  absl::Status status = absl::InvalidArgumentError("x");
  status.SetPayload(client::kRpcDetailsUrl, absl::Cord("\xff\xff\xff"));
  EXPECT_TRUE(client::ViolationsOf(status).empty());
}

}  // namespace
}  // namespace convtune::cli
