#include "server/decision/evidence.h"

#include <gtest/gtest.h>

#include "tests/unit/candidates.h"

namespace convtune::decision {
namespace {

Tuning Made(const LibraryVersions& versions, uint32_t notes) {
  Candidate plain = Timed(1, 10);
  Candidate noted = Timed(2, 20);
  noted.behavior_notes = notes;
  Tuning tuning = TuningOf({plain, noted});
  tuning.provenance.cublaslt_build = versions.cublaslt;
  tuning.provenance.nvrtc_build = versions.nvrtc;
  return tuning;
}

constexpr uint32_t kNvrtc = NoteBit(BehaviorNote::kRuntimeCompilation);
constexpr uint32_t kCublasLt = NoteBit(BehaviorNote::kCublasLtDependency);
const LibraryVersions kNow{"aaa", "bbb"};

TEST(LibraryVersionsTest, EachLibraryCountsForThoseWhoUseItAlone) {
  EXPECT_EQ(WhyOutdated(Made({"aaa", "bbb"}, kNvrtc | kCublasLt), kNow), "");
  EXPECT_EQ(WhyOutdated(Made({"aaa", "old"}, kNvrtc), kNow),
            "measured with NVRTC old, there is bbb now");
  EXPECT_EQ(WhyOutdated(Made({"aaa", "old"}, kCublasLt), kNow), "");
  EXPECT_EQ(WhyOutdated(Made({"old", "bbb"}, kCublasLt), kNow),
            "measured with cuBLASLt old, there is aaa now");
  EXPECT_EQ(WhyOutdated(Made({"old", "old"}, 0), kNow), "");
  EXPECT_EQ(WhyOutdated(Made({}, kNvrtc), kNow),
            "measured with an unknown NVRTC, there is bbb now");
  EXPECT_EQ(WhyOutdated(Made({"", "old"}, kNvrtc), LibraryVersions{}), "");
}

TEST(LibraryVersionsTest, WhatDidNotRunAndWhatWasObservedClaimsNothing) {
  Tuning failed = Made({}, kNvrtc);
  for (Candidate& c : failed.candidates) {
    if (c.has(BehaviorNote::kRuntimeCompilation)) c.status = CandidateStatus::kFailed;
  }
  EXPECT_EQ(WhyOutdated(failed, kNow), "");
  Tuning observed = Made({}, kNvrtc);
  observed.evidence = Evidence::kObserved;
  EXPECT_EQ(WhyOutdated(observed, kNow), "");
}

TEST(LibraryVersionsTest, AnEnvironmentThatNoDeviceHasIsNotJudged) {
  const Tuning old = Made({"", "old"}, kNvrtc);
  EXPECT_NE(WhyOutdated(old, LibrariesByEnvironment{{kH200, kNow}}), "");
  EXPECT_EQ(WhyOutdated(old, LibrariesByEnvironment{{"another", kNow}}), "");
}

}  // namespace
}  // namespace convtune::decision
