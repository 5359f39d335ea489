#include "client/cli/commands/doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>

namespace convtune::cli::commands {
namespace {

using ::testing::HasSubstr;

v1::ServerInfo Server() {
  v1::ServerInfo server;
  server.set_state_dir("/state");
  server.set_database_bytes(int64_t{1} << 30);
  server.mutable_start_time()->set_seconds(1000);
  return server;
}

TEST(DoctorMachineTest, ADiskThatIsNearlyFullIsAProblem) {
  doctor::MachineFacts facts;
  EXPECT_TRUE(doctor::ExamineDisk(Server(), facts).empty());  // the daemon is elsewhere
  facts.disk_free = int64_t{10} << 20;
  EXPECT_EQ(doctor::ExamineDisk(Server(), facts).at(0).severity, app::Severity::kProblem);
  EXPECT_EQ(doctor::ExamineDisk(Server(), facts).at(0).what, "the disk of /state has 10 MiB free");
  facts.disk_free = int64_t{500} << 20;
  EXPECT_EQ(doctor::ExamineDisk(Server(), facts).at(0).severity, app::Severity::kNotice);
  facts.disk_free = int64_t{50} << 30;
  EXPECT_EQ(doctor::ExamineDisk(Server(), facts).at(0).severity, app::Severity::kFine);
}

TEST(DoctorMachineTest, AClockThatWentBackIsAProblem) {
  doctor::MachineFacts facts;
  facts.now = absl::FromUnixSeconds(900);
  const auto findings = doctor::ExamineClock(Server(), facts);
  EXPECT_EQ(findings.at(0).severity, app::Severity::kProblem);
  EXPECT_THAT(findings.at(0).what, HasSubstr("1m40s in the future"));
  facts.now = absl::FromUnixSeconds(1100);
  EXPECT_EQ(doctor::ExamineClock(Server(), facts).at(0).severity, app::Severity::kFine);
  facts.clock_kept = false;
  EXPECT_EQ(doctor::ExamineClock(Server(), facts).at(0).severity, app::Severity::kNotice);
}

TEST(DoctorMachineTest, ASnapshotThatIsNotMountedIsSaidSo) {
  doctor::MachineFacts facts;
  facts.library = "/usr/lib/libconvtune_preload.so";
  facts.snapshot = doctor::SeenFile{"/state/snapshot/current.snapshot", ENOENT};
  const auto findings = doctor::ExamineInterposer(facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, app::Severity::kNotice);
  EXPECT_THAT(findings[0].what, HasSubstr("programs here cannot read"));
  EXPECT_THAT(findings[0].advice,
              HasSubstr("mount the daemon's folder read-only at /state/snapshot"));
  facts.snapshot->error = EACCES;
  EXPECT_THAT(doctor::ExamineInterposer(facts).at(0).advice,
              HasSubstr("let the program's user read"));
  facts.snapshot->error = 0;
  facts.report_socket = doctor::SeenFile{"/state/snapshot/datagrams.sock", EROFS};
  EXPECT_EQ(doctor::ExamineInterposer(facts).at(0).severity, app::Severity::kFine);
  EXPECT_THAT(doctor::ExamineInterposer(facts).at(1).what, HasSubstr("is not learned"));
}

TEST(DoctorMachineTest, AFolderThatLetsItsOwnerAloneThroughIsNamed) {
  doctor::MachineFacts facts;
  facts.library = "/usr/lib/libconvtune_preload.so";
  facts.snapshot = doctor::SeenFile{"/state/snapshot/current.snapshot"};
  EXPECT_EQ(doctor::ExamineInterposer(facts).size(), 1U);
  facts.snapshot->owner_only = "/state has mode 0700";
  const auto findings = doctor::ExamineInterposer(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[1].severity, app::Severity::kNotice);
  EXPECT_THAT(findings[1].what, HasSubstr("other users cannot: /state has mode 0700"));
}

TEST(DoctorMachineTest, WhatSwitchesTheInterposerOffAndALibraryThatIsNotThereAreSaid) {
  doctor::MachineFacts facts;
  facts.switched_off = "/state/snapshot/disabled";
  const auto findings = doctor::ExamineInterposer(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("is not installed here"));
  EXPECT_THAT(findings[1].what, HasSubstr("served nothing, by /state/snapshot/disabled"));
}

TEST(DoctorMachineTest, CudnnAndItsConfigurationAreJudged) {
  v1::ListEnvironmentsResponse environments;
  v1::Environment* e = environments.add_environments();
  e->set_name("nvidia-h200");
  e->set_cudnn_version("9.19.0");
  e->mutable_provenance()->set_driver_version("13.0");
  e->mutable_provenance()->set_cuda_version("13.0");
  EXPECT_TRUE(doctor::ExamineLibraries(environments).empty());  // no device has it
  e->set_current(true);
  e->set_library_configuration(v1::LIBRARY_CONFIGURATION_FULL);
  EXPECT_EQ(doctor::ExamineLibraries(environments).at(0).what,
            "nvidia-h200: driver for CUDA 13.0, CUDA 13.0, cuDNN 9.19.0");
  e->mutable_provenance()->set_driver_version("");  // a profile
  EXPECT_EQ(doctor::ExamineLibraries(environments).at(0).severity, app::Severity::kFine);
  e->set_library_configuration(v1::LIBRARY_CONFIGURATION_GRAPH_JIT_ONLY);
  EXPECT_EQ(doctor::ExamineLibraries(environments).at(0).severity, app::Severity::kNotice);
  e->set_cudnn_version("9.7.1");
  EXPECT_EQ(doctor::ExamineLibraries(environments).at(0).severity, app::Severity::kProblem);
}

TEST(DoctorMachineTest, WhatTheFleetMissedIsNoticed) {
  v1::FleetState state;
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kFine);
  state.set_outbox_depth(5);  // perhaps there is no fleet at all
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kFine);
  state.set_release(3);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kNotice);
  state.set_outbox_depth(0);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kFine);
  state.mutable_agent_silence()->set_seconds(59);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kFine);
  state.mutable_agent_silence()->set_seconds(120);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kNotice);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).what,
            "fleet release 3; no agent has asked for 2 min");
  state.mutable_agent_silence()->set_seconds(5);
  state.set_agent_trouble("PostgreSQL is out of reach");
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kNotice);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).what,
            "the fleet's agent of this node: PostgreSQL is out of reach");
  state.set_outbox_refused(2);
  state.set_last_refused("fwd: elapsed: must be a Duration");
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kNotice);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).what,
            "2 tunings were refused by the fleet, the last of fwd: elapsed: must be a Duration");
  state.set_outbox_dropped(1);
  EXPECT_EQ(doctor::ExamineFleet(state).at(0).severity, app::Severity::kNotice);
}

TEST(DoctorMachineTest, LooksAtThisMachine) {
  v1::ServerInfo server;
  server.set_state_dir("/tmp");
  v1::Publication publication;
  publication.set_folder("/nonexistent/snapshot");
  unsetenv("CONVTUNE_SNAPSHOT");
  const doctor::MachineFacts here = doctor::LookAtMachine(server, publication, /*here=*/true);
  EXPECT_GT(here.disk_free.value_or(0), 0);
  ASSERT_TRUE(here.snapshot.has_value());
  EXPECT_EQ(here.snapshot->error, ENOENT);
  const doctor::MachineFacts elsewhere = doctor::LookAtMachine(server, publication, /*here=*/false);
  EXPECT_FALSE(elsewhere.disk_free.has_value());
  EXPECT_FALSE(elsewhere.snapshot.has_value());
}

}  // namespace
}  // namespace convtune::cli::commands
