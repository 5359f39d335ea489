// What a node's store and the fleet's both promise of tunings. An engine has
//   absl::Status Put(const Tuning&, const Environment&);  // as the node's newest
//   absl::StatusOr<Tuning> Get(const TuningKey&);
//   absl::Status ForEach(visit, corrupt);
//   absl::StatusOr<int64_t> Delete(const std::vector<TuningKey>&);
//   absl::Status Reopen();      // the same data again, through another connection
// Samples and where it was measured are a matter of each: they are not compared.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/db/valid_tunings.h"

namespace convtune::db {

inline Tuning Comparable(Tuning tuning) {
  tuning.provenance = Provenance();
  tuning.origin = Origin::kLocal;
  for (Candidate& candidate : tuning.candidates) candidate.samples_ns.clear();
  return tuning;
}

template <typename Engine>
class DeliveredConformance : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    const absl::Status status = engine_.Reopen();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Put(const Tuning& tuning) {
    const absl::Status status = engine_.Put(tuning, SampleEnvironment());
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<Tuning> All() {
    std::vector<Tuning> all;
    const absl::Status status =
        engine_.ForEach([&](Tuning tuning) { all.push_back(Comparable(std::move(tuning))); },
                        [](const std::string& text) { ADD_FAILURE() << text; });
    EXPECT_TRUE(status.ok()) << status;
    return all;
  }
  Tuning Get(const TuningKey& key) {
    const auto got = engine_.Get(key);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? Comparable(*got) : Tuning();
  }

  Engine engine_;
};

TYPED_TEST_SUITE_P(DeliveredConformance);

TYPED_TEST_P(DeliveredConformance, GivesBackWhatWasPutOverAReopen) {
  this->Put(ValidSampleTuning(1));
  EXPECT_EQ(this->Get(ValidSampleTuning(1).key), Comparable(ValidSampleTuning(1)));
  this->Reopen();
  EXPECT_EQ(this->Get(ValidSampleTuning(1).key), Comparable(ValidSampleTuning(1)));
}

TYPED_TEST_P(DeliveredConformance, TheSameAgainIsTheSame) {
  for (int i = 0; i < 3; ++i) this->Put(ValidSampleTuning(1));
  EXPECT_THAT(this->All(), ::testing::ElementsAre(Comparable(ValidSampleTuning(1))));
}

TYPED_TEST_P(DeliveredConformance, ANewerOneTakesTheOldersPlaceWhole) {
  this->Put(ValidSampleTuning(1));
  Tuning newer = ValidSampleTuning(1);
  newer.candidates.resize(2);
  newer.elapsed += absl::Seconds(1);
  this->Put(newer);
  EXPECT_THAT(this->All(), ::testing::ElementsAre(Comparable(newer)));
}

TYPED_TEST_P(DeliveredConformance, WhatIsNewerIsNotForAClockToSay) {
  this->Put(ValidSampleTuning(1));
  Tuning newer = ValidSampleTuning(1);
  newer.tune_time -= absl::Hours(24);
  this->Put(newer);
  EXPECT_THAT(this->All(), ::testing::ElementsAre(Comparable(newer)));
}

TYPED_TEST_P(DeliveredConformance, BetterEvidenceTakesThePlaceOfWorse) {
  Tuning guess = ValidSampleTuning(1);
  guess.evidence = Evidence::kIncomplete;
  guess.incomplete_message = "the budget ran out";
  this->Put(guess);
  this->Put(ValidSampleTuning(1));
  EXPECT_EQ(this->Get(guess.key).evidence, Evidence::kMeasured);
}

TYPED_TEST_P(DeliveredConformance, AnAbsentKeyIsNotFound) {
  this->Put(ValidSampleTuning(1));
  EXPECT_TRUE(absl::IsNotFound(this->engine_.Get(ValidSampleTuning(2).key).status()));
}

TYPED_TEST_P(DeliveredConformance, ListsByTheBytesOfTheTexts) {
  for (const int n : {3, 1, 20, 2}) this->Put(ValidSampleTuning(n));
  std::vector<std::string> texts;
  for (const Tuning& tuning : this->All()) texts.push_back(tuning.key.problem_text);
  std::vector<std::string> sorted = texts;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_THAT(texts, ::testing::SizeIs(4));
  EXPECT_EQ(texts, sorted);
}

TYPED_TEST_P(DeliveredConformance, DeleteCountsWhatWasThere) {
  this->Put(ValidSampleTuning(1));
  this->Put(ValidSampleTuning(2));
  const auto deleted = this->engine_.Delete(
      {ValidSampleTuning(1).key, ValidSampleTuning(9).key, ValidSampleTuning(1).key});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, 1);
  EXPECT_THAT(this->All(), ::testing::ElementsAre(Comparable(ValidSampleTuning(2))));
  // It may come again.
  this->Put(ValidSampleTuning(1));
  EXPECT_THAT(this->All(), ::testing::SizeIs(2));
}

TYPED_TEST_P(DeliveredConformance, KeepsQuotesAndLongTexts) {
  Tuning tuning = ValidSampleTuning(1);
  tuning.evidence = Evidence::kIncomplete;
  tuning.incomplete_message = "it's \"so\" \\ and\nso; " + std::string(200, 'x');
  this->Put(tuning);
  EXPECT_EQ(this->Get(tuning.key), Comparable(tuning));
}

REGISTER_TYPED_TEST_SUITE_P(DeliveredConformance, GivesBackWhatWasPutOverAReopen,
                            TheSameAgainIsTheSame, ANewerOneTakesTheOldersPlaceWhole,
                            WhatIsNewerIsNotForAClockToSay, BetterEvidenceTakesThePlaceOfWorse,
                            AnAbsentKeyIsNotFound, ListsByTheBytesOfTheTexts,
                            DeleteCountsWhatWasThere, KeepsQuotesAndLongTexts);

}  // namespace convtune::db
