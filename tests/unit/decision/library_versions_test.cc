#include "server/decision/evidence.h"

#include <gtest/gtest.h>

#include "tests/unit/candidates.h"

namespace convtune::decision {
namespace {

Tuning Made(const Provenance& versions, uint32_t notes) {
  Candidate plain = Timed(1, 10);
  Candidate noted = Timed(2, 20);
  noted.behavior_notes = notes;
  Tuning tuning = TuningOf({plain, noted});
  tuning.provenance = versions;
  return tuning;
}

std::string Why(const Tuning& tuning, const Provenance& now) {
  return WhyOutdated(tuning, {{kH200, now}});
}

constexpr uint32_t kNvrtc = NoteBit(BehaviorNote::kRuntimeCompilation);
constexpr uint32_t kCublasLt = NoteBit(BehaviorNote::kCublasLtDependency);
const Provenance kNow = Builds("aaa", "bbb");

TEST(LibraryVersionsTest, EachLibraryCountsForThoseWhoUseItAlone) {
  EXPECT_EQ(Why(Made(Builds("aaa", "bbb"), kNvrtc | kCublasLt), kNow), "");
  EXPECT_EQ(Why(Made(Builds("aaa", "old"), kNvrtc), kNow),
            "measured with NVRTC old, there is bbb now");
  EXPECT_EQ(Why(Made(Builds("aaa", "old"), kCublasLt), kNow), "");
  EXPECT_EQ(Why(Made(Builds("old", "bbb"), kCublasLt), kNow),
            "measured with cuBLASLt old, there is aaa now");
  EXPECT_EQ(Why(Made(Builds("old", "old"), 0), kNow), "");
  EXPECT_EQ(Why(Made({}, kNvrtc), kNow), "measured with an unknown NVRTC, there is bbb now");
  EXPECT_EQ(Why(Made(Builds("", "old"), kNvrtc), Provenance{}), "");
}

TEST(LibraryVersionsTest, WhatDidNotRunAndWhatWasObservedClaimsNothing) {
  Tuning failed = Made({}, kNvrtc);
  for (Candidate& c : failed.candidates) {
    if (c.has(BehaviorNote::kRuntimeCompilation)) c.status = CandidateStatus::kFailed;
  }
  EXPECT_EQ(Why(failed, kNow), "");
  Tuning observed = Made({}, kNvrtc);
  observed.evidence = Evidence::kObserved;
  EXPECT_EQ(Why(observed, kNow), "");
}

TEST(LibraryVersionsTest, AnEnvironmentThatNoDeviceHasIsNotJudged) {
  const Tuning old = Made(Builds("", "old"), kNvrtc);
  EXPECT_NE(WhyOutdated(old, {{kH200, kNow}}), "");
  EXPECT_EQ(WhyOutdated(old, {{"another", kNow}}), "");
}

}  // namespace
}  // namespace convtune::decision
