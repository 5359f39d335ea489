#include "server/decision/library_versions.h"

#include <gtest/gtest.h>

#include "tests/unit/candidates.h"

namespace convtune::decision {
namespace {

Tuning Made(const std::string& cuda_version, uint32_t notes) {
  Candidate plain = Timed(1, 10);
  Candidate noted = Timed(2, 20);
  noted.behavior_notes = notes;
  Tuning tuning = TuningOf({plain, noted});
  tuning.provenance.cuda_version = cuda_version;
  return tuning;
}

constexpr uint32_t kNvrtc = NoteBit(BehaviorNote::kRuntimeCompilation);
constexpr uint32_t kCublasLt = NoteBit(BehaviorNote::kCublasLtDependency);
const LibraryVersions kNow{"aaa", "bbb"};

TEST(LibraryVersionsTest, ReadsWhatTheWorkerWrites) {
  EXPECT_EQ(ParseLibraryVersions("13.0,cublaslt=aaa,nvrtc=bbb"), kNow);
  EXPECT_EQ(ParseLibraryVersions("13.0"), LibraryVersions{});
  EXPECT_EQ(ParseLibraryVersions(""), LibraryVersions{});
}

TEST(LibraryVersionsTest, EachLibraryCountsForThoseWhoUseItAlone) {
  EXPECT_EQ(WhyOutdated(Made("13.0,cublaslt=aaa,nvrtc=bbb", kNvrtc | kCublasLt), kNow), "");
  EXPECT_EQ(WhyOutdated(Made("13.0,cublaslt=aaa,nvrtc=old", kNvrtc), kNow),
            "measured with NVRTC old, there is bbb now");
  EXPECT_EQ(WhyOutdated(Made("13.0,cublaslt=aaa,nvrtc=old", kCublasLt), kNow), "");
  EXPECT_EQ(WhyOutdated(Made("13.0,cublaslt=old,nvrtc=bbb", kCublasLt), kNow),
            "measured with cuBLASLt old, there is aaa now");
  EXPECT_EQ(WhyOutdated(Made("13.0,cublaslt=old,nvrtc=old", 0), kNow), "");
  EXPECT_EQ(WhyOutdated(Made("13.0", kNvrtc), kNow),
            "measured with an unknown NVRTC, there is bbb now");
  EXPECT_EQ(WhyOutdated(Made("13.0,nvrtc=old", kNvrtc), LibraryVersions{}), "");
}

TEST(LibraryVersionsTest, WhatDidNotRunAndWhatWasObservedClaimsNothing) {
  Tuning failed = Made("13.0", kNvrtc);
  for (Candidate& c : failed.candidates) {
    if (c.has(BehaviorNote::kRuntimeCompilation)) c.status = CandidateStatus::kFailed;
  }
  EXPECT_EQ(WhyOutdated(failed, kNow), "");
  Tuning observed = Made("13.0", kNvrtc);
  observed.evidence = Evidence::kObserved;
  EXPECT_EQ(WhyOutdated(observed, kNow), "");
}

TEST(LibraryVersionsTest, AnEnvironmentThatNoDeviceHasIsNotJudged) {
  const Tuning old = Made("13.0,nvrtc=old", kNvrtc);
  EXPECT_NE(WhyOutdated(old, LibrariesByEnvironment{{kH200, kNow}}), "");
  EXPECT_EQ(WhyOutdated(old, LibrariesByEnvironment{{"another", kNow}}), "");
}

}  // namespace
}  // namespace convtune::decision
