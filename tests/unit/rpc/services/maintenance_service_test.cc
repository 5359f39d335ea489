#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc::services {
namespace {

using MaintenanceStub = v1::MaintenanceService::Stub;

TEST(Maintenance, ServerInfoDescribesTheProcess) {
  TestServer server;
  v1::ServerInfo info;
  ASSERT_TRUE(Invoke(*server.maintenance, &MaintenanceStub::GetServerInfo, {}, &info).ok());
  EXPECT_EQ(info.version(), CONVTUNE_VERSION);
  EXPECT_EQ(info.pid(), getpid());
  EXPECT_EQ(info.state_dir(), "/state");
  EXPECT_EQ(info.schema_version(), 1);
  EXPECT_EQ(info.database_bytes(), 8192);
  EXPECT_EQ(info.lookups(), 7);
  EXPECT_GT(info.threads(), 0);
  EXPECT_TRUE(info.has_start_time());
}

TEST(Maintenance, CheckReportsWhatTheStoreFinds) {
  TestServer server;
  server.store.check.add_findings("row 3");
  v1::CheckDatabaseResponse response;
  ASSERT_TRUE(Invoke(*server.maintenance, &MaintenanceStub::CheckDatabase, {}, &response).ok());
  ASSERT_EQ(response.findings_size(), 1);
}

TEST(Maintenance, BackupsAreWrittenIntoTheirFolderAlone) {
  TestServer server;
  v1::BackupDatabaseRequest request;
  v1::BackupDatabaseResponse response;
  const std::string folder = server.backups->GetState().folder();
  for (const std::string& path :
       {std::string("/elsewhere.db"), std::string("below/a.db"), std::string(".."),
        folder + "/../a.db", folder + "2/a.db", std::string(".hidden")}) {
    request.set_path(path);
    const grpc::Status status =
        Invoke(*server.maintenance, &MaintenanceStub::BackupDatabase, request, &response);
    EXPECT_EQ(BadFields(status), std::vector<std::string>{"path"}) << path;
    EXPECT_THAT(status.error_message(), testing::HasSubstr("--backup-dir " + folder));
  }
  for (const std::string& path : {std::string("a.db"), folder + "/a.db"}) {
    request.set_path(path);
    ASSERT_TRUE(
        Invoke(*server.maintenance, &MaintenanceStub::BackupDatabase, request, &response).ok());
    EXPECT_EQ(response.bytes(), 4096);
    EXPECT_EQ(response.path(), folder + "/a.db");
  }
}

TEST(Maintenance, CompactPassesTheStoresErrorOn) {
  TestServer server;
  server.store.compaction.set_thinned(3);
  v1::CompactDatabaseResponse response;
  ASSERT_TRUE(Invoke(*server.maintenance, &MaintenanceStub::CompactDatabase, {}, &response).ok());
  EXPECT_EQ(response.thinned(), 3);
  server.store.failure = absl::UnavailableError("disk is full");
  const grpc::Status status =
      Invoke(*server.maintenance, &MaintenanceStub::CompactDatabase, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace convtune::rpc::services
