#include "proto/base/clock.h"
#include "server/worker/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/worker/verify/self_check.h"
#include "tests/unit/worker/device/test_profile.h"

namespace convtune::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// One backend for all tests: making it loads half a gigabyte of libraries.
Backend* TestBackend() {
  static Backend* const backend = device::TestBackend().release();
  return backend;
}

std::unique_ptr<BackendProblem> Open(const std::string& text, int64_t memory_budget_bytes = 0) {
  return TestBackend()->Open(ConvProblem::Parse(text).value(), memory_budget_bytes).value();
}

struct Listing {
  std::vector<Candidate> candidates;
  worker::v1::Outcome end;
};

Listing List(BackendProblem* problem, worker::v1::Listing depth = worker::v1::LISTING_HEURISTICS,
             int max_candidates = 0, SteadyTime deadline = SteadyTime::InfiniteFuture()) {
  worker::v1::OpenProblem request;
  request.set_listing(depth);
  request.set_graph_api(true);
  request.set_max_candidates(max_candidates);
  Listing listing;
  listing.end = problem->List(request, deadline, [&listing](const Candidate& candidate) {
    listing.candidates.push_back(candidate);
    return true;
  });
  return listing;
}

constexpr char kPlain[] = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";

class DevicelessListing : public testing::TestWithParam<std::string> {};

TEST_P(DevicelessListing, EachConfigIsListedOnceInRankOrder) {
  const std::unique_ptr<BackendProblem> problem = Open(GetParam());
  const Listing listing = List(problem.get());
  ASSERT_THAT(listing.candidates, Not(IsEmpty())) << listing.end.message();
  std::set<CandidateId> ids;
  int rank = 0;
  for (const Candidate& candidate : listing.candidates) {
    EXPECT_TRUE(ids.insert(candidate.id).second) << ToText(candidate.id);
    EXPECT_EQ(candidate.heuristic_rank, rank++);
  }
  EXPECT_FALSE(listing.end.out_of_time());
  EXPECT_FALSE(listing.end.truncated());
}

TEST_P(DevicelessListing, PlacesAreThoseInEachModesList) {
  const std::unique_ptr<BackendProblem> problem = Open(GetParam());
  const Listing listing = List(problem.get());
  std::map<int, int> a, b, fallback;  // how many have a place
  HeuristicPlaces before;
  for (const Candidate& candidate : listing.candidates) {
    const HeuristicPlaces& places = candidate.places;
    EXPECT_GT(places.mode_a + places.mode_b + places.fallback, 0) << ToText(candidate.id);
    ++a[places.mode_a];
    ++b[places.mode_b];
    ++fallback[places.fallback];
    // Ranks are mode A's list, then what B adds, then what FALLBACK adds.
    if (candidate.heuristic_rank > 0 && places.mode_a > 0) {
      EXPECT_GT(places.mode_a, before.mode_a);
      EXPECT_GT(before.mode_a, 0);
    }
    before = places;
  }
  for (auto* places : {&a, &b, &fallback}) {
    places->erase(0);
    for (const auto& [place, count] : *places) EXPECT_EQ(count, 1) << place;
  }
  for (const Candidate& candidate :
       List(Open(GetParam()).get(), worker::v1::LISTING_FIRST_CONFIGS).candidates) {
    EXPECT_EQ(candidate.places.mode_b, 0);
  }
}

TEST_P(DevicelessListing, AStockConfigCanBeFinalisedFromItsTextAlone) {
  const std::unique_ptr<BackendProblem> problem = Open(GetParam());
  const Listing listing = List(problem.get(), worker::v1::LISTING_FIRST_CONFIGS);
  std::string refusals;
  for (const Candidate& candidate : listing.candidates) {
    const absl::StatusOr<worker::v1::Prepared> prepared = problem->Prepare(candidate.id);
    if (!prepared.ok()) {
      EXPECT_THAT(std::string(prepared.status().message()), HasSubstr("CUDNN_STATUS_"));
      refusals += std::string(prepared.status().message()) + "\n";
      continue;
    }
    const std::unique_ptr<BackendProblem> again = Open(GetParam());
    const absl::StatusOr<worker::v1::Prepared> from_text =
        again->Prepare(ParseCandidateId(ToText(candidate.id)).value());
    ASSERT_TRUE(from_text.ok()) << from_text.status();
    EXPECT_EQ(from_text->workspace_bytes(), prepared->workspace_bytes());
    return;
  }
  ADD_FAILURE() << "no config could be finalised:\n" << refusals;
}

std::vector<std::string> Problems() {
  std::vector<std::string> problems;
  for (const std::string operation : {"fwd", "bwd_data", "bwd_filter"}) {
    for (const std::string form :
         {",x=4x64x28x28,w=64x64x3x3,pad=1", ",x=2x16x8x14x14,w=16x16x3x3x3,pad=1",
          ",x=4x32x100,w=32x32x5,pad=2", ",x=4x64x28x28,w=64x16x3x3,pad=1,groups=4",
          ",x=4x32x28x28,w=32x1x3x3,pad=1,groups=32", ",x=4x32x28x28,w=32x32x3x3,pad=2,dilation=2",
          ",x=4x64x28x28,w=64x64x3x3,pad=1,stride=2"}) {
      for (const std::string type : {",f16,nhwc", ",f32,nchw"}) {
        problems.push_back(operation + form + type);
      }
    }
    for (const std::string type : {",bf16,nhwc", ",f64,nchw"}) {
      problems.push_back(operation + ",x=4x64x28x28,w=64x64x3x3,pad=1" + type);
    }
  }
  problems.push_back("fwd,x=4x64x28x28,w=64x64x3x3,pad=1,i8,nhwc");
  problems.push_back("fwd,x=4x64x28x28,w=64x64x3x3,pad=0:1x1:0,f16,nhwc");
  problems.push_back("fwd,x=4x64x28x28,w=64x64x3x3,pad=1,mode=conv");
  for (const std::string epilogue : {"bias", "bias+relu", "add+bias+relu"}) {
    problems.push_back("fwd,x=4x64x28x28,w=64x64x3x3,pad=1,f16,nhwc,epilogue=" + epilogue);
    problems.push_back("fwd,x=4x64x28x28,w=64x64x3x3,pad=1,f32,nchw,epilogue=" + epilogue);
  }
  return problems;
}

INSTANTIATE_TEST_SUITE_P(Problems, DevicelessListing, testing::ValuesIn(Problems()));

TEST(DevicelessBackendTest, NotesAreThoseOfTheEngines) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  int tensor_core = 0;
  for (const Candidate& candidate : List(problem.get()).candidates) {
    tensor_core += candidate.has(NumericalNote::kTensorCore) ? 1 : 0;
  }
  EXPECT_GT(tensor_core, 0);
}

TEST(DevicelessBackendTest, ConfigsOfOneEngineDifferInTheirKnobs) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  std::map<int64_t, int> configs_of_engine;
  for (const Candidate& candidate : List(problem.get()).candidates) {
    ++configs_of_engine[std::get<EngineConfig>(candidate.id).engine_index];
  }
  int most = 0;
  for (const auto& [engine, configs] : configs_of_engine) {
    most = std::max(most, configs);
  }
  EXPECT_GT(most, 5);
}

// What cuDNN lists for these without a GPU depends on its version and on
// whether a libcuda can be loaded; it may be nothing.
TEST(DevicelessBackendTest, WhatIsListedIsFinalisedOrRefusedInCudnnsWords) {
  for (const char* text : {"fwd,x=4x64x28x28,w=64x64x3x3,pad=1,f16,nhwc,sms=66",
                           "fwd,x=4x64x28x28,w=64x64x3x3,pad=1,f16,nhwc,mid=f16,epilogue=bias"}) {
    const std::unique_ptr<BackendProblem> problem = Open(text);
    for (const Candidate& candidate : List(problem.get()).candidates) {
      const absl::StatusOr<worker::v1::Prepared> prepared = problem->Prepare(candidate.id);
      if (!prepared.ok()) {
        EXPECT_THAT(std::string(prepared.status().message()), HasSubstr("CUDNN_STATUS_"));
      }
    }
  }
}

TEST(DevicelessBackendTest, HeuristicsListsAtLeastWhatStockLists) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  std::set<CandidateId> all;
  for (const Candidate& candidate : List(problem.get()).candidates) {
    all.insert(candidate.id);
  }
  const Listing stock = List(problem.get(), worker::v1::LISTING_FIRST_CONFIGS);
  EXPECT_GE(all.size(), stock.candidates.size());
  EXPECT_THAT(stock.candidates, Not(IsEmpty()));
  for (const Candidate& candidate : stock.candidates) {
    EXPECT_EQ(all.count(candidate.id), 1U) << ToText(candidate.id);
  }
}

TEST(DevicelessBackendTest, ExhaustiveListsTheHeuristicsFirstAndThenMore) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  const size_t heuristics = List(problem.get()).candidates.size();
  const Listing exhaustive = List(problem.get(), worker::v1::LISTING_EXHAUSTIVE);
  ASSERT_GT(exhaustive.candidates.size(), heuristics);
  std::set<CandidateId> ids;
  for (size_t i = 0; i < exhaustive.candidates.size(); ++i) {
    const Candidate& candidate = exhaustive.candidates[i];
    EXPECT_TRUE(ids.insert(candidate.id).second) << ToText(candidate.id);
    EXPECT_EQ(candidate.heuristic_rank, i < heuristics ? static_cast<int>(i) : -1);
  }
}

TEST(DevicelessBackendTest, ExhaustiveKeepsToItsLimits) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  const Listing listing = List(problem.get(), worker::v1::LISTING_EXHAUSTIVE, 150);
  EXPECT_EQ(listing.candidates.size(), 150U);
  EXPECT_TRUE(listing.end.truncated());
}

TEST(DevicelessBackendTest, APassedDeadlineEndsTheListingBehindItsFirstCandidateAndSaysSo) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  const Listing listing =
      List(problem.get(), worker::v1::LISTING_HEURISTICS, 0, SteadyTime::InfinitePast());
  EXPECT_EQ(listing.candidates.size(), 1U);
  EXPECT_TRUE(listing.end.out_of_time());
}

TEST(DevicelessBackendTest, AnEngineThatDoesNotExistIsRefusedInCudnnsWords) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  const absl::StatusOr<worker::v1::Prepared> prepared = problem->Prepare(EngineConfig{99999, {}});
  ASSERT_FALSE(prepared.ok());
  EXPECT_THAT(std::string(prepared.status().message()), HasSubstr("CUDNN_STATUS_"));
}

TEST(DevicelessBackendTest, AConfigOfAnotherProblemIsRefusedInCudnnsWords) {
  const std::unique_ptr<BackendProblem> half = Open(kPlain);
  const std::unique_ptr<BackendProblem> twice = Open("fwd,x=16x64x56x56,w=64x64x3x3,pad=1,f64");
  int refused = 0;
  for (const Candidate& candidate : List(half.get()).candidates) {
    const absl::StatusOr<worker::v1::Prepared> prepared = twice->Prepare(candidate.id);
    if (!prepared.ok()) {
      EXPECT_THAT(std::string(prepared.status().message()), HasSubstr("CUDNN_STATUS_"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(DevicelessBackendTest, WorkspaceAboveTheBudgetIsOverMemory) {
  const std::unique_ptr<BackendProblem> roomy = Open(kPlain);
  const std::unique_ptr<BackendProblem> tight =
      Open(kPlain, ConvProblem::Parse(kPlain)->TensorBytes());
  int over = 0;
  for (const Candidate& candidate : List(roomy.get()).candidates) {
    const absl::StatusOr<worker::v1::Prepared> prepared = roomy->Prepare(candidate.id);
    if (prepared.ok()) {
      EXPECT_FALSE(prepared->over_memory());
      const absl::StatusOr<worker::v1::Prepared> again = tight->Prepare(candidate.id);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->over_memory(), prepared->workspace_bytes() > 0);
      over += again->over_memory() ? 1 : 0;
    }
  }
  EXPECT_GT(over, 0);
}

TEST(DevicelessBackendTest, TensorsAboveTheBudgetAreRefused) {
  EXPECT_EQ(TestBackend()->Open(ConvProblem::Parse(kPlain).value(), 1000).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(DevicelessBackendTest, ProfileCanNeitherRunNorSearchTheLegacyApi) {
  const std::unique_ptr<BackendProblem> problem = Open(kPlain);
  EXPECT_FALSE(TestBackend()->has_gpu());
  EXPECT_EQ(problem->Prepare(LegacyAlgorithm{1, 0}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(problem->Run(EngineConfig{1, {}}, worker::v1::Measure()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// A self-check finds a plan to run.
TEST(DevicelessBackendTest, TheKnownConvolutionHasAStockChoice) {
  const std::unique_ptr<BackendProblem> problem = Open(verify::kKnownProblem);
  const Listing listing = List(problem.get(), worker::v1::LISTING_FIRST_CONFIGS);
  EXPECT_TRUE(
      std::any_of(listing.candidates.begin(), listing.candidates.end(),
                  [&](const Candidate& candidate) { return problem->Prepare(candidate.id).ok(); }));
}

TEST(DevicelessListingTest, WhereTheHeuristicsListNothingItIsSaid) {
  const std::unique_ptr<BackendProblem> problem =
      Open("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,nhwc,i8,epilogue=bias");
  const Listing listing = List(problem.get());
  ASSERT_THAT(listing.candidates, IsEmpty());
  EXPECT_THAT(listing.end.message(), HasSubstr("the graph API's heuristics list no engine"));
}

}  // namespace
}  // namespace convtune::worker
