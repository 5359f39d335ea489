#include "db/layered_tunings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/memory_store.h"
#include "tests/unit/db/bundle/bundle_files.h"
#include "tests/unit/db/for_each_tuning.h"

namespace convtune::db {
namespace {

class LayeredTuningsTest : public ::testing::Test {
 protected:
  void AddLayer(const std::vector<Tuning>& tunings) {
    const std::string path = folder_.File("base" + std::to_string(layers_.size()));
    WriteWholeFile(path, bundle::BundleOf(tunings));
    auto layer = BundleLayer::Open(path, {}, ManualClock().now,
                                   [](const std::string& text) { ADD_FAILURE() << text; });
    ASSERT_TRUE(layer.ok()) << layer.status();
    layers_.push_back(*std::move(layer));
  }

  void Put(const Tuning& tuning) {
    ASSERT_TRUE(memory_.PutTuning(tuning, SampleEnvironment()).ok());
  }
  LayeredTunings Store() { return {&memory_, layers_}; }

  TestFolder folder_;
  MemoryStore memory_;
  std::vector<std::unique_ptr<BundleLayer>> layers_;
};

TEST_F(LayeredTuningsTest, GivesWhatALayerHas) {
  AddLayer(bundle::SampleTunings(3));
  const auto got = Store().GetTuning(bundle::ValidTuning(2).key);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, bundle::Imported(bundle::ValidTuning(2)));
  EXPECT_TRUE(absl::IsNotFound(Store().GetTuning(bundle::ValidTuning(4).key).status()));
}

TEST_F(LayeredTuningsTest, EvidenceDecidesAndNotPlace) {
  AddLayer(bundle::SampleTunings(2));
  Tuning worse = bundle::ValidTuning(1);
  worse.evidence = Evidence::kIncomplete;
  Tuning better = bundle::ValidTuning(2);
  better.tune_time += absl::Seconds(1);
  Put(worse);
  Put(better);
  EXPECT_EQ(*Store().GetTuning(worse.key), bundle::Imported(bundle::ValidTuning(1)));
  EXPECT_EQ(*Store().GetTuning(better.key), better);
  const std::vector<Tuning> all = AllTunings(Store());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0], WithoutSamples(bundle::Imported(bundle::ValidTuning(1))));
  EXPECT_EQ(all[1], WithoutSamples(better));
}

TEST_F(LayeredTuningsTest, BetweenEqualsTheStoresOwnStays) {
  AddLayer(bundle::SampleTunings(1));
  Put(bundle::ValidTuning(1));
  EXPECT_EQ(Store().GetTuning(bundle::ValidTuning(1).key)->origin, Origin::kLocal);
}

TEST_F(LayeredTuningsTest, ForEachVisitsEachKeyOfStoreAndLayersOnce) {
  AddLayer({bundle::ValidTuning(1), bundle::ValidTuning(4), bundle::ValidTuning(6)});
  AddLayer({bundle::ValidTuning(2), bundle::ValidTuning(4), bundle::ValidTuning(7)});
  for (const int n : {3, 5, 6, 7}) Put(bundle::ValidTuning(n));
  std::vector<std::string> keys, expected;
  for (const Tuning& tuning : AllTunings(Store())) keys.push_back(tuning.key.problem_text);
  for (int n = 1; n <= 7; ++n) expected.push_back(bundle::ValidTuning(n).key.problem_text);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAreArray(expected));
}

TEST_F(LayeredTuningsTest, DeletingLeavesWhatALayerHas) {
  AddLayer(bundle::SampleTunings(1));
  Put(bundle::ValidTuning(1));
  EXPECT_EQ(*memory_.DeleteTunings({bundle::ValidTuning(1).key}), 1);
  EXPECT_EQ(Store().GetTuning(bundle::ValidTuning(1).key)->origin, Origin::kImported);
}

TEST_F(LayeredTuningsTest, ListsTheEnvironmentsOfBoth) {
  AddLayer(bundle::SampleTunings(1));
  EXPECT_EQ(*Store().ListEnvironments(), std::vector<Environment>{SampleEnvironment()});
  Put(bundle::ValidTuning(2));
  EXPECT_EQ(Store().ListEnvironments()->size(), 1U);
}

TEST_F(LayeredTuningsTest, ADamagedBaseIsRefused) {
  std::string bytes = bundle::BundleOf(bundle::SampleTunings(1));
  bytes[bytes.size() - 1] ^= 1;
  WriteWholeFile(folder_.File("b"), bytes);
  EXPECT_TRUE(absl::IsDataLoss(
      BundleLayer::Open(folder_.File("b"), {}, ManualClock().now, [](const std::string&) {
      }).status()));
}

TEST_F(LayeredTuningsTest, ARowThatLiesIsLeftOutAndSaid) {
  v1::Tuning lie = bundle::SampleRow(1);
  lie.clear_candidates();
  WriteWholeFile(folder_.File("b"), bundle::BundleOfRows({lie, bundle::SampleRow(2)},
                                                         bundle::SampleBundleEnvironment()));
  std::vector<std::string> said;
  const auto layer = BundleLayer::Open(folder_.File("b"), {}, ManualClock().now,
                                       [&](const std::string& text) { said.push_back(text); });
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ((*layer)->size(), 1U);
  EXPECT_EQ(said.size(), 1U);
}

}  // namespace
}  // namespace convtune::db
