// The fleet's tables, in a PostgreSQL server that CONVTUNE_TEST_POSTGRES names (a
// connection string of an empty database). tests/integration/test_fleet_store.py
// runs it with one of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/bundle/bundle_codec.h"
#include "db/fleet/bans.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "db/fleet/nodes.h"
#include "db/fleet/queue.h"
#include "db/fleet/releases.h"
#include "db/fleet/reports.h"
#include "tests/unit/db/valid_tunings.h"

namespace convtune::db::fleet {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Takes the first node's word.
PooledTuning TakeFirst(const std::vector<NodeEvidence>& evidence) {
  PooledTuning pooled;
  pooled.tuning = evidence.front().tuning;
  pooled.agreeing = 1;
  return pooled;
}

// A row of a node's outbox.
struct FleetDelivery {
  int64_t epoch = 77;
  int64_t sequence = 0;
  Tuning tuning;  // its samples are left out
  Environment environment;
};

std::vector<v1::OutboxRow> OutboxRows(const std::vector<FleetDelivery>& deliveries) {
  std::vector<v1::OutboxRow> rows;
  for (const FleetDelivery& delivery : deliveries) {
    v1::OutboxRow& row = rows.emplace_back();
    row.mutable_id()->set_epoch(delivery.epoch);
    row.mutable_id()->set_sequence(delivery.sequence);
    *row.mutable_environment() =
        bundle::ToBundleEnvironment(1, delivery.environment, delivery.tuning.provenance);
    *row.mutable_tuning() = bundle::ToBundleTuning(delivery.tuning, 1, /*with_samples=*/false);
  }
  return rows;
}

FleetPin PinOf(const TuningKey& key, const std::string& candidate) {
  FleetPin pin;
  pin.environment_text = key.environment_text;
  pin.problem_text = key.problem_text;
  pin.candidate = candidate;
  pin.author = "ann";
  pin.reason = "why";
  return pin;
}

Ban BanOfPattern(const std::string& pattern) {
  Ban ban;
  ban.candidate = CandidatePattern::Parse(pattern).value();
  ban.author = "ann";
  ban.reason = "wrong results";
  return ban;
}

class FleetStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* conninfo = std::getenv("CONVTUNE_TEST_POSTGRES");
    ASSERT_NE(conninfo, nullptr) << "CONVTUNE_TEST_POSTGRES names no database";
    options_.conninfo = conninfo;
    postgres_ = Connect();
    ASSERT_NE(postgres_, nullptr);
    Run("DROP SCHEMA IF EXISTS convtune CASCADE");
    ASSERT_TRUE(MigrateFleet(*postgres_).ok());
    names_ = std::make_unique<FleetNames>(postgres_.get());
    const auto node = RegisterNode(*postgres_, "node-a");
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *node;
  }

  std::unique_ptr<postgres::Connection> Connect() {
    auto connected = postgres::Connection::Connect(options_);
    EXPECT_TRUE(connected.ok()) << connected.status();
    return connected.ok() ? *std::move(connected) : nullptr;
  }

  static FleetDelivery Delivery(int n, int64_t sequence, int64_t epoch = 77, int version = 0) {
    FleetDelivery delivery{epoch, sequence, ValidSampleTuning(n), SampleEnvironment()};
    delivery.tuning.elapsed += absl::Seconds(version);
    return delivery;
  }

  // Returns how many of them were here already.
  int64_t Take(const std::vector<FleetDelivery>& deliveries) {
    const auto repeated = Deliver(*postgres_, *names_, node_, OutboxRows(deliveries));
    EXPECT_TRUE(repeated.ok()) << repeated.status();
    return repeated.value_or(-1);
  }

  // Pools what is queued. Returns how many problems that was.
  int64_t Pool(const PoolFunction& pool = TakeFirst) {
    const auto pooled = PoolQueued(*postgres_, *names_, 100, pool);
    EXPECT_TRUE(pooled.ok()) << pooled.status();
    return pooled.value_or(-1);
  }
  // What the nodes say of the problems that are queued to be pooled, as it is pooled.
  std::vector<Tuning> Evidence() {
    std::vector<Tuning> tunings;
    Pool([&](const std::vector<NodeEvidence>& evidence) {
      for (const NodeEvidence& one : evidence) tunings.push_back(one.tuning);
      return TakeFirst(evidence);
    });
    return tunings;
  }

  auto Promote(int permille = 0, const PromotionScope& scope = {}) {
    return PromoteFleetRelease(*postgres_, {"ann", "why", nullptr}, permille, scope);
  }
  auto RollBack(int64_t release = 0) {
    return RollBackFleetRelease(*postgres_, {"bob", "slow", nullptr}, release);
  }

  auto PutBan(const std::string& pattern, std::optional<absl::Duration> left = std::nullopt) {
    return PutFleetBan(*postgres_, BanOfPattern(pattern), left);
  }

  // Of these problems, the last of which is the most urgent.
  static BatchRequest Request(const std::vector<int>& problems) {
    BatchRequest request;
    request.environment_text = SampleEnvironment().ToText();
    request.author = "ann";
    for (const int n : problems) {
      const auto urgency = static_cast<double>(request.tasks.size() + 1);
      request.tasks.push_back({ValidSampleTuning(n).key.problem_text, urgency});
    }
    return request;
  }
  std::vector<FleetTask> Claim(int64_t node, int64_t most = 1,
                               absl::Duration lease = absl::Hours(1)) {
    const auto tasks = ClaimTasks(*postgres_, *names_, node, environment_, most, lease);
    EXPECT_TRUE(tasks.ok()) << tasks.status();
    return tasks.ok() ? *tasks : std::vector<FleetTask>();
  }

  void Run(const std::string& sql) {
    const absl::Status status = postgres_->Execute(sql);
    ASSERT_TRUE(status.ok()) << status << " of " << sql;
  }
  std::string Text(const std::string& sql) {
    const auto rows = postgres_->Query(sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::string text;
    if (!rows.ok()) return text;
    for (const std::string& value : rows->Column<std::string>()) text += value + ";";
    return text;
  }

  // Nodes with the environment of what was delivered, by names that begin so.
  void AddNodes(int count, const std::string& name, const std::string& last_seen) {
    Run(absl::StrCat("WITH made AS (INSERT INTO nodes (name, last_seen) SELECT '", name, "' || n, ",
                     last_seen, " FROM generate_series(1, ", count,
                     ") n RETURNING node_id) INSERT INTO node_devices (node_id, device, "
                     "environment_id, driver_version, current) SELECT node_id, 'gpu', "
                     "environment_id, '', true FROM made, environments"));
  }

  // What every order of deliveries must lead to.
  std::string State() {
    return Text(
        "SELECT problem_id || ' ' || sequence || ' ' || current || ' ' || (payload IS NOT NULL) "
        "FROM evidence JOIN problems q USING (problem_id) ORDER BY q.text, epoch_ordinal, "
        "sequence");
  }

  const std::string environment_ = SampleEnvironment().ToText();
  postgres::Connection::Options options_;
  std::unique_ptr<postgres::Connection> postgres_;
  std::unique_ptr<FleetNames> names_;
  int64_t node_ = 0;
};

TEST_F(FleetStoreTest, MigratesOnceHoweverOftenItIsAsked) {
  EXPECT_EQ(*MigrateFleet(*postgres_), 0);
  EXPECT_EQ(*FleetSchemaVersion(*postgres_), sqlite::LatestVersion(AllFleetMigrations()));
  EXPECT_TRUE(CheckFleetSchema(*postgres_).ok());
}

TEST_F(FleetStoreTest, RefusesASchemaThatItDoesNotKnow) {
  Run("INSERT INTO schema_migrations (version, name) VALUES (99, 'x')");
  // That migration says whom it leaves behind.
  EXPECT_TRUE(CheckFleetSchema(*postgres_).ok());
  EXPECT_EQ(*MigrateFleet(*postgres_), 0);
  Run("UPDATE fleet SET compatible_version = 99");
  EXPECT_THAT(std::string(CheckFleetSchema(*postgres_).message()), HasSubstr("newer"));
  EXPECT_FALSE(MigrateFleet(*postgres_).ok());
  Run("DELETE FROM schema_migrations");
  EXPECT_THAT(std::string(CheckFleetSchema(*postgres_).message()), HasSubstr("migrate"));
  Run("INSERT INTO schema_migrations (version, name) VALUES (1, 'x')");
  EXPECT_THAT(std::string(MigrateFleet(*postgres_).status().message()),
              HasSubstr("never released"));
}

TEST_F(FleetStoreTest, MigratesForwardWithWhatIsThere) {
  const std::span<const sqlite::Migration> known = AllFleetMigrations();
  std::vector<sqlite::Migration> later(known.begin(), known.end());
  const int next = sqlite::LatestVersion(known) + 1;
  later.push_back({next, "later", "ALTER TABLE nodes ADD COLUMN rack text NOT NULL DEFAULT 'r1'"});
  EXPECT_EQ(*MigrateFleet(*postgres_, later), 1);
  EXPECT_EQ(*MigrateFleet(*postgres_, later), 0);
  EXPECT_EQ(*FleetSchemaVersion(*postgres_), next);
  EXPECT_EQ(Text("SELECT rack FROM nodes"), "r1;");
  // A migration that fails leaves nothing behind, not even those of its statements that worked.
  later.push_back({next + 1, "wrong", "UPDATE nodes SET rack = 'r2'; SELECT nonsense"});
  EXPECT_FALSE(MigrateFleet(*postgres_, later).ok());
  EXPECT_EQ(*FleetSchemaVersion(*postgres_), next);
  EXPECT_EQ(Text("SELECT rack FROM nodes"), "r1;");
  // Programs that are connected, and that the next one leaves behind, do not write.
  EXPECT_TRUE(names_->Begin().ok());
  later.back().sql = "UPDATE fleet SET compatible_version = 99";
  EXPECT_EQ(*MigrateFleet(*postgres_, later), 1);
  EXPECT_TRUE(absl::IsAborted(names_->Begin().status()));
  EXPECT_THAT(std::string(CheckFleetSchema(*postgres_).message()), HasSubstr("newer"));
}

// As the fleet knows a tuning: without samples, and where it was measured.
Tuning Comparable(Tuning tuning) {
  tuning.provenance = Provenance();
  tuning.origin = Origin::kLocal;
  return WithoutSamples(std::move(tuning));
}

TEST_F(FleetStoreTest, KeepsADeliveryAsItWas) {
  FleetDelivery odd = Delivery(2, 2);
  odd.tuning.evidence = Evidence::kIncomplete;
  odd.tuning.incomplete_message = "it's \"so\" \\ and\nso; " + std::string(200, 'x');
  Take({Delivery(1, 1), odd});
  std::vector<Tuning> known;
  for (const Tuning& tuning : Evidence()) known.push_back(Comparable(tuning));
  EXPECT_THAT(known,
              UnorderedElementsAre(Comparable(Delivery(1, 1).tuning), Comparable(odd.tuning)));
}

TEST_F(FleetStoreTest, ANewerOneTakesTheOldersPlaceWholeWhateverItsClockSays) {
  FleetDelivery newer = Delivery(1, 2, 77, 1);
  newer.tuning.candidates.resize(2);
  newer.tuning.tune_time -= absl::Hours(24);
  Take({Delivery(1, 1)});
  Take({newer});
  const std::vector<Tuning> known = Evidence();
  ASSERT_THAT(known, SizeIs(1));
  EXPECT_EQ(Comparable(known[0]), Comparable(newer.tuning));
}

TEST_F(FleetStoreTest, BetterEvidenceTakesThePlaceOfWorseAndNeverTheReverse) {
  FleetDelivery guess = Delivery(1, 1);
  guess.tuning.evidence = Evidence::kHeuristic;
  Take({guess});
  EXPECT_EQ(Text("SELECT sequence FROM evidence WHERE current"), "1;");
  Take({Delivery(1, 2)});
  EXPECT_EQ(Text("SELECT sequence FROM evidence WHERE current"), "2;");
  guess.sequence = 3;
  guess.tuning.tune_time += absl::Hours(1);
  Take({guess});
  EXPECT_EQ(Text("SELECT sequence FROM evidence WHERE current"), "2;");
  EXPECT_EQ(Text("SELECT COUNT(*) FROM evidence"), "3;") << "it stays as the record";
}

TEST_F(FleetStoreTest, RefusesANumberThatIsNoneAndNamesIt) {
  FleetDelivery delivery = Delivery(1, 1);
  delivery.tuning.candidates[1].median_us = std::numeric_limits<double>::quiet_NaN();
  const absl::Status refused = Deliver(*postgres_, *names_, node_, OutboxRows({delivery})).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("candidates[1]"));
  EXPECT_EQ(Text("SELECT COUNT(*) FROM evidence"), "0;");
}

TEST_F(FleetStoreTest, WhatNobodySaysAnyMoreIsNoPooledTuning) {
  Take({Delivery(1, 1)});
  Pool();
  EXPECT_EQ(Text("SELECT COUNT(*) FROM pooled"), "1;");
  ASSERT_TRUE(DistrustNode(*postgres_, "node-a", "ann", "a liar").ok());
  Pool();
  EXPECT_EQ(Text("SELECT COUNT(*) FROM pooled"), "0;");
}

TEST_F(FleetStoreTest, ThinningTakesWhatWasSupersededAndNothingElse) {
  for (int version = 0; version < 4; ++version) Take({Delivery(1, 1 + version, 77, version)});
  Run("UPDATE evidence SET receive_time = now() - interval '100 days' WHERE "
      "sequence IN (1, 2, 4); INSERT INTO pooled_payloads VALUES "
      "(decode(repeat('ab', 16), 'hex'), 'x')");
  const auto thinned = ThinFleet(*postgres_, absl::Hours(24 * 90));
  ASSERT_TRUE(thinned.ok()) << thinned.status();
  EXPECT_EQ(thinned->evidence, 2);
  EXPECT_EQ(thinned->payloads, 1);
  // The third is young, the fourth is current.
  EXPECT_EQ(Text("SELECT sequence FROM evidence ORDER BY sequence"), "3;4;");
}

TEST_F(FleetStoreTest, OneThinsInADay) {
  const auto first = ThinFleetDaily(*postgres_, absl::Hours(1));
  const auto second = ThinFleetDaily(*postgres_, absl::Hours(1));
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_TRUE(first->has_value());
  EXPECT_FALSE(second->has_value());
}

TEST_F(FleetStoreTest, KeepsADeliveryOnceHoweverOftenItComes) {
  EXPECT_EQ(Take({Delivery(1, 1), Delivery(2, 2)}), 0);
  const std::string state = State();
  EXPECT_EQ(Take({Delivery(1, 1), Delivery(2, 2)}), 2);
  EXPECT_EQ(Take({Delivery(2, 2)}), 1);
  EXPECT_EQ(State(), state);
}

TEST_F(FleetStoreTest, ATimeThatNoGpuReachesIsRefusedWithItsBound) {
  FleetDelivery delivery = Delivery(1, 1);
  Candidate& candidate = delivery.tuning.candidates[0];
  ASSERT_TRUE(candidate.timed());
  // The clock of this node counts in other units.
  candidate.median_us = candidate.q1_us = candidate.low_us = candidate.high_us = candidate.q3_us =
      1e-9;
  const absl::Status refused = Deliver(*postgres_, *names_, node_, OutboxRows({delivery})).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(": must be at least "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(" SMs at 4000 MHz would take, is 1e-09"));
  // An agent may write what it likes: such a row counts for nothing where it is pooled.
  EXPECT_FALSE(
      ReadPayload(WritePayload(delivery.tuning), delivery.environment.ToText(), "NVIDIA H200")
          .ok());
}

TEST_F(FleetStoreTest, TheSameTuningUnderAnotherNumberIsNoNewOne) {
  Take({Delivery(1, 1)});
  EXPECT_EQ(Take({Delivery(1, 9, 78)}), 1);
  EXPECT_EQ(Text("SELECT COUNT(*) FROM evidence"), "1;");
}

TEST_F(FleetStoreTest, ANumberThatComesWithAnotherProblemTakesNothingAway) {
  Take({Delivery(1, 1), Delivery(2, 2)});
  const std::string state = State();
  // A node that was copied gives its numbers twice.
  EXPECT_EQ(Take({Delivery(1, 2, 77, 1)}), 1);
  EXPECT_EQ(State(), state);
}

TEST_F(FleetStoreTest, EveryOrderOfDeliveriesComesToTheSame) {
  std::vector<FleetDelivery> all;
  for (int sequence = 1; sequence <= 12; ++sequence) {
    all.push_back(Delivery(1 + sequence % 3, sequence, 77, sequence));
  }
  Take(all);
  const std::string expected = State();
  std::mt19937 random(5);
  for (int round = 0; round < 6; ++round) {
    Run("TRUNCATE evidence, node_epochs, pool_queue");
    std::vector<FleetDelivery> shuffled = all;
    shuffled.insert(shuffled.end(), all.begin(), all.begin() + 5);  // some twice
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    // The rows in between are superseded by one that is here already, or not yet:
    // what is current, and has a payload, must not depend on that.
    for (size_t i = 0; i < shuffled.size(); i += 3) {
      Take({shuffled.begin() + static_cast<std::ptrdiff_t>(i),
            shuffled.begin() + static_cast<std::ptrdiff_t>(std::min(i + 3, shuffled.size()))});
    }
    EXPECT_EQ(State(), expected) << round;
  }
}

TEST_F(FleetStoreTest, ALaterEpochIsNewerWhateverItsNumbers) {
  Take({Delivery(1, 50, 77, 1)});
  Take({Delivery(1, 3, 12, 2)});
  EXPECT_EQ(Text("SELECT epoch_ordinal FROM evidence WHERE current"), "2;");
}

TEST_F(FleetStoreTest, AContendedMeasurementNeverTakesThePlaceOfACleanOne) {
  FleetDelivery clean = Delivery(1, 1, 77, 1);
  clean.tuning.evidence = Evidence::kIncomplete;
  FleetDelivery contended = Delivery(1, 2, 77, 2);
  contended.tuning.evidence = Evidence::kIncomplete;
  contended.tuning.conditions.known = true;
  contended.tuning.conditions.other_processes = 1;
  Take({clean, contended});
  EXPECT_EQ(Text("SELECT sequence FROM evidence WHERE current"), "1;");
  Take({Delivery(1, 3, 77, 3)});
  EXPECT_EQ(Text("SELECT sequence FROM evidence WHERE current"), "3;");
}

TEST_F(FleetStoreTest, FirstConfigsNeverTakeThePlaceOfAFullListing) {
  FleetDelivery full = Delivery(1, 1, 77, 1);
  full.tuning.evidence = Evidence::kHeuristic;
  FleetDelivery first = Delivery(1, 2, 77, 2);
  first.tuning.evidence = Evidence::kHeuristic;
  AddReason(IncompleteReason::kFirstConfigsOnly, "the first configs alone", &first.tuning);
  Take({full, first});
  EXPECT_EQ(Text("SELECT sequence FROM evidence WHERE current"), "1;");
}

TEST_F(FleetStoreTest, RollingBackAgainGoesFurtherBack) {
  for (int64_t i = 1; i <= 3; ++i) {
    Take({Delivery(static_cast<int>(i), i)});
    Pool();
    ASSERT_TRUE(Promote().ok());
  }
  const auto back = RollBack();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->release.restores, 2);
  EXPECT_EQ(back->kept_count, 1);  // the third release's problem had no choice before
  const auto again = RollBack();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->release.restores, 1);
  EXPECT_EQ(again->release.number, 5);
  EXPECT_EQ(again->release.author, "bob");
  EXPECT_EQ(again->kept_count, 2);
  EXPECT_EQ(again->returned_count, 0);
  const absl::Status none = RollBack().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("5 is as release 1, the first"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("release withdraw"));
  EXPECT_TRUE(absl::IsFailedPrecondition(RollBack(5).status()));
  EXPECT_TRUE(absl::IsNotFound(RollBack(9).status()));
}

TEST_F(FleetStoreTest, ACanaryIsDrawnAmongLivingNodesAndAWiderOneKeepsThem) {
  Take({Delivery(1, 1)});
  Pool();
  PromotionScope scope;
  scope.min_nodes = 1;
  const auto draw = [&](int permille) { return Promote(permille, scope); };
  const auto nobody = draw(500).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(nobody)) << nobody;
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("--canary: no node has an environment"));
  AddNodes(5, "silent", "now() - interval '61 seconds'");
  const auto silent = draw(500).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(silent)) << silent;
  EXPECT_THAT(std::string(silent.message()), HasSubstr("--canary: every node of "));
  EXPECT_EQ(Text("SELECT release_number::text FROM releases"), "");
  AddNodes(20, "living", "now() - interval '50 seconds'");
  const auto tenth = draw(100);
  ASSERT_TRUE(tenth.ok()) << tenth.status();
  EXPECT_EQ(tenth->silent_count, 5);
  EXPECT_THAT(tenth->canary_nodes, AllOf(SizeIs(2), Each(StartsWith("living"))));
  const auto half = draw(501);
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_THAT(half->canary_nodes, AllOf(SizeIs(11), Each(StartsWith("living"))));
  EXPECT_THAT(half->canary_nodes, IsSupersetOf(tenth->canary_nodes));
  EXPECT_EQ(ReadFleetRelease(*postgres_, 1)->canary_nodes, half->canary_nodes);
  // The next canary has other nodes.
  ASSERT_TRUE(RollBack().ok());
  EXPECT_NE(draw(501)->canary_nodes, half->canary_nodes);
}

TEST_F(FleetStoreTest, ACanaryIsWidenedThenPromotedOrRolledBack) {
  Take({Delivery(1, 1)});
  Pool();
  AddNodes(1, "one", "now()");
  ASSERT_TRUE(Promote(50).ok());
  EXPECT_EQ(ReadServedReleases(*postgres_)->promoted(), nullptr);
  EXPECT_EQ(ReadServedReleases(*postgres_)->canary()->canary_permille, 50);
  EXPECT_EQ(Promote(200)->release.canary_permille, 200);
  const auto rolled_back = RollBack();
  ASSERT_TRUE(rolled_back.ok()) << rolled_back.status();
  EXPECT_EQ(rolled_back->release.state, ReleaseState::kRolledBack);
  EXPECT_EQ(rolled_back->release.end_author, "bob");
  EXPECT_TRUE(rolled_back->release.end_time.has_value());
  EXPECT_EQ(rolled_back->release.author, "ann");
  EXPECT_EQ(rolled_back->change_count, 1);
  EXPECT_EQ(Promote()->release.number, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(Promote().status()));
}

TEST_F(FleetStoreTest, PoolsWhatChangedAndOnlyThat) {
  Take({Delivery(1, 1), Delivery(2, 2)});
  EXPECT_EQ(Pool(), 2);
  EXPECT_EQ(Pool(), 0);
  Take({Delivery(1, 3, 77, 1)});
  EXPECT_EQ(Pool(), 1);
  EXPECT_EQ(Text("SELECT COUNT(*) FROM pooled"), "2;");
}

TEST_F(FleetStoreTest, AKeyThatSomebodyIsAtIsLeftAlone) {
  Take({Delivery(1, 1), Delivery(2, 2)});
  const std::unique_ptr<postgres::Connection> other = Connect();
  ASSERT_TRUE(
      other->Execute("BEGIN; SELECT * FROM pool_queue ORDER BY problem_id LIMIT 1 FOR UPDATE")
          .ok());
  EXPECT_EQ(Pool(), 1);
  ASSERT_TRUE(other->Execute("ROLLBACK").ok());
  EXPECT_EQ(Pool(), 1);
}

TEST_F(FleetStoreTest, NobodySeesAReleaseBeforeTheOnesBelowIt) {
  Take({Delivery(1, 1)});
  Pool();
  const std::unique_ptr<postgres::Connection> slow = Connect();
  // A promotion that has its number and has not committed.
  ASSERT_TRUE(slow->Execute("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('convtune "
                            "release', 0)); INSERT INTO releases (release_number, state, "
                            "canary_permille, change_count, author, reason) VALUES (1, 1, 0, 0, "
                            "'a', 'b')")
                  .ok());
  Run("SET lock_timeout TO 300");
  EXPECT_FALSE(Promote().ok());
  EXPECT_EQ(ReadServedReleases(*postgres_)->promoted(), nullptr);
  ASSERT_TRUE(slow->Execute("COMMIT").ok());
  const auto after = Promote();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->release.number, 2);
}

TEST_F(FleetStoreTest, ANewWinnerWithinNoiseIsNoChange) {
  Take({Delivery(1, 1)});
  Pool();
  ASSERT_TRUE(Promote().ok());
  const auto pool_with_second = [](double ratio) {
    return [ratio](const std::vector<NodeEvidence>& evidence) {
      PooledTuning pooled = TakeFirst(evidence);
      std::swap(pooled.tuning.candidates[0], pooled.tuning.candidates[1]);
      Candidate& winner = pooled.tuning.candidates[0];
      const Candidate& before = pooled.tuning.candidates[1];
      winner.median_us = before.median_us * ratio;
      winner.low_us = winner.q1_us = winner.median_us * 0.98;
      winner.high_us = winner.q3_us = winner.median_us * 1.02;
      return pooled;
    };
  };
  Take({Delivery(1, 2, 77, 1)});
  Pool(pool_with_second(0.99));
  EXPECT_EQ(DiffPooled(*postgres_, {}, 10)->change_count, 0);
  EXPECT_EQ(DiffPooled(*postgres_, {.all = true}, 10)->change_count, 1);
  Take({Delivery(1, 3, 77, 2)});
  Pool(pool_with_second(0.8));
  EXPECT_EQ(DiffPooled(*postgres_, {}, 10)->change_count, 1);
}

TEST_F(FleetStoreTest, ATaskIsOnesAtATimeAndComesBackWhenItsLeaseRunsOut) {
  const auto batch = QueueBatch(*postgres_, *names_, Request({1, 2}));
  ASSERT_TRUE(batch.ok()) << batch.status();
  const std::vector<FleetTask> first = Claim(node_, 1, absl::Milliseconds(1));
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].problem_text, ValidSampleTuning(2).key.problem_text);
  // Any agent may write a reason, also in advance.
  Run("INSERT INTO task_failures (task_id, attempt, lost_lease, reason) "
      "SELECT task_id, 1, true, 'x' FROM tasks");
  absl::SleepFor(absl::Milliseconds(20));
  const std::vector<FleetTask> again = Claim(node_, 5);
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_THAT(Claim(node_, 5), SizeIs(0));
  // Who had the lease before has no say.
  EXPECT_FALSE(*CompleteTask(*postgres_, first[0]));
  for (const FleetTask& task : again) EXPECT_TRUE(*CompleteTask(*postgres_, task));
  EXPECT_EQ(ReadProgress(*postgres_, *batch)->done, 2);
}

// One problem that node-a has measured is queued for two of four nodes.
class SecondMeasurementTest : public FleetStoreTest {
 protected:
  void SetUp() override {
    FleetStoreTest::SetUp();
    Take({Delivery(1, 1)});
    AddNodes(3, "other-", "now()");
    Run(
        absl::StrCat("INSERT INTO node_devices (node_id, device, environment_id, "
                     "driver_version, current) SELECT ",
                     node_,
                     ", 'gpu', environment_id, '', true "
                     "FROM environments"));
    other_ = *postgres_->QueryValue<int64_t>("SELECT node_id FROM nodes WHERE name = 'other-1'");
    ASSERT_GT(*QueueBatch(*postgres_, *names_, request_), 0);
  }

  std::string Task() { return Text("SELECT state || ' ' || tuned_by::text FROM tasks"); }

  int64_t other_ = 0;
  const BatchRequest request_ = Request({1});
};

TEST_F(SecondMeasurementTest, ANodeThatMeasuredNothingIsAskedOnceMoreWithForce) {
  const std::vector<FleetTask> first = Claim(other_);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_FALSE(first[0].force);
  EXPECT_TRUE(*CompleteTask(*postgres_, first[0]));  // a release had brought it
  EXPECT_EQ(Task(), absl::StrCat("1 {", node_, "};"));
  const std::vector<FleetTask> again = Claim(other_);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_TRUE(again[0].force);
  EXPECT_TRUE(*CompleteTask(*postgres_, again[0]));  // and it has nothing all the same
  EXPECT_THAT(Claim(other_), SizeIs(0));
}

TEST_F(SecondMeasurementTest, ATaskEndsWhereNoNodeIsLeftThatCouldMeasureIt) {
  EXPECT_TRUE(*CompleteTask(*postgres_, Claim(node_)[0]));
  Run("UPDATE nodes SET last_seen = now() - interval '1 day' WHERE name LIKE "
      "'other%'");
  // They may come back.
  EXPECT_THAT(Claim(node_), SizeIs(0));
  EXPECT_EQ(Task(), absl::StrCat("1 {", node_, "};"));
  EXPECT_EQ(*QueueBatch(*postgres_, *names_, request_), 0);
  const QueuedAlready queued = *FindQueued(*postgres_, request_);
  EXPECT_THAT(queued.batches, ElementsAre(1));
  EXPECT_EQ(queued.lone, 1);
  for (const char* name : {"other-1", "other-2"}) {
    ASSERT_TRUE(ForgetNode(*postgres_, name).ok());
  }
  Run("UPDATE node_devices d SET tunes = false FROM nodes n WHERE "
      "n.node_id = d.node_id AND n.name = 'other-3'");
  EXPECT_THAT(Claim(node_), SizeIs(0));
  EXPECT_EQ(Task(), absl::StrCat("3 {", node_, "};"));
  EXPECT_GT(*QueueBatch(*postgres_, *names_, request_), 0);
}

TEST_F(SecondMeasurementTest, ADistrustedNodeTakesNothingAndIsNoneOfTheTwo) {
  const std::vector<FleetTask> taken = Claim(node_);
  ASSERT_TRUE(DistrustNode(*postgres_, "node-a", "ann", "a liar").ok());
  EXPECT_TRUE(*CompleteTask(*postgres_, taken[0]));
  EXPECT_EQ(Task(), "1 {};");
  EXPECT_THAT(Claim(node_), SizeIs(0));
  const std::vector<FleetTask> others = Claim(other_);
  ASSERT_TRUE(Deliver(*postgres_, *names_, other_, OutboxRows({Delivery(1, 1)})).ok());
  EXPECT_TRUE(*CompleteTask(*postgres_, others[0]));
  EXPECT_EQ(Task(), absl::StrCat("1 {", other_, "};")) << "it wants a second one that is believed";
  ASSERT_TRUE(DistrustNode(*postgres_, "other-2", "ann", "x").ok());
  ASSERT_TRUE(DistrustNode(*postgres_, "other-3", "ann", "x").ok());
  EXPECT_THAT(Claim(other_), SizeIs(0));
  EXPECT_EQ(Task(), absl::StrCat("3 {", other_, "};")) << "nobody is left who would be believed";
}

TEST_F(SecondMeasurementTest, AForgottenNodeThatIsBackIsOneOfTheTwo) {
  Run("UPDATE nodes SET last_seen = now() - interval '1 day'");
  ASSERT_TRUE(ForgetNode(*postgres_, "node-a").ok());
  const auto back = postgres_->QueryValue<int64_t>(
      "INSERT INTO nodes (name) VALUES ('node-a') RETURNING node_id");
  ASSERT_TRUE(back.ok()) << back.status();
  const std::vector<FleetTask> taken = Claim(*back);
  ASSERT_TRUE(Deliver(*postgres_, *names_, *back, OutboxRows({Delivery(1, 9, 78)})).ok());
  EXPECT_TRUE(*CompleteTask(*postgres_, taken[0]));
  EXPECT_EQ(Task(), absl::StrCat("1 {", *back, "};"));
}

TEST_F(FleetStoreTest, ATaskThatFailsOftenIsDeadAndSaysWhy) {
  const int64_t batch = *QueueBatch(*postgres_, *names_, Request({1}));
  // Any agent may write a reason, also in advance.
  Run(
      absl::StrCat("INSERT INTO task_failures (task_id, attempt, node_id, lost_lease, "
                   "reason) SELECT task_id, 2, ",
                   node_, ", false, 'x' FROM tasks"));
  for (int attempt = 0; attempt < kMostFailures; ++attempt) {
    Run("UPDATE tasks SET not_before = '-infinity'");
    const std::vector<FleetTask> tasks = Claim(node_);
    ASSERT_THAT(tasks, SizeIs(1)) << attempt;
    EXPECT_TRUE(*FailTask(*postgres_, tasks[0], "no \"candidate\" ran"));
  }
  EXPECT_EQ(ReadProgress(*postgres_, batch)->dead, 1);
  const auto dead = ListDeadTasks(*postgres_, batch, 10);
  ASSERT_THAT(*dead, SizeIs(1));
  EXPECT_THAT((*dead)[0].reasons, ElementsAre("node-a: no \"candidate\" ran", "node-a: x",
                                              "node-a: no \"candidate\" ran"));
}

TEST_F(FleetStoreTest, AProblemThatIsWantedTwiceIsWrittenOnce) {
  WantedProblem wanted;
  wanted.key = ValidSampleTuning(1).key;
  wanted.misses = 5;
  WantedProblem again = wanted;
  again.misses = 7;
  ASSERT_TRUE(names_->AddEnvironments({SampleEnvironment()}).ok());
  const absl::Status written = WriteWanted(*postgres_, *names_, node_, {wanted, again});
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(Text("SELECT misses FROM wanted"), "5;");
}

TEST_F(FleetStoreTest, TheLastDeliveryIsThatOfOneEpoch) {
  EXPECT_FALSE(LastDelivered(*postgres_, node_, 0)->has_value());
  Take({Delivery(1, 5000, 77)});
  EXPECT_EQ(*LastDelivered(*postgres_, node_, 77), 5000);
  // The node's disk is a new one, and the fleet does not know what it delivered since.
  EXPECT_FALSE(LastDelivered(*postgres_, node_, 78)->has_value());
  Take({Delivery(2, 300, 78)});
  EXPECT_EQ(*LastDelivered(*postgres_, node_, 78), 300);
  EXPECT_EQ(*LastDelivered(*postgres_, node_, 0), 5000);
}

TEST_F(FleetStoreTest, ABanIsKeptAsItIsUntilItIsEnded) {
  Ban ban = BanOfPattern("eng47,k2=*");
  ban.cudnn = CudnnRange::Parse(">=9.12,<9.20").value();
  ban.gpu = "*h200";
  ban.operation = Operation::kFwd;
  ban.data_type = DataType::kF16;
  ban.layout = TensorLayout::kNhwc;
  ASSERT_EQ(*PutFleetBan(*postgres_, ban, absl::Hours(1)), 1);
  const auto listed = ListFleetBans(*postgres_);
  ASSERT_THAT(*listed, SizeIs(1));
  const FleetBan& one = (*listed)[0];
  EXPECT_TRUE(one.ban.HasRuleOf(ban)) << one.error;
  EXPECT_EQ(one.ban.fleet_ban, 1);
  EXPECT_EQ(one.ban.author + ": " + one.ban.reason, "ann: wrong results");
  EXPECT_EQ(one.login + ";", Text("SELECT session_user"));
  EXPECT_EQ(*one.ban.expire_time - one.ban.create_time, absl::Hours(1));
  EXPECT_LE(*one.left, absl::Hours(1));
  EXPECT_GT(*one.left, absl::Minutes(59));
  EXPECT_TRUE(absl::IsNotFound(EndFleetBan(*postgres_, 2, "bob")));
  EXPECT_TRUE(EndFleetBan(*postgres_, 1, "bob").ok());
  EXPECT_TRUE(absl::IsNotFound(EndFleetBan(*postgres_, 1, "eve")));
  EXPECT_EQ(Text("SELECT end_author FROM bans WHERE end_time IS NOT NULL"), "bob;");
  EXPECT_THAT(*ListFleetBans(*postgres_), SizeIs(0));
}

TEST_F(FleetStoreTest, ASecondBanOfTheSameRuleIsRefusedWhileTheFirstHolds) {
  ASSERT_TRUE(PutBan("eng1", absl::Hours(1)).ok());
  const absl::Status same = PutBan("graph:eng1").status();
  EXPECT_TRUE(absl::IsAlreadyExists(same)) << same;
  EXPECT_EQ(same.message(), "ban: fleet ban 1 (wrong results) has the same rule");
  Run("UPDATE bans SET expire_time = now()");
  EXPECT_TRUE(absl::IsNotFound(EndFleetBan(*postgres_, 1, "bob")));
  EXPECT_EQ(*PutBan("eng1"), 2);
}

// As PutFleetBan would, for rows that it would not write.
constexpr char kWriteBanDigests[] =
    "; UPDATE bans SET digest = sha256(convert_to((SELECT string_agg(octet_length(t) || ':' || t, "
    "'' ORDER BY place) FROM unnest(ARRAY['convtune fleet ban 1', candidate, cudnn, gpu, "
    "operation::text, data_type::text, layout::text, author, reason, '']) WITH ORDINALITY AS f(t, "
    "place)), 'UTF8'))";

TEST_F(FleetStoreTest, TwoWhoBanTheSameAtOnceMakeOneBan) {
  const std::unique_ptr<postgres::Connection> slow = Connect();
  ASSERT_TRUE(
      slow->Execute(absl::StrCat(
                        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('convtune ban', 0)); "
                        "INSERT INTO bans (candidate, cudnn, gpu, operation, data_type, layout, "
                        "author, reason) VALUES ('graph:eng1', '', '', 0, 0, 0, 'eve', 'quick')",
                        kWriteBanDigests))
          .ok());
  Run("SET lock_timeout TO 300");
  EXPECT_FALSE(PutBan("eng1").ok());
  ASSERT_TRUE(slow->Execute("COMMIT").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(PutBan("eng1").status()));
}

TEST_F(FleetStoreTest, AFleetHasSoManyBansAtMost) {
  Run(
      absl::StrCat("INSERT INTO bans (candidate, cudnn, gpu, operation, data_type, layout, "
                   "author, reason) SELECT 'graph:eng' || n, '', '', 0, 0, 0, 'a', 'r' FROM "
                   "generate_series(1, ",
                   kMostFleetBans, ") n", kWriteBanDigests));
  const absl::Status full = PutBan("eng0").status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  ASSERT_TRUE(EndFleetBan(*postgres_, 7, "bob").ok());
  EXPECT_TRUE(PutBan("eng0").ok());
}

TEST_F(FleetStoreTest, ARuleThatIsNotKnownIsSaidAndTheOthersAreRead) {
  Run(
      absl::StrCat("INSERT INTO bans (candidate, cudnn, gpu, operation, data_type, layout, "
                   "author, reason) VALUES ('tile:1', '~9', '', 77, 0, 0, 'a', 'r'), "
                   "('graph:eng1', '', '', 0, 0, 0, 'a', 'r')",
                   kWriteBanDigests));
  const auto listed = ListFleetBans(*postgres_);
  ASSERT_THAT(*listed, SizeIs(2));
  for (const char* field : {"ban.candidate: ", "ban.cudnn: ", "ban.operation: "}) {
    EXPECT_THAT((*listed)[0].error, HasSubstr(field));
  }
  EXPECT_EQ((*listed)[1].error, "");
  EXPECT_THAT(ReadableBans(*listed).all(), SizeIs(1));
}

TEST_F(FleetStoreTest, TheTuningsUnderABanAreThoseThatListWhatItFits) {
  Take({Delivery(1, 1), Delivery(2, 2), Delivery(3, 3)});
  Pool();
  const Tuning first = ValidSampleTuning(1);
  const TuningKey pinned = ValidSampleTuning(2).key;
  const std::string winner = ToText(ValidSampleTuning(2).candidates[0].id);
  const absl::Status put = PutFleetPin(*postgres_, *names_, PinOf(pinned, winner)).status();
  ASSERT_TRUE(put.ok()) << put;
  std::vector<std::string> seen, pins;
  const auto look = [&](const Ban& ban) {
    seen.clear();
    pins.clear();
    const absl::Status read =
        ForEachUnderBan(*postgres_, ban, [&](const Tuning& tuning, const Pin* pin) {
          seen.push_back(tuning.key.problem_text);
          EXPECT_EQ(tuning.candidates.size(), first.candidates.size());
          if (pin != nullptr) pins.push_back(tuning.key.problem_text);
        });
    EXPECT_TRUE(read.ok()) << read;
  };
  look(BanOfPattern(winner));
  EXPECT_THAT(seen, ElementsAre(pinned.problem_text));
  look(BanOfPattern("graph:*"));
  EXPECT_THAT(seen, SizeIs(3));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_THAT(pins, ElementsAre(pinned.problem_text));
  look(BanOfPattern("eng987654"));
  EXPECT_THAT(seen, SizeIs(0));
  Ban elsewhere = BanOfPattern(winner);
  elsewhere.gpu = "*a100";
  look(elsewhere);
  EXPECT_THAT(seen, SizeIs(0));
  // A candidate that did not run is no answer anyway.
  Take({Delivery(1, 4, 77, 1)});
  Pool([](const std::vector<NodeEvidence>& evidence) {
    PooledTuning pooled = TakeFirst(evidence);
    for (Candidate& candidate : pooled.tuning.candidates) {
      candidate.status = CandidateStatus::kFailed;
    }
    return pooled;
  });
  look(BanOfPattern("graph:*"));
  EXPECT_THAT(seen, SizeIs(2));
}

TEST_F(FleetStoreTest, ABansTuningsAreReadInPagesBetweenWhichTheTimeStartsAnew) {
  constexpr int kTunings = 410;  // two pages, and some
  std::vector<FleetDelivery> deliveries;
  for (int n = 1; n <= kTunings; ++n) deliveries.push_back(Delivery(n, n));
  ASSERT_EQ(Take(deliveries), 0);
  while (Pool() > 0) {
  }
  absl::StrAppend(&options_.conninfo, " application_name=reader");
  const std::unique_ptr<postgres::Connection> reader = Connect();
  ASSERT_NE(reader, nullptr);
  std::vector<std::string> seen;
  std::set<std::string> statements;
  const auto look = [&] {
    return ForEachUnderBan(*reader, BanOfPattern("graph:*"), [&](const Tuning& tuning, const Pin*) {
      seen.push_back(tuning.key.problem_text);
      statements.insert(
          Text("SELECT state || ' since the statement of ' || query_start FROM pg_stat_activity "
               "WHERE application_name = 'reader'"));
    });
  };
  ASSERT_TRUE(look().ok());
  EXPECT_THAT(seen, SizeIs(kTunings));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  // No statement runs while the tunings that it gave are judged.
  EXPECT_THAT(statements, AllOf(SizeIs(3), Each(StartsWith("idle in transaction since"))));
  // A pin of the second page that cannot be read.
  Run("INSERT INTO pins (environment_id, problem_id, candidate, author, "
      "reason) SELECT environment_id, problem_id, 'nonsense', 'ann', 'why' "
      "FROM pooled JOIN problems USING (problem_id) ORDER BY text COLLATE "
      "\"C\" LIMIT 1 OFFSET 300");
  seen.clear();
  EXPECT_FALSE(look().ok());
  EXPECT_THAT(seen, SizeIs(300));
  EXPECT_TRUE(reader->ok());
  EXPECT_TRUE(reader->Execute("SELECT 1").ok());
}

TEST_F(FleetStoreTest, AReportReadsTheGroupsThatItSelects) {
  Take({Delivery(1, 1), Delivery(2, 2), Delivery(3, 3)});
  Pool([](const std::vector<NodeEvidence>& evidence) {
    PooledTuning pooled = TakeFirst(evidence);
    pooled.report_rows = pooled.tuning.key.problem_text;
    return pooled;
  });
  const auto environments = ListPooledEnvironments(*postgres_);
  ASSERT_TRUE(environments.ok()) << environments.status();
  ASSERT_THAT(*environments, SizeIs(1));
  const int64_t environment = environments->front().id;
  const auto problems = ListPooledProblems(*postgres_);
  ASSERT_TRUE(problems.ok()) << problems.status();
  ASSERT_THAT(*problems, SizeIs(3));
  const int64_t all_bytes = *CountReportBytes(*postgres_, {});
  const auto read = [&](const ReportSelection& selection) {
    std::vector<std::string> rows;
    const auto transaction = postgres::Transaction::BeginRead(*postgres_);
    const absl::Status status = ReadReportGroups(
        *postgres_, selection, [&](int64_t of, int64_t problem_id, std::string_view group) {
          EXPECT_EQ(of, environment);
          EXPECT_TRUE(std::any_of(problems->begin(), problems->end(), [&](const auto& problem) {
            return problem.id == problem_id && problem.value == group;
          }));
          rows.emplace_back(group);
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
    // The texts of the three problems have one length.
    EXPECT_EQ(*CountReportBytes(*postgres_, selection) * 3,
              all_bytes * static_cast<int64_t>(rows.size()));
    return rows;
  };
  EXPECT_THAT(read({}), SizeIs(3));
  EXPECT_THAT(read({{environment}, {}}), SizeIs(3));
  EXPECT_THAT(read({{}, {problems->at(1).id}}), ElementsAre(problems->at(1).value));
  EXPECT_THAT(read({{environment + 1}, {}}), SizeIs(0));
}

TEST_F(FleetStoreTest, ANodesTuningsAreAllThatANodeOfItsNameMeasuredItself) {
  Take({Delivery(1, 1), Delivery(2, 2)});
  Run("UPDATE nodes SET last_seen = now() - interval '1 day'");
  ASSERT_TRUE(ForgetNode(*postgres_, "node-a").ok());
  node_ = *postgres_->QueryValue<int64_t>(
      "INSERT INTO nodes (name) VALUES ('node-a') RETURNING node_id");
  Take({Delivery(2, 1, 78, 5), Delivery(3, 2, 78)});
  std::vector<v1::OutboxRow> relayed = OutboxRows({Delivery(4, 3, 78)});
  relayed[0].set_relayed(true);
  ASSERT_TRUE(Deliver(*postgres_, *names_, node_, relayed).ok());
  Run("INSERT INTO nodes (name) VALUES ('node-b') RETURNING node_id");
  const auto nodes = ListMeasuringNodes(*postgres_);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_THAT(*nodes, SizeIs(1));
  EXPECT_EQ(nodes->front().value, "node-a");
  EXPECT_EQ(nodes->front().id, node_);
  const auto transaction = postgres::Transaction::BeginRead(*postgres_);
  std::vector<std::string> read;
  const absl::Status status =
      ReadNodeTunings(*postgres_, "node-a", [&](const Tuning& tuning, const Environment&) {
        read.push_back(tuning.key.problem_text);
        const int n = static_cast<int>(std::ssize(read));
        EXPECT_EQ(tuning.provenance.node, "node-a");
        EXPECT_EQ(tuning.elapsed, Delivery(n, 0, 0, n == 2 ? 5 : 0).tuning.elapsed) << n;
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(read, ElementsAre(ValidSampleTuning(1).key.problem_text,
                                ValidSampleTuning(2).key.problem_text,
                                ValidSampleTuning(3).key.problem_text));
}

// The tables are made anew under a program's feet, and its numbers are others' now.
class TablesMadeAnewTest : public FleetStoreTest {
 protected:
  void SetUp() override {
    FleetStoreTest::SetUp();
    ASSERT_NE(postgres_, nullptr);
    Prepare(*postgres_, *names_, node_);
    task_ = ClaimOne(*postgres_, *names_, node_);
    other_ = Connect();
    ASSERT_TRUE(other_->Execute("DROP SCHEMA convtune CASCADE").ok());
    ASSERT_TRUE(MigrateFleet(*other_).ok());
    other_names_ = std::make_unique<FleetNames>(other_.get());
    const auto node = RegisterNode(*other_, "node-b");
    ASSERT_TRUE(node.ok()) << node.status();
    Prepare(*other_, *other_names_, *node);
  }

  // Two problems are pooled, and one is queued.
  static void Prepare(postgres::Connection& postgres, FleetNames& names, int64_t node) {
    ASSERT_TRUE(Deliver(postgres, names, node, OutboxRows({Delivery(1, 1), Delivery(2, 2)})).ok());
    ASSERT_TRUE(PoolQueued(postgres, names, 10, TakeFirst).ok());
    ASSERT_TRUE(QueueBatch(postgres, names, Request({1})).ok());
  }
  FleetTask ClaimOne(postgres::Connection& postgres, FleetNames& names, int64_t node) {
    const auto tasks = ClaimTasks(postgres, names, node, environment_, 1, absl::Hours(1));
    EXPECT_TRUE(tasks.ok() && tasks->size() == 1) << tasks.status();
    return tasks.ok() && tasks->size() == 1 ? (*tasks)[0] : FleetTask();
  }

  FleetTask task_;
  std::unique_ptr<postgres::Connection> other_;
  std::unique_ptr<FleetNames> other_names_;
};

TEST_F(TablesMadeAnewTest, ATaskOfBeforeEndsNoTaskOfNow) {
  const FleetTask now = ClaimOne(*other_, *other_names_, 1);
  ASSERT_EQ(now.task_id, task_.task_id);
  ASSERT_EQ(now.token, task_.token);
  EXPECT_FALSE(*RenewTask(*postgres_, task_, absl::Hours(9)));
  EXPECT_FALSE(*FailTask(*postgres_, task_, "no candidate ran"));
  EXPECT_FALSE(*ReturnTask(*postgres_, task_));
  EXPECT_FALSE(*CompleteTask(*postgres_, task_));
  EXPECT_EQ(Text("SELECT state FROM tasks"), "2;");
  EXPECT_EQ(Text("SELECT COUNT(*) FROM task_failures"), "0;");
  EXPECT_TRUE(*CompleteTask(*other_, now));
}

TEST_F(TablesMadeAnewTest, NothingIsWrittenByNumbersOfBefore) {
  const auto is_refused = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
  };
  WantedProblem wanted;
  wanted.key = ValidSampleTuning(1).key;
  is_refused(WriteWanted(*postgres_, *names_, node_, {wanted}));
  Heartbeat heartbeat;
  heartbeat.release = 5;
  is_refused(WriteHeartbeat(*postgres_, *names_, node_, heartbeat));
  is_refused(ClaimTasks(*postgres_, *names_, node_, environment_, 1, absl::Hours(1)).status());
  is_refused(QueueBatch(*postgres_, *names_, Request({2})).status());
  const TuningKey key = ValidSampleTuning(1).key;
  is_refused(
      PutFleetPin(*postgres_, *names_, PinOf(key, ToText(ValidSampleTuning(1).candidates[0].id)))
          .status());
  CheckedReleases checked;
  is_refused(
      ReadReleaseChanges(*postgres_, *names_, checked, {environment_}, 0, 1, 10,
                         [](const std::vector<ReleasedTuning>&) { return absl::OkStatus(); }));
  EXPECT_EQ(Text("SELECT (SELECT COUNT(*) FROM wanted) + (SELECT COUNT(*) FROM pins) + (SELECT "
                 "SUM(release_number) FROM nodes) + (SELECT COUNT(*) FROM tasks WHERE state = 2)"),
            "0;");
  EXPECT_EQ(Text("SELECT COUNT(*) FROM batches"), "1;");
}

TEST_F(FleetStoreTest, ASecondAgentOfANodeIsRefusedUntilTheFirstIsGone) {
  std::unique_ptr<postgres::Connection> other = Connect();
  EXPECT_TRUE(absl::IsAlreadyExists(RegisterNode(*other, "node-a").status()));
  names_.reset();
  postgres_.reset();
  absl::Status status = absl::UnknownError("");
  for (int i = 0; i < 500 && !status.ok(); ++i) {
    status = RegisterNode(*other, "node-a").status();
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(FleetStoreTest, AStatementHasTheTimeOfTheServerAndAStopEndsIt) {
  options_.statement_timeout = absl::Seconds(1);
  std::unique_ptr<postgres::Connection> quick = Connect();
  EXPECT_TRUE(absl::IsDeadlineExceeded(quick->Query("SELECT pg_sleep(30)").status()));
  EXPECT_TRUE(quick->ok());
  EXPECT_TRUE(quick->Execute("SELECT 1").ok());
  options_.statement_timeout = absl::Seconds(60);
  options_.stop = [] { return true; };
  std::unique_ptr<postgres::Connection> stopped = Connect();
  const absl::Status status = stopped->Query("SELECT pg_sleep(30)").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("until the stop"));
  EXPECT_FALSE(stopped->ok());
  EXPECT_TRUE(absl::IsUnavailable(stopped->Execute("SELECT 1")));
}

TEST_F(FleetStoreTest, AFaultOfTheServerIsNotOneOfWhatItWasAsked) {
  const auto raise = [this](const std::string& state) {
    return postgres_->Execute(
        absl::StrCat("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '", state, "'; END $$"));
  };
  for (const std::string passes : {"25006", "25P02", "57P05", "58030", "XX000", "XX001"}) {
    EXPECT_TRUE(absl::IsUnavailable(raise(passes))) << passes;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(raise("53100")));
  // A value, a key, a rule of a trigger's.
  for (const std::string stays : {"22003", "23514", "P0001"}) {
    EXPECT_TRUE(absl::IsInternal(raise(stays))) << stays;
  }
  EXPECT_TRUE(postgres_->ok());
  Run("SET default_transaction_read_only = on");
  EXPECT_TRUE(absl::IsUnavailable(RegisterNode(*postgres_, "node-b").status()));
}

TEST_F(FleetStoreTest, ParametersAndResultsOfMegabytesGoThrough) {
  // More than the socket takes at once, in both directions.
  const std::string much(32 << 20, 'x');
  const auto echo = postgres_->QueryValue<std::string>("SELECT $1::text", {much});
  ASSERT_TRUE(echo.ok()) << echo.status();
  EXPECT_EQ(*echo, much);
  const auto transaction = postgres::Transaction::BeginRead(*postgres_);
  int64_t rows = 0;
  ASSERT_TRUE(postgres_
                  ->Pages("SELECT repeat('x', 1000) FROM generate_series(1, 20000)", {}, 3000,
                          [&](const postgres::Result& page) {
                            for (const postgres::Row row : page) {
                              rows += static_cast<int64_t>(row[0].bytes().size()) / 1000;
                            }
                            return absl::OkStatus();
                          })
                  .ok());
  EXPECT_EQ(rows, 20'000);
}

TEST_F(FleetStoreTest, AParameterComesBackAsItWas) {
  const absl::Time time = absl::FromUnixMicros(1'764'167'296'123'456);
  EXPECT_EQ(*postgres_->QueryValue<absl::Time>("SELECT $1::timestamptz", {time}), time);
  EXPECT_EQ(*postgres_->QueryValue<absl::Duration>("SELECT $1::float8", {absl::Milliseconds(2500)}),
            absl::Milliseconds(2500));
  EXPECT_EQ(*postgres_->QueryValue<bool>("SELECT NOT $1::boolean", {false}), true);
  EXPECT_EQ(*postgres_->QueryValue<double>("SELECT $1::float8", {0.1}), 0.1);
  const std::string bytes("\0\xff\\x", 4);
  EXPECT_EQ(*postgres_->QueryValue<std::string>("SELECT $1::bytea", {postgres::Bytes{bytes}}),
            bytes);
  const std::vector<std::string> texts = {"", "a,\"b\"\\", "{}"};
  EXPECT_EQ(postgres_->Query("SELECT unnest($1::text[])", {texts})->Column<std::string>(), texts);
  const auto none = postgres_->Query("SELECT $1::bigint, $2::bigint",
                                     {std::optional<int64_t>(), std::optional<int64_t>(7)});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ((*none)[0][0].Maybe<int64_t>(), std::nullopt);
  EXPECT_EQ((*none)[0][1].Maybe<int64_t>(), 7);
}

TEST_F(FleetStoreTest, TimesAndBytesComeBackWhateverStyleTheStringAsksFor) {
  absl::StrAppend(&options_.conninfo,
                  " options='-c datestyle=German -c bytea_output=escape -c timezone=Asia/Tokyo'");
  const std::unique_ptr<postgres::Connection> other = Connect();
  ASSERT_NE(other, nullptr);
  const absl::Time time = absl::FromUnixMicros(1'764'167'296'123'456);
  EXPECT_EQ(*other->QueryValue<absl::Time>("SELECT $1::timestamptz", {time}), time);
  const std::string bytes("\0\xff\\x", 4);
  EXPECT_EQ(*other->QueryValue<std::string>("SELECT $1::bytea", {postgres::Bytes{bytes}}), bytes);
}

TEST_F(FleetStoreTest, SaysWhatIsWrongWithAConnection) {
  options_.conninfo = "nonsense";
  EXPECT_TRUE(absl::IsInvalidArgument(postgres::Connection::Connect(options_).status()));
  options_.conninfo = "host=/nonexistent";
  EXPECT_TRUE(absl::IsUnavailable(postgres::Connection::Connect(options_).status()));
  options_.schema = "x; DROP";
  EXPECT_TRUE(absl::IsInvalidArgument(postgres::Connection::Connect(options_).status()));
}

}  // namespace
}  // namespace convtune::db::fleet
