#include "client/cli/commands/doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using app::Severity;
using ::testing::_;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A finding of this severity that says this: a text, or a matcher of it.
template <typename What = decltype(_)>
auto Is(Severity severity, const What& what = _) {
  return AllOf(Field(&app::Finding::severity, severity), Field(&app::Finding::what, what));
}

// Of a daemon of version 0.1.0 with nothing to find.
v1::ServerInfo SoundServer() {
  v1::ServerInfo server;
  server.set_writable(true);
  server.set_version("0.1.0");
  server.set_state_dir("/state");
  server.set_database_bytes(int64_t{1} << 30);
  server.mutable_start_time()->set_seconds(1000);
  return server;
}

std::vector<app::Finding> Examine(const v1::ServerInfo& server) {
  return doctor::ExamineServer(server, "0.1.0");
}

class DoctorTest : public DaemonTest {};

TEST_F(DoctorTest, ASoundDaemonEndsWithZero) {
  const RunResult result = Run({"doctor"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("problem")));
}

TEST(FindingsTest, NoDaemonEndsWithFour) {
  const RunResult result = RunProgram({"doctor", "--address", "unix:/nonexistent/socket"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.out, HasSubstr("convtuned"));
}

TEST_F(DoctorTest, AReportNamesNobodyAndNoPlace) {
  daemon_.info.set_state_dir("/home/carla/my models/convtune");
  daemon_.info.set_metrics_url("http://build7.example.com:9464/metrics");
  daemon_.info.set_metrics_state(v1::METRICS_STATE_ON);
  daemon_.devices.mutable_devices(0)->set_state(v1::DEVICE_STATE_UNAVAILABLE);
  daemon_.devices.mutable_devices(0)->set_reason(
      "GPU-6ac0e1f2-aaaa: '/opt/secret/lib.so.9': no answer from 10.1.2.3:443 or [fe80::1]:80");
  daemon_.environments.mutable_environments(0)->set_text("nvidia-h200,cc=9.0,cudnn=9.19.0");
  const std::string report = Run({"doctor", "--report"}).out;
  for (const char* secret : {"carla", "models", "example", "9464", "6ac0e1f2", "secret", "10.1.2.3",
                             "fe80", daemon_.folder().c_str()}) {
    EXPECT_THAT(report, Not(HasSubstr(secret))) << secret << " in:\n" << report;
  }
  for (const char* kept : {", glibc ", "Linux ", "cudnn=9.19.0", "gpu:0 cannot be used: UUID: "}) {
    EXPECT_THAT(report, HasSubstr(kept)) << kept << " not in:\n" << report;
  }
}

TEST(FindingsTest, RedactionKeepsVersionsTimesAndWords) {
  EXPECT_EQ(
      doctor::Redact("root of box-7 at 2026-11-23 12:00:00Z, box-70: driver 580.65.06 and/or gpu:0",
                     {"root", "box-7", ""}),
      "NAME of NAME at 2026-11-23 12:00:00Z, box-70: driver 580.65.06 and/or gpu:0");
  EXPECT_EQ(doctor::Redact("localhost:9464 unix:/run/x /a b/c", {"/a b"}), "ADDRESS ADDRESS PATH");
}

TEST(FindingsTest, RedactionTakesAPathWithAllOfItsFolders) {
  const std::string state = "/home/carla/my models/convtune";
  EXPECT_EQ(doctor::Redact("state " + state + "/tunings.db: full", {"/home/carla", state}),
            "state PATH: full");
  EXPECT_EQ(doctor::Redact("unix:" + state + "/socket", {"/home/carla", state}), "ADDRESS");
  EXPECT_EQ(doctor::Redact("from /home/alice/models", {"/home/al"}), "from PATH");
}

TEST(FindingsTest, RedactionKnowsHostsWithoutPorts) {
  EXPECT_EQ(doctor::Redact("name=gpu7.corp.example, gpu7: gpu70", {"gpu7.corp.example:7411"}),
            "name=NAME, NAME: gpu70");
  EXPECT_EQ(
      doctor::Redact("build7 and 10", {"http://build7.example.com:9464/metrics", "10.1.2.3:443"}),
      "NAME and 10");
  EXPECT_EQ(doctor::Redact("fe80::1, [fe80::1%eth0] 2001:db8:0:0:0:0:0:1 at 12:00:00", {}),
            "ADDRESS, ADDRESS ADDRESS at 12:00:00");
  EXPECT_EQ(doctor::Redact("a : b", {""}), "a : b");
}

TEST_F(DoctorTest, ADeviceThatCannotBeUsedEndsWithOne) {
  daemon_.devices.mutable_devices(0)->set_state(v1::DEVICE_STATE_UNAVAILABLE);
  daemon_.devices.mutable_devices(0)->set_reason("no libcudnn.so.9");
  const RunResult result = Run({"doctor"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("gpu:0 cannot be used: no libcudnn.so.9"));
}

TEST(FindingsTest, ASelfCheckThatFailedSaysWhatFollows) {
  v1::ListDevicesResponse devices;
  v1::Device* device = devices.add_devices();
  device->set_name("gpu:0");
  device->set_state(v1::DEVICE_STATE_READY);
  EXPECT_EQ(doctor::ExamineDevices(devices).size(), 1U);
  v1::SelfCheck* check = device->mutable_self_check();
  check->set_known(true);
  EXPECT_THAT(doctor::ExamineDevices(devices).back(),
              Is(Severity::kFine, "the self-check of gpu:0's worker found nothing wrong"));
  check->add_failed("caches");
  EXPECT_THAT(doctor::ExamineDevices(devices).back(), Is(Severity::kNotice));
  check->add_failed("captures");
  EXPECT_THAT(doctor::ExamineDevices(devices).back(), Is(Severity::kNotice));
  check->clear_failed();
  for (const char* const failed : {"caches", "clock", "captures"}) check->add_failed(failed);
  check->set_details("clock: events do not agree with delays of known length");
  const app::Finding finding = doctor::ExamineDevices(devices).back();
  EXPECT_THAT(
      finding,
      Is(Severity::kProblem,
         "the self-check of gpu:0's worker failed: caches (no times are taken with cold "
         "caches); clock (nothing is measured, and answers are HEURISTIC); captures (nothing is "
         "captured, and no replays are timed)\nclock: events do not agree with delays of known "
         "length"));
}

TEST(FindingsTest, ATuningWithoutBlockingKernelsSaysSinceWhich) {
  v1::ListDevicesResponse devices;
  devices.add_devices()->set_name("gpu:0");
  devices.mutable_devices(0)->set_unblocked("launches, after eng1, eng2, eng3 gave up");
  const app::Finding finding = doctor::ExamineDevices(devices).back();
  EXPECT_THAT(
      finding,
      Is(Severity::kNotice,
         "the last tuning of gpu:0 has no blocking kernels before launches, after eng1, eng2, "
         "eng3 gave up: its GPU times contain the time of launching"));
}

TEST_F(DoctorTest, ADiskThatRefusesEndsWithOne) {
  daemon_.info.set_writable(false);
  EXPECT_EQ(Run({"doctor"}).code, 1);
}

TEST_F(DoctorTest, ADaemonThatIsNotReadyEndsWithOne) {
  daemon_.SetReady(false);
  EXPECT_EQ(Run({"doctor"}).code, 1);
}

TEST(FindingsTest, AnotherMinorVersionIsNoProblem) {
  v1::ServerInfo server = SoundServer();
  server.set_version("0.9.0");
  EXPECT_THAT(Examine(server)[0], Is(Severity::kNotice));
  server.set_version("1.0.0");
  EXPECT_THAT(Examine(server)[0], Is(Severity::kProblem));
}

TEST(FindingsTest, AScheduleWhoseBackupsFailIsAProblem) {
  v1::ServerInfo server = SoundServer();
  const size_t without = Examine(server).size();
  server.mutable_backups()->set_folder("/backup");
  EXPECT_EQ(Examine(server).size(), without);
  server.mutable_backups()->mutable_interval()->set_seconds(3600);
  EXPECT_EQ(Examine(server).back().what, "there is no backup yet, one is due every 1h, in /backup");
  EXPECT_THAT(Examine(server).back(), Is(Severity::kNotice));
  server.mutable_backups()->mutable_newest_time()->set_seconds(1'767'225'600);
  server.mutable_backups()->set_error("the disk is full");
  EXPECT_THAT(Examine(server).back(),
              Is(Severity::kProblem,
                 "the newest backup is of 2026-01-01 00:00:00Z, one is due every 1h; the disk is "
                 "full"));
}

TEST(FindingsTest, WhetherThereAreMetricsIsSaid) {
  v1::ServerInfo server = SoundServer();
  const size_t without = Examine(server).size();
  server.set_metrics_state(v1::METRICS_STATE_ON);
  server.set_metrics_url("http://127.0.0.1:9464/metrics");
  ASSERT_EQ(Examine(server).size(), without + 1);
  EXPECT_EQ(Examine(server).back().what, "metrics at http://127.0.0.1:9464/metrics");
  server.set_metrics_state(v1::METRICS_STATE_OFF);
  EXPECT_THAT(Examine(server).back(), Is(Severity::kFine));
  server.set_metrics_state(v1::METRICS_STATE_NOT_BUILT);
  EXPECT_THAT(Examine(server).back(), Is(Severity::kNotice));
}

TEST(FindingsTest, TuningsOfAnEnvironmentThatIsGoneAreNoticed) {
  v1::ListEnvironmentsResponse environments;
  auto* old = environments.add_environments();
  old->set_text("nvidia-h200,cudnn=9.1.0");
  old->set_tuning_count(5);
  const auto findings = doctor::ExamineEnvironments(environments);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0], Is(Severity::kNotice));
}

TEST(FindingsTest, SeveralEnvironmentsAreNoticed) {
  v1::ListEnvironmentsResponse environments;
  for (const char* name : {"a", "b"}) {
    auto* environment = environments.add_environments();
    environment->set_name(name);
    environment->set_current(true);
  }
  const auto findings = doctor::ExamineEnvironments(environments);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].advice, HasSubstr("--environment"));
}

TEST(FindingsTest, AFileThatIsNoSocketIsAProblem) {
  const auto findings = app::ExamineAddress({.unix_socket = true, .target = "/dev/null"}, {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0], Is(Severity::kProblem));
}

TEST(FindingsTest, ASnapshotThatCannotBeWrittenIsAProblem) {
  v1::Publication publication;
  publication.set_folder("/state/snapshot");
  EXPECT_THAT(doctor::ExaminePublication(publication)[0], Is(Severity::kFine));
  publication.set_error("disk full");
  EXPECT_THAT(doctor::ExaminePublication(publication)[0],
              Is(Severity::kProblem, HasSubstr("disk full")));
}

TEST(FindingsTest, WhatIsNotPublishedAndWhatNoDeviceCanTuneAreNoticed) {
  v1::Publication publication;
  publication.set_publish_evidence(v1::EVIDENCE_OBSERVED);
  publication.set_below_evidence_count(1);
  publication.set_wanted_count(5);
  publication.set_wanted_elsewhere_count(3);
  const std::vector<app::Finding> findings = doctor::ExaminePublication(publication);
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_THAT(findings[1],
              Is(Severity::kNotice,
                 "1 problem is not published: evidence below observed (--publish-evidence)"));
  EXPECT_THAT(findings[2], Is(Severity::kNotice, StartsWith("3 of 5 problems that programs want")));
}

TEST(FindingsTest, WhatWaitsAndWhatIsNotUnderstoodIsNoticed) {
  v1::Publication publication;
  publication.set_waiting_changes(3);
  publication.set_socket_error("path too long");
  publication.set_datagrams_malformed(1);
  const std::vector<app::Finding> findings = doctor::ExaminePublication(publication);
  ASSERT_EQ(findings.size(), 4U);
  for (size_t i = 1; i < findings.size(); ++i) {
    EXPECT_EQ(findings[i].severity, Severity::kNotice) << findings[i].what;
  }
  EXPECT_EQ(findings[1].what, "3 changed portfolios wait for a promotion");
}

TEST(FindingsTest, AShorterFolderIsAdvisedWhereItsLengthIsTheCause) {
  v1::Publication publication;
  publication.set_socket_error("it could not be made");
  const auto advice = [&publication](size_t length) {
    publication.set_folder(std::string(length, 'd'));
    return doctor::ExaminePublication(publication).back().advice;
  };
  EXPECT_EQ(advice(92), "mend that and restart convtuned; programs are served all the same");
  EXPECT_EQ(advice(93),
            "start convtuned with a shorter --state-dir; programs are served all the same");
}

TEST(FindingsTest, WhatTheDaemonDoesWithoutIsSaidWithTheReason) {
  v1::ListDevicesResponse devices;
  devices.add_left_out("nvidia-h200.json: /bin/true --probe said nothing");
  const std::vector<app::Finding> findings = doctor::ExamineDevices(devices);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].what,
            "the daemon does without nvidia-h200.json: /bin/true --probe said nothing");
  EXPECT_EQ(findings[1].what, "the daemon has no device: it answers what its database holds");
}

TEST(FindingsTest, ADiskThatIsNearlyFullIsAProblem) {
  doctor::MachineFacts facts;
  EXPECT_TRUE(doctor::ExamineDisk(SoundServer(), facts).empty());  // the daemon is elsewhere
  facts.disk_free = int64_t{10} << 20;
  EXPECT_THAT(doctor::ExamineDisk(SoundServer(), facts).at(0),
              Is(Severity::kProblem, "the disk of /state has 10 MiB free"));
  facts.disk_free = int64_t{500} << 20;
  EXPECT_THAT(doctor::ExamineDisk(SoundServer(), facts).at(0), Is(Severity::kNotice));
  facts.disk_free = int64_t{50} << 30;
  EXPECT_THAT(doctor::ExamineDisk(SoundServer(), facts).at(0), Is(Severity::kFine));
}

TEST(FindingsTest, AClockThatWentBackIsAProblem) {
  doctor::MachineFacts facts;
  facts.now = absl::FromUnixSeconds(900);
  const auto findings = doctor::ExamineClock(SoundServer(), facts);
  EXPECT_THAT(findings.at(0), Is(Severity::kProblem, HasSubstr("1m40s in the future")));
  facts.now = absl::FromUnixSeconds(1100);
  EXPECT_THAT(doctor::ExamineClock(SoundServer(), facts).at(0), Is(Severity::kFine));
  facts.clock_kept = false;
  EXPECT_THAT(doctor::ExamineClock(SoundServer(), facts).at(0), Is(Severity::kNotice));
}

TEST(FindingsTest, ASnapshotThatIsNotMountedIsSaidSo) {
  doctor::MachineFacts facts;
  facts.library = "/usr/lib/libconvtune_preload.so";
  facts.snapshot = doctor::SeenFile{"/state/snapshot/current.snapshot", ENOENT};
  const auto findings = doctor::ExamineInterposer(facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0], Is(Severity::kNotice, HasSubstr("programs here cannot read")));
  EXPECT_THAT(findings[0].advice,
              HasSubstr("mount the daemon's folder read-only at /state/snapshot"));
  facts.snapshot->error = EACCES;
  EXPECT_THAT(doctor::ExamineInterposer(facts).at(0).advice,
              HasSubstr("let the program's user read"));
  facts.snapshot->error = 0;
  facts.report_socket = doctor::SeenFile{"/state/snapshot/datagrams.sock", EROFS};
  EXPECT_THAT(doctor::ExamineInterposer(facts).at(0), Is(Severity::kFine));
  EXPECT_THAT(doctor::ExamineInterposer(facts).at(1).what, HasSubstr("is not learned"));
}

TEST(FindingsTest, AFolderThatLetsItsOwnerAloneThroughIsNamed) {
  doctor::MachineFacts facts;
  facts.library = "/usr/lib/libconvtune_preload.so";
  facts.snapshot = doctor::SeenFile{"/state/snapshot/current.snapshot"};
  EXPECT_EQ(doctor::ExamineInterposer(facts).size(), 1U);
  facts.snapshot->owner_only = "/state has mode 0700";
  const auto findings = doctor::ExamineInterposer(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[1],
              Is(Severity::kNotice, HasSubstr("other users cannot: /state has mode 0700")));
}

TEST(FindingsTest, WhatSwitchesTheInterposerOffAndALibraryThatIsNotThereAreSaid) {
  doctor::MachineFacts facts;
  facts.switched_off = "/state/snapshot/disabled";
  const auto findings = doctor::ExamineInterposer(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("is not installed here"));
  EXPECT_THAT(findings[1].what, HasSubstr("served nothing, by /state/snapshot/disabled"));
}

TEST(FindingsTest, CudnnAndItsConfigurationAreJudged) {
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
  EXPECT_THAT(doctor::ExamineLibraries(environments).at(0), Is(Severity::kFine));
  e->set_library_configuration(v1::LIBRARY_CONFIGURATION_GRAPH_JIT_ONLY);
  EXPECT_THAT(doctor::ExamineLibraries(environments).at(0), Is(Severity::kNotice));
  e->set_cudnn_version("9.7.1");
  EXPECT_THAT(doctor::ExamineLibraries(environments).at(0), Is(Severity::kProblem));
}

TEST(FindingsTest, WhatTheFleetMissedIsNoticed) {
  v1::FleetState state;
  EXPECT_THAT(doctor::ExamineFleet(state).at(0), Is(Severity::kFine));
  state.set_outbox_depth(5);  // perhaps there is no fleet at all
  EXPECT_THAT(doctor::ExamineFleet(state).at(0), Is(Severity::kFine));
  state.set_release(3);
  EXPECT_THAT(doctor::ExamineFleet(state).at(0), Is(Severity::kNotice));
  state.set_outbox_depth(0);
  EXPECT_THAT(doctor::ExamineFleet(state).at(0), Is(Severity::kFine));
  state.mutable_agent_silence()->set_seconds(59);
  EXPECT_THAT(doctor::ExamineFleet(state).at(0), Is(Severity::kFine));
  state.mutable_agent_silence()->set_seconds(120);
  EXPECT_THAT(doctor::ExamineFleet(state).at(0),
              Is(Severity::kNotice, "fleet release 3; no agent has asked for 2 min"));
  state.mutable_agent_silence()->set_seconds(5);
  state.set_agent_trouble("PostgreSQL is out of reach");
  EXPECT_THAT(doctor::ExamineFleet(state).at(0),
              Is(Severity::kNotice, "the fleet's agent of this node: PostgreSQL is out of reach"));
  state.set_outbox_refused(2);
  state.set_last_refused("fwd: elapsed: must be a Duration");
  EXPECT_THAT(
      doctor::ExamineFleet(state).at(0),
      Is(Severity::kNotice,
         "2 tunings were refused by the fleet, the last of fwd: elapsed: must be a Duration"));
  state.set_outbox_dropped(1);
  EXPECT_THAT(doctor::ExamineFleet(state).at(0), Is(Severity::kNotice));
}

TEST(FindingsTest, LooksAtThisMachine) {
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
