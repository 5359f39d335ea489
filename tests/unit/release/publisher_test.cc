// The tuner with its publisher, the snapshot read back, and reports sent as
// programs send them.
#include "server/release/publisher.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "tests/unit/release/datagrams.h"
#include "tests/unit/release/snapshot_reader.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::release {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class PublisherTest : public tuner::TunerTest {
 protected:
  PublisherTest() {
    options_.publish.folder = Path("snapshot");
    options_.publish.debounce = absl::Milliseconds(5);
  }
  ~PublisherTest() override {
    tuner_.reset();
    std::filesystem::remove_all(Path("snapshot"));
  }

  static std::string Text(int n) { return Problem(n).ToText(); }
  std::string File() const { return Path("snapshot/current.snapshot"); }
  SnapshotReader Snapshot() {
    SnapshotReader reader;
    EXPECT_TRUE(reader.Read(File()));
    return reader;
  }
  std::vector<std::string> Served(int n) { return Snapshot().Candidates(Text(n), kH200); }
  // Waits until problem n is served; its candidates.
  std::vector<std::string> WaitForChoice(int n, const std::string& environment = kH200) {
    EXPECT_TRUE(Eventually([&] {
      SnapshotReader reader;
      return reader.Read(File()) && reader.Find(Text(n), environment) != nullptr;
    }));
    return Snapshot().Candidates(Text(n), environment);
  }
  // Starts the daemon and tunes problem 1; what is served of it.
  std::vector<std::string> StartAndServeOne() {
    Start("");
    Tune({Problem(1)});
    return WaitForChoice(1);
  }
  std::string WinnerOf(int n, Api api = Api::kGraph) {
    lookup::LookupRequest request = Request({Problem(n)}, jobs::OnMiss::kNone);
    request.demand.constraints.api = api;
    return Lookup(request)->results[0].row.answer().winner().text();
  }

  // A program's socket, to which it reports.
  int Connect(int flags = 0) {
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = Path("snapshot/datagrams.sock");
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  template <typename Datagram>
  void Send(const Datagram& datagram, size_t size = sizeof(Datagram)) {
    const int fd = Connect();
    EXPECT_EQ(send(fd, &datagram, size, 0), static_cast<ssize_t>(size));
    close(fd);
  }
  // The daemon bans what fits the pattern.
  v1::CreateBanResponse MakeBan(const std::string& pattern) {
    Ban ban;
    ban.candidate = CandidatePattern::Parse(pattern).value();
    const auto created = tuner_->CreateBan(ban, 10, /*dry_run=*/false);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.ok() ? *created : v1::CreateBanResponse();
  }
  bool ServesGraph(int n) {
    const std::vector<std::string> served = Served(n);
    return std::any_of(served.begin(), served.end(),
                       [](const std::string& text) { return text.starts_with("graph:"); });
  }
  v1::Publication Status() { return tuner_->releases()->Status(); }
};

TEST_F(PublisherTest, AtStartTheEnvironmentIsKnownAndNothingElse) {
  Start("");
  ASSERT_TRUE(Eventually([&] { return SnapshotReader().Read(File()); }));
  EXPECT_TRUE(Snapshot().Knows(kH200));
  EXPECT_FALSE(Snapshot().Knows(tuner::kProfile));
  EXPECT_EQ(Snapshot().header().release, 0U);
  struct stat status {};
  ASSERT_EQ(stat(File().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
  ASSERT_EQ(stat(Path("snapshot").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0755U);
  ASSERT_EQ(stat(Path("snapshot/datagrams.sock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0660U);
}

TEST_F(PublisherTest, WhatIsServedIsWhatGetAnswers) {
  Start("");
  Tune({Problem(1), Problem(2)});
  for (const int n : {1, 2}) {
    EXPECT_EQ(WaitForChoice(n)[0], WinnerOf(n));
    const snapshot::SnapshotEntry* entry = nullptr;
    const SnapshotReader reader = Snapshot();
    ASSERT_NE(entry = reader.Find(Text(n), kH200), nullptr);
    EXPECT_EQ(entry->evidence, static_cast<int>(Evidence::kMeasured));
    EXPECT_EQ(entry->release, 1U);
    EXPECT_EQ(entry->pinned, 0);
    EXPECT_EQ(entry->stock.known, 1U);
  }
  EXPECT_EQ(Snapshot().header().release, 1U);
  // The file is there a moment before the daemon says so.
  EXPECT_TRUE(Eventually([&] { return Status().choice_count() == 2; }));
}

TEST_F(PublisherTest, StoppingPublishesWhatWasCommittedLast) {
  options_.publish.debounce = absl::Hours(1);
  Start("");
  Tune({Problem(1)});
  tuner_->Drain(SteadyTime::Now());
  EXPECT_THAT(Served(1), Not(IsEmpty()));
  EXPECT_FALSE(std::filesystem::exists(Path("snapshot/datagrams.sock")));
}

TEST_F(PublisherTest, APinIsOfferedFirstAtOnceAndUnpinningEndsIt) {
  const std::vector<std::string> before = StartAndServeOne();
  const Tuning tuning = tuner_->GetTuning("", Problem(1)).value();
  std::string pinned;
  for (const Candidate& c : tuning.candidates) {
    if (c.usable() && ToText(c.id) != before[0]) pinned = ToText(c.id);
  }
  const CandidatePattern pattern = CandidatePattern::Parse(pinned).value();
  ASSERT_TRUE(tuner_->PutPin("", Problem(1), pattern, "test", std::nullopt, 0).ok());
  EXPECT_TRUE(Eventually([&] { return Served(1)[0] == pinned; }));
  EXPECT_EQ(Snapshot().Find(Text(1), kH200)->pinned, 1);
  ASSERT_TRUE(tuner_->DeletePin("", Problem(1), 0).ok());
  EXPECT_TRUE(Eventually([&] { return Served(1) == before; }));
}

TEST_F(PublisherTest, PromoteAndRollBackAreInTheSnapshotWhenTheyReturn) {
  Start("");
  Send(PlanOf(Text(1), kH200, 77));
  const std::vector<std::string> observed = WaitForChoice(1);
  EXPECT_THAT(observed, Contains(HasSubstr("graph:eng77")));
  Tune({Problem(1)});
  EXPECT_EQ(tuner_->releases()->DiffReleases(0, 0, "")->changes.size(), 1U);
  EXPECT_EQ(Served(1), observed);
  ASSERT_TRUE(tuner_->releases()->PromoteRelease("ann", "measured", 0).ok());
  EXPECT_EQ(Served(1)[0], WinnerOf(1));
  EXPECT_EQ(Snapshot().header().release, 2U);
  ASSERT_TRUE(tuner_->releases()->RollBackRelease("ann", "slower", 0).ok());
  EXPECT_EQ(Served(1), observed);
  EXPECT_EQ(Snapshot().header().release, 3U);
}

TEST_F(PublisherTest, ACanaryIsInAChannelOfItsOwn) {
  Start("");
  Send(PlanOf(Text(1), kH200, 77));
  const std::vector<std::string> observed = WaitForChoice(1);
  Tune({Problem(1)});
  ASSERT_TRUE(tuner_->releases()->PromoteRelease("ann", "try", 50).ok());
  const SnapshotReader reader = Snapshot();
  EXPECT_EQ(reader.header().canary_permille, 50U);
  EXPECT_EQ(reader.header().canary_release, 2U);
  EXPECT_EQ(reader.Candidates(Text(1), kH200), observed);
  EXPECT_EQ(reader.Candidates(Text(1), kH200, snapshot::Channel::kCanary)[0], WinnerOf(1));
}

TEST_F(PublisherTest, MissesAreCountedAndMostWantedFirst) {
  Start("");
  Send(MissOf(Text(1), kH200, 2));
  Send(MissOf(Text(2), kH200, 5));
  Send(MissOf(Text(3), kH200, 9, snapshot::UnservedReason::kNotNeutral));
  EXPECT_TRUE(Eventually([&] { return Status().misses() == 16; }));
  const auto wanted = tuner_->releases()->ListWanted("");
  ASSERT_TRUE(wanted.ok());
  ASSERT_THAT(*wanted, SizeIs(2));
  EXPECT_EQ((*wanted)[0].problem_text(), Text(2));
  EXPECT_EQ((*wanted)[0].miss_count(), 5);
}

TEST_F(PublisherTest, WantedProblemsOfAnotherCudnnAreListedByTheNameThatBothHaveAndToldApart) {
  Start("");
  const std::string other = "nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full";
  Send(MissOf(Text(1), kH200, 2));
  Send(MissOf(Text(2), other, 5));
  ASSERT_TRUE(Eventually([&] { return Status().misses() == 7; }));
  release::Publisher& releases = *tuner_->releases();
  ASSERT_THAT(*releases.ListWanted("nvidia-h200"), SizeIs(2));
  EXPECT_EQ((*releases.ListWanted("nvidia-h200"))[0].environment(), "nvidia-h200");
  EXPECT_EQ((*releases.ListWanted("nvidia-h200"))[0].environment_text(), other);
  ASSERT_THAT(*releases.ListWanted(other), SizeIs(1));
  EXPECT_EQ((*releases.ListWanted(other))[0].problem_text(), Text(2));
  EXPECT_TRUE(absl::IsNotFound(releases.ListWanted("nvidia-l4").status()));
  EXPECT_FALSE((*releases.ListWanted("nvidia-h200"))[0].can_be_tuned());
  EXPECT_TRUE((*releases.ListWanted("nvidia-h200"))[1].can_be_tuned());
  EXPECT_EQ(releases.Status().wanted_count(), 2);
  EXPECT_EQ(releases.Status().wanted_elsewhere_count(), 1);
}

TEST_F(PublisherTest, WantedProblemsOutliveTheDaemonAndEndWithAChoice) {
  Start("");
  Send(MissOf(Text(1), kH200, 2));
  EXPECT_TRUE(Eventually([&] { return Status().misses() == 2; }));
  tuner_.reset();
  Start();
  EXPECT_THAT(*tuner_->releases()->ListWanted(""), SizeIs(1));
  Tune({Problem(1)});
  WaitForChoice(1);
  EXPECT_TRUE(Eventually([&] { return tuner_->releases()->ListWanted("")->empty(); }));
  Send(MissOf(Text(1), kH200));  // a program that started before
  EXPECT_TRUE(Eventually([&] { return Status().misses() == 1; }));
  EXPECT_THAT(*tuner_->releases()->ListWanted(""), IsEmpty());
}

TEST_F(PublisherTest, ANewDatabaseKeepsTheChoicesOfTheLastSnapshotThatItLacks) {
  Start("");
  Tune({Problem(1), Problem(2)});
  const std::vector<std::string> before = WaitForChoice(1);
  WaitForChoice(2);
  tuner_.reset();
  MemoryStore store;
  options_.store = &store;
  Start();
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() == 2; }));
  Tune({Problem(2), Problem(3)});
  WaitForChoice(3);
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() == 1; }));
  EXPECT_TRUE(Eventually([&] { return Status().choice_count() == 3; }));
  EXPECT_EQ(Served(1), before);
  // A deletion is no damage, even while something is carried over.
  ASSERT_TRUE(tuner_->DeleteTunings("", {Problem(3)}, /*only_from_fleet=*/false).ok());
  EXPECT_TRUE(Eventually([&] { return Served(3).empty(); }));
  EXPECT_EQ(Served(1), before);
  tuner_.reset();
  Start();
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() == 1; }));
  Tune({Problem(1)});
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() == 0; }));
  EXPECT_FALSE(*store.CarriesOver());
  EXPECT_THAT(Served(1), Not(IsEmpty()));
}

TEST_F(PublisherTest, AChoiceIsNotCarriedOverAgainstAQuarantineOrAfterItsPin) {
  Start("");
  Tune({Problem(1), Problem(2), Problem(3)});
  for (const int n : {1, 2, 3}) WaitForChoice(n);
  const std::string crashes = Served(2).front();
  const std::string pinned = Served(3).back();
  const auto pattern = CandidatePattern::Parse(pinned);
  ASSERT_TRUE(pattern.ok());
  ASSERT_TRUE(tuner_->PutPin("", Problem(3), *pattern, "test", std::nullopt, 0).ok());
  ASSERT_TRUE(Eventually([&] { return Served(3).front() == pinned; }));
  tuner_.reset();
  MemoryStore store;
  QuarantineEntry entry;
  entry.key = {Text(2), kH200};
  entry.candidate = ParseCandidateId(crashes).value();
  ASSERT_TRUE(store.PutQuarantine(entry).ok());
  options_.store = &store;
  Start();
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() > 0; }));
  EXPECT_EQ(Status().carried_count(), 1);
  EXPECT_THAT(Served(1), Not(IsEmpty()));
  EXPECT_THAT(Served(2), IsEmpty());
  EXPECT_THAT(Served(3), IsEmpty());
}

TEST_F(PublisherTest, ABannedCandidateIsNotCarriedOver) {
  Start("");
  Tune({Problem(1), Problem(2)});
  const std::vector<std::string> before = WaitForChoice(1);
  ASSERT_GT(before.size(), 1U);
  WaitForChoice(2);
  tuner_.reset();
  MemoryStore store;
  Ban ban;
  ban.candidate = CandidatePattern::Parse(before[0]).value();
  ASSERT_TRUE(store.AddBan(ban).ok());
  options_.store = &store;
  Start();
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() == 2; }));
  EXPECT_EQ(Served(1), std::vector<std::string>(before.begin() + 1, before.end()));
  // One that is made while it is carried over, and leaves nothing of one API.
  MakeBan("graph:*");
  EXPECT_TRUE(Eventually([&] { return !ServesGraph(1); }));
  MakeBan("legacy:*");
  EXPECT_TRUE(Eventually([&] { return Status().carried_count() == 0; }));
  EXPECT_THAT(Served(1), IsEmpty());
  EXPECT_THAT(Served(2), IsEmpty());
  tuner_.reset();  // before its stores
}

TEST_F(PublisherTest, MalformedDatagramsAreCountedAndIgnored) {
  Start("");
  const std::string noise(200, 'x');
  Send(noise[0], 1);
  auto cut = MissOf(Text(1), kH200);
  Send(cut, sizeof cut - 1);
  auto lying = MissOf(Text(1), kH200);
  lying.header.problem.spatial_rank = 9;
  Send(lying);
  EXPECT_TRUE(Eventually([&] { return Status().datagrams_malformed() == 3; }));
  EXPECT_EQ(Status().datagrams_received(), 3);
  EXPECT_THAT(*tuner_->releases()->ListWanted(""), IsEmpty());
}

TEST_F(PublisherTest, AFloodIsShedAtItsSendersAndNobodyElseSuffers) {
  Start("");
  const int fd = Connect(SOCK_NONBLOCK);
  const snapshot::MissDatagram miss = MissOf(Text(1), kH200);
  constexpr int kFlood = 50'000;
  int taken = 0;
  for (int i = 0; i < kFlood; ++i) {
    taken += send(fd, &miss, sizeof miss, 0) == static_cast<ssize_t>(sizeof miss) ? 1 : 0;
  }
  close(fd);
  EXPECT_LT(taken, kFlood);
  EXPECT_EQ(Tune({Problem(2)}).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(Eventually([&] { return Status().datagrams_received() == taken; }));
  EXPECT_EQ(Status().datagrams_malformed(), 0);
}

TEST_F(PublisherTest, ObservedPlansAreKeptUnlessSomethingBetterIsKnown) {
  Start("");
  Tune({Problem(1)});
  Send(PlanOf(Text(1), kH200, 77));
  Send(PlanOf(Text(2), kH200, 77));
  Send(LegacyOf(Text(2), kH200));
  Send(PlanOf(Text(2), kH200, 77));
  EXPECT_TRUE(Eventually([&] { return Status().datagrams_received() == 4; }));
  EXPECT_EQ(Status().observed(), 2);
  EXPECT_EQ(tuner_->GetTuning("", Problem(1))->evidence, Evidence::kMeasured);
  const Tuning observed = tuner_->GetTuning("", Problem(2)).value();
  EXPECT_EQ(observed.evidence, Evidence::kObserved);
  EXPECT_THAT(observed.candidates, SizeIs(3));
  EXPECT_EQ(LookupOne(Problem(2), jobs::OnMiss::kTune).answer().evidence(), v1::EVIDENCE_MEASURED);
}

TEST_F(PublisherTest, AnEnvironmentThatOnlyProgramsKnowIsLearnedAndServed) {
  Start("");
  const std::string other = "nvidia-l4,cc=8.9,sms=58,cudnn=9.19.0,lib=full";
  Send(PlanOf(Text(1), other, 77));
  WaitForChoice(1, other);
  EXPECT_TRUE(tuner_->ResolveEnvironment("nvidia-l4", {}).ok());
}

TEST_F(PublisherTest, WantedProblemsAreTunedWhileNobodyWaits) {
  options_.publish.tune_wanted = true;
  Start("");
  Send(MissOf(Text(1), kH200, 1));
  Send(MissOf(Text(2), kH200, 4));
  WaitForChoice(1);
  WaitForChoice(2);
  EXPECT_TRUE(Eventually([&] { return tuner_->releases()->ListWanted("")->empty(); }));
  EXPECT_EQ(Requests("open"), 2);
}

TEST_F(PublisherTest, WantedProblemsOfAnotherCudnnWaitUntilTheirGpuIsIdle) {
  options_.publish.tune_wanted = true;
  options_.hang_timeout = absl::Hours(1);
  const std::string newer = "nvidia-h200,cc=9.0,sms=132,cudnn=9.28.1,lib=full";
  AddDevice("fault=hang", kH200);
  AddDevice("", newer);
  for (devices::DeviceSpec& device : options_.devices) device.gpu = "gpu:0";
  const std::string other_gpu = "nvidia-l4,cc=8.9,sms=58,cudnn=9.19.0,lib=full";
  AddDevice("", other_gpu);
  Start();
  jobs::JobRequest request;
  request.environment = kH200;
  request.problems = {Problem(1)};
  const std::string job = tuner_->CreateJob(request)->name();
  Send(MissOf(Text(3), newer, 4));
  Send(MissOf(Text(4), other_gpu, 1));
  // Whoever tuned the less wanted one had looked at the other before.
  ASSERT_TRUE(Eventually([&] { return tuner_->GetTuning(other_gpu, Problem(4)).ok(); }));
  EXPECT_EQ(tuner_->ListDevices()[1].state(), v1::DEVICE_STATE_IDLE);
  EXPECT_EQ(tuner_->ListDevices()[1].worker_starts(), 0);
  ASSERT_TRUE(tuner_->jobs().Cancel(job).ok());
  EXPECT_TRUE(Eventually([&] { return tuner_->GetTuning(newer, Problem(3)).ok(); }));
}

TEST_F(PublisherTest, WantedProblemsAreTunedWithinTheirLimits) {
  options_.publish.tune_wanted = true;
  options_.publish.wanted_memory_budget_bytes = int64_t{1} << 30;
  options_.publish.wanted_wait_idle = absl::Minutes(1);
  Start("other_processes=1;busy_looks=2");
  Send(MissOf(Text(1), kH200, 1));
  WaitForChoice(1);
  EXPECT_EQ(Requests("conditions"), 3);
  EXPECT_EQ(tuner_->GetTuning("", Problem(1))->memory_budget_bytes, int64_t{1} << 30);
}

TEST_F(PublisherTest, AWantedProblemThatCannotBeTunedSaysWhyAndIsLeftForAWhile) {
  options_.publish.tune_wanted = true;
  Start("unsupported=8");
  Send(MissOf(Text(1), kH200, 1));
  EXPECT_TRUE(Eventually([&] {
    const auto wanted = tuner_->releases()->ListWanted("");
    return wanted.ok() && wanted->size() == 1 && (*wanted)[0].attempt_count() == 1;
  }));
  EXPECT_THAT((*tuner_->releases()->ListWanted(""))[0].last_error(), HasSubstr("no candidate ran"));
  EXPECT_EQ(Requests("open"), 1);
}

TEST_F(PublisherTest, AFolderThatCannotBeWrittenIsReportedAndNothingElseSuffers) {
  options_.publish.folder = "/proc/convtune-nowhere";
  Start("");
  EXPECT_TRUE(Eventually([&] { return !Status().error().empty(); }));
  EXPECT_FALSE(Status().socket_error().empty());
  EXPECT_EQ(Tune({Problem(1)}).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(PublisherTest, WhereTheDiskRefusesWhatIsServedStays) {
  const std::vector<std::string> before = StartAndServeOne();
  store_.FailReleasesWith(absl::ResourceExhaustedError("disk full"));
  Tune({Problem(2)});
  EXPECT_TRUE(Eventually([&] { return !Status().error().empty(); }));
  EXPECT_EQ(Served(1), before);
  EXPECT_TRUE(Served(2).empty());
  store_.FailReleasesWith(absl::OkStatus());
  WaitForChoice(2);  // by itself
}

TEST_F(PublisherTest, ABanChangesTheSnapshot) {
  const std::vector<std::string> before = StartAndServeOne();
  EXPECT_EQ(MakeBan(before[0]).changes_size(), 1);
  EXPECT_TRUE(Eventually([&] { return Served(1) != before; }));
  EXPECT_THAT(Served(1), Not(Contains(before[0])));
  EXPECT_THAT(Served(1), Contains(WinnerOf(1)));
  MakeBan("graph:*");
  EXPECT_TRUE(Eventually([&] { return !ServesGraph(1); }));
}

TEST_F(PublisherTest, ABannedPinIsNotServed) {
  const std::vector<std::string> before = StartAndServeOne();
  const CandidatePattern pattern = CandidatePattern::Parse(before[0]).value();
  ASSERT_TRUE(tuner_->PutPin("", Problem(1), pattern, "because", std::nullopt, 0).ok());
  const v1::CreateBanResponse created = MakeBan(before[0]);
  ASSERT_EQ(created.changes_size(), 1);
  EXPECT_TRUE(created.changes(0).pinned());
  EXPECT_TRUE(Eventually([&] { return Served(1) != before; }));
  EXPECT_THAT(Served(1), Not(Contains(before[0])));
  EXPECT_EQ(tuner_->PutPin("", Problem(1), pattern, "because", std::nullopt, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace convtune::release
