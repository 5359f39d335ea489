#include <cstdlib>
#include <limits>

#include "absl/time/clock.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "db/fleet/nodes.h"
#include "tests/unit/db/delivered_conformance.h"
#include "tests/unit/db/fleet/delivered_rows.h"

namespace convtune::db::fleet {
namespace {

// A database that CONVTUNE_TEST_POSTGRES names; see fleet_store_test.cc.
struct FleetEngine {
  absl::Status Reopen() {
    if (std::getenv("CONVTUNE_TEST_POSTGRES") == nullptr) {
      return absl::FailedPreconditionError("CONVTUNE_TEST_POSTGRES names no database");
    }
    const bool first = postgres == nullptr;
    names.reset();
    postgres.reset();
    postgres::Connection::Options options;
    options.conninfo = std::getenv("CONVTUNE_TEST_POSTGRES");
    auto connected = postgres::Connection::Connect(options);
    if (!connected.ok()) return connected.status();
    postgres = *std::move(connected);
    if (first) {
      absl::Status made = postgres->Execute("DROP SCHEMA IF EXISTS convtune CASCADE");
      made.Update(MigrateFleet(*postgres).status());
      if (!made.ok()) return made;
    }
    names = std::make_unique<FleetNames>(postgres.get());
    auto registered = RegisterNode(*postgres, "node-a");
    // The server ends the earlier connection, and with it the claim to the name, a moment later.
    for (int i = 0; i < 500 && absl::IsAlreadyExists(registered.status()); ++i) {
      absl::SleepFor(absl::Milliseconds(20));
      registered = RegisterNode(*postgres, "node-a");
    }
    if (registered.ok()) node = *registered;
    return registered.status();
  }
  absl::Status Put(const Tuning& tuning, const Environment& environment) {
    return Deliver(*postgres, *names, node, OutboxRows({{77, ++sequence, tuning, environment}}))
        .status();
  }
  absl::StatusOr<Tuning> Get(const TuningKey& key) { return GetDelivered(*postgres, node, key); }
  absl::Status ForEach(const std::function<void(Tuning)>& visit,
                       const std::function<void(const std::string&)>& corrupt) {
    return ForEachDelivered(*postgres, node, visit, corrupt);
  }
  absl::StatusOr<int64_t> Delete(const std::vector<TuningKey>& keys) {
    return ForgetDelivered(*postgres, node, keys);
  }

  std::unique_ptr<postgres::Connection> postgres;
  std::unique_ptr<FleetNames> names;
  int64_t node = 0;
  int64_t sequence = 0;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Fleet, DeliveredConformance, FleetEngine);

class FleetDelivered : public DeliveredConformance<FleetEngine> {
 protected:
  int64_t Number(const std::string& sql) {
    const auto rows = engine_.postgres->Query(sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? int64_t{(*rows)[0][0]} : -1;
  }
};

TEST_F(FleetDelivered, WorseEvidenceNeverTakesThePlaceOfBetter) {
  Put(ValidSampleTuning(1));
  Tuning guess = ValidSampleTuning(1);
  guess.evidence = Evidence::kHeuristic;
  guess.tune_time += absl::Hours(1);
  Put(guess);
  EXPECT_EQ(Get(guess.key).evidence, Evidence::kMeasured);
  EXPECT_EQ(Number("SELECT COUNT(*) FROM evidence"), 2) << "it stays as the record";
}

TEST_F(FleetDelivered, WhatNobodySaysAnyMoreIsNoPooledTuning) {
  Put(ValidSampleTuning(1));
  const PoolFunction first = [](const std::vector<NodeEvidence>& evidence) {
    PooledTuning pooled;
    pooled.tuning = evidence.front().tuning;
    return pooled;
  };
  ASSERT_TRUE(PoolQueued(*engine_.postgres, *engine_.names, 10, first).ok());
  EXPECT_EQ(Number("SELECT COUNT(*) FROM pooled"), 1);
  ASSERT_TRUE(engine_.Delete({ValidSampleTuning(1).key}).ok());
  ASSERT_TRUE(PoolQueued(*engine_.postgres, *engine_.names, 10, first).ok());
  EXPECT_EQ(Number("SELECT COUNT(*) FROM pooled"), 0);
}

TEST_F(FleetDelivered, ThinningTakesWhatWasSupersededAndNothingElse) {
  for (int version = 0; version < 4; ++version) {
    Tuning tuning = ValidSampleTuning(1);
    tuning.elapsed += absl::Seconds(version);
    Put(tuning);
  }
  ASSERT_TRUE(engine_.postgres
                  ->Execute("UPDATE evidence SET receive_time = now() - interval '100 days' WHERE "
                            "sequence IN (1, 2, 4)")
                  .ok());
  ASSERT_TRUE(engine_.postgres
                  ->Execute("INSERT INTO pooled_payloads VALUES (decode(repeat('ab', 16), 'hex'), "
                            "'x')")
                  .ok());
  const auto thinned = ThinFleet(*engine_.postgres, absl::Hours(24 * 90));
  ASSERT_TRUE(thinned.ok()) << thinned.status();
  EXPECT_EQ(thinned->evidence, 2);
  EXPECT_EQ(thinned->payloads, 1);
  // The third is young, the fourth is current.
  EXPECT_EQ(Number("SELECT SUM(sequence) FROM evidence"), 7);
  EXPECT_THAT(All(), ::testing::SizeIs(1));
}

TEST_F(FleetDelivered, RefusesANumberThatIsNoneAndNamesIt) {
  Tuning tuning = ValidSampleTuning(1);
  tuning.candidates[1].median_us = std::numeric_limits<double>::quiet_NaN();
  const absl::Status status = engine_.Put(tuning, SampleEnvironment());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("candidates[1]"));
  EXPECT_TRUE(All().empty());
}

TEST_F(FleetDelivered, OneThinsInADay) {
  const auto first = ThinFleetDaily(*engine_.postgres, absl::Hours(1));
  const auto second = ThinFleetDaily(*engine_.postgres, absl::Hours(1));
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_TRUE(first->has_value());
  EXPECT_FALSE(second->has_value());
}

}  // namespace
}  // namespace convtune::db::fleet
