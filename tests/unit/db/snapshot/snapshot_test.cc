#include "db/snapshot/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "db/snapshot/datagram.h"
#include "db/snapshot/key_convert.h"
#include "db/snapshot/snapshot_writer.h"
#include "tests/unit/db/test_folder.h"
#include "tests/unit/release/datagrams.h"

namespace convtune::snapshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Environment H200() {
  return Environment::Parse("nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full").value();
}

ConvProblem Numbered(int n, int alignment = 16) {
  return ConvProblem::Parse("fwd,x=" + std::to_string(n) + "x64x56x56,w=64x64x3x3,pad=1,nhwc,f16")
      .value()
      .WithAlignment(alignment);
}

Candidate Engine(int64_t index, std::vector<std::pair<int, int64_t>> knobs = {}) {
  Candidate candidate;
  candidate.id = EngineConfig{index, std::move(knobs)};
  candidate.numerical_notes = NoteBit(NumericalNote::kTensorCore);
  candidate.workspace_bytes = index * 1024;
  candidate.median_us = static_cast<double>(index) + 0.5;
  return candidate;
}

SnapshotChoice Choice(ConvProblem problem, int64_t engine) {
  SnapshotChoice choice(std::move(problem));
  choice.candidates = {Engine(engine, {{2, 5}, {13, engine}})};
  choice.evidence = Evidence::kMeasured;
  choice.release = 7;
  return choice;
}

// Serialised bytes in aligned memory, with the view of them.
struct Opened {
  explicit Opened(const std::string& bytes) : words((bytes.size() + 7) / 8) {
    if (!bytes.empty()) memcpy(words.data(), bytes.data(), bytes.size());
    error = SnapshotView::Open(words.data(), bytes.size(), &view);
  }
  const SnapshotEntry* Find(const ConvProblem& problem, Channel channel = Channel::kStable) const {
    const SnapshotSection* section = view.FindSection(ToKey(H200()).value(), channel);
    const ProblemKey key = ToKey(problem).value();
    return section == nullptr ? nullptr : view.Find(*section, key, HashOf(key));
  }
  std::vector<uint64_t> words;
  SnapshotView view;
  SnapshotError error;
};

// The bytes of a snapshot with one choice.
std::string OneChoice() {
  SnapshotWriter writer({});
  EXPECT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(1), 1)).ok());
  return writer.Serialize();
}

TEST(Snapshot, FindsEveryChoiceAndNothingElse) {
  SnapshotWriter writer({.release = 7});
  for (int n = 1; n <= 1000; ++n) {
    ASSERT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(n), n)).ok());
  }
  const Opened opened(writer.Serialize());
  ASSERT_EQ(opened.error, SnapshotError::kNone);
  EXPECT_EQ(opened.view.header().release, 7U);
  for (int n = 1; n <= 1000; ++n) {
    const SnapshotEntry* entry = opened.Find(Numbered(n));
    ASSERT_NE(entry, nullptr);
    const SnapshotCandidate& candidate = *opened.view.candidates(*entry);
    EXPECT_EQ(candidate.number, n);
    ASSERT_EQ(candidate.knob_count, 2);
    EXPECT_EQ(opened.view.knobs(candidate)[1].type, 13);
    EXPECT_EQ(opened.view.knobs(candidate)[1].value, n);
    EXPECT_EQ(candidate.workspace_bytes, n * 1024);
  }
  EXPECT_EQ(opened.Find(Numbered(1001)), nullptr);
}

TEST(Snapshot, ATuningServesEqualOrStricterAlignment) {
  SnapshotWriter writer({});
  ASSERT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(1, 4), 4)).ok());
  ASSERT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(1, 16), 16)).ok());
  const Opened opened(writer.Serialize());
  const auto found = [&](int alignment) -> int64_t {
    const SnapshotEntry* entry = opened.Find(Numbered(1, alignment));
    return entry == nullptr ? 0 : opened.view.candidates(*entry)->number;
  };
  EXPECT_EQ(found(2), 0);
  EXPECT_EQ(found(4), 4);
  EXPECT_EQ(found(8), 4);
  EXPECT_EQ(found(16), 16);
  EXPECT_EQ(found(64), 16);
}

TEST(Snapshot, KeepsBothApisAndTheStockChoice) {
  SnapshotChoice choice(Numbered(1));
  choice.candidates = {Engine(3), Engine(4)};
  choice.candidates.push_back({});
  choice.candidates.back().id = LegacyAlgorithm{1, 2};
  choice.candidates.back().numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  choice.stock = StockChoice{1, 2, 4, 0, 4096};
  choice.pinned = true;
  SnapshotWriter writer({});
  ASSERT_TRUE(writer.Add(H200(), Channel::kStable, choice).ok());
  const Opened opened(writer.Serialize());
  const SnapshotEntry* entry = opened.Find(Numbered(1));
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(entry->candidate_count, 3);
  const SnapshotCandidate* candidates = opened.view.candidates(*entry);
  EXPECT_EQ(candidates[1].number, 4);
  EXPECT_EQ(candidates[1].flags, kDeterministic);
  EXPECT_EQ(candidates[2].api, kApiLegacy);
  EXPECT_EQ(candidates[2].math_type, 2);
  EXPECT_EQ(candidates[2].flags, 0);
  EXPECT_EQ(entry->pinned, 1);
  EXPECT_EQ(entry->stock.known, 1U);
  EXPECT_EQ(entry->stock.workspace_bytes, 4096);
}

TEST(Snapshot, ChannelsAreApart) {
  SnapshotWriter writer({.release = 7, .canary_release = 8, .canary_permille = 50});
  ASSERT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(1), 1)).ok());
  ASSERT_TRUE(writer.Add(H200(), Channel::kCanary, Choice(Numbered(1), 2)).ok());
  const Opened opened(writer.Serialize());
  EXPECT_EQ(opened.view.candidates(*opened.Find(Numbered(1)))->number, 1);
  EXPECT_EQ(opened.view.candidates(*opened.Find(Numbered(1), Channel::kCanary))->number, 2);
  EXPECT_EQ(opened.view.header().canary_permille, 50U);
}

TEST(Snapshot, EqualChoicesGiveEqualBytes) {
  SnapshotWriter forward({}), backward({});
  for (int n = 1; n <= 20; ++n) {
    ASSERT_TRUE(forward.Add(H200(), Channel::kStable, Choice(Numbered(n), n)).ok());
    ASSERT_TRUE(backward.Add(H200(), Channel::kStable, Choice(Numbered(21 - n), 21 - n)).ok());
  }
  EXPECT_EQ(forward.Serialize(), backward.Serialize());
}

TEST(Snapshot, AnEmptyOneIsValid) {
  SnapshotWriter writer({});
  EXPECT_EQ(Opened(writer.Serialize()).error, SnapshotError::kNone);
  ASSERT_TRUE(writer.AddEnvironment(H200()).ok());
  const Opened opened(writer.Serialize());
  ASSERT_EQ(opened.error, SnapshotError::kNone);
  EXPECT_NE(opened.view.FindSection(ToKey(H200()).value(), Channel::kStable), nullptr);
  EXPECT_EQ(opened.Find(Numbered(1)), nullptr);
}

TEST(Snapshot, EveryDamagedByteAndEveryCutIsNoticed) {
  const std::string bytes = OneChoice();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_NE(Opened(damaged).error, SnapshotError::kNone) << i;
    EXPECT_NE(Opened(bytes.substr(0, i)).error, SnapshotError::kNone) << i;
  }
  EXPECT_NE(Opened(bytes + "x").error, SnapshotError::kNone);
}

// A file that is wrong but whose checksums hold.
std::string Resealed(std::string bytes) {
  auto* header = reinterpret_cast<SnapshotHeader*>(bytes.data());
  header->body_checksum = XXH3_64bits(bytes.data() + sizeof *header, bytes.size() - sizeof *header);
  header->header_checksum = XXH3_64bits(header, offsetof(SnapshotHeader, header_checksum));
  return bytes;
}

TEST(Snapshot, ImpossibleOffsetsAreNoticedBehindValidChecksums) {
  const std::string bytes = OneChoice();
  ASSERT_EQ(Opened(Resealed(bytes)).error, SnapshotError::kNone);
  const auto error = [&](auto change) {
    std::string bad = bytes;
    change(bad.data());
    return Opened(Resealed(bad)).error;
  };
  const auto header = [](char* file) { return reinterpret_cast<SnapshotHeader*>(file); };
  const auto section = [](char* file) {
    return reinterpret_cast<SnapshotSection*>(file + sizeof(SnapshotHeader));
  };
  EXPECT_EQ(error([&](char* f) { header(f)->format_version = 1; }), SnapshotError::kVersion);
  EXPECT_EQ(error([&](char* f) { header(f)->sections_offset = 1 << 20; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { header(f)->candidate_count = ~0ULL; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { header(f)->knob_count = 1; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { header(f)->canary_permille = 1001; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { section(f)->slot_count = 3; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { section(f)->slots_offset += 4; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { section(f)->entry_count = 5; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { section(f)->channel = 2; }), SnapshotError::kLayout);
  const uint64_t entries =
      reinterpret_cast<const SnapshotSection*>(bytes.data() + sizeof(SnapshotHeader))
          ->entries_offset;
  const auto entry = [&](char* file) { return reinterpret_cast<SnapshotEntry*>(file + entries); };
  EXPECT_EQ(error([&](char* f) { entry(f)->candidate_begin = 9; }), SnapshotError::kLayout);
  EXPECT_EQ(error([&](char* f) { entry(f)->candidate_count = 0; }), SnapshotError::kLayout);
}

TEST(SnapshotWriter, TakesAProblemOnce) {
  SnapshotWriter writer({});
  ASSERT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(1), 1)).ok());
  EXPECT_EQ(writer.Add(H200(), Channel::kStable, Choice(Numbered(1), 2)).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(writer.choice_count(), 1U);
}

TEST(SnapshotWriter, ReplacesTheFileAndLeavesNothingBeside) {
  const db::TestFolder folder;
  const std::string path = folder.File(kSnapshotFile);
  for (int n = 1; n <= 3; ++n) {
    SnapshotWriter writer({.release = static_cast<uint64_t>(n)});
    ASSERT_TRUE(writer.Add(H200(), Channel::kStable, Choice(Numbered(n), n)).ok());
    ASSERT_TRUE(writer.Write(path).ok());
    EXPECT_EQ(Opened(db::ReadWholeFile(path)).view.header().release, static_cast<uint64_t>(n));
  }
  EXPECT_THAT(folder.Names(), ElementsAre(kSnapshotFile));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644U);
  const absl::Status status = SnapshotWriter({}).Write(folder.File("no/such/folder/x"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/folder"));
}

TEST(IsNeutral, AllowsLessAndNothingElse) {
  constexpr uint32_t kTensorCore = NoteBit(NumericalNote::kTensorCore);
  EXPECT_TRUE(IsNeutral(0, 0, 0, 0));
  EXPECT_TRUE(IsNeutral(0, 10, kTensorCore, 10));
  EXPECT_FALSE(IsNeutral(kTensorCore, 0, 0, 0));
  EXPECT_FALSE(IsNeutral(0, 11, 0, 10));
}

TEST(Datagram, KindNeedsSizeVersionAndCounts) {
  const std::string problem = Numbered(1).ToText(), environment = H200().ToText();
  MissDatagram miss = release::MissOf(problem, environment);
  EXPECT_EQ(ReadDatagramKind(&miss, sizeof miss), 1);
  EXPECT_EQ(ReadDatagramKind(&miss, sizeof miss - 1), 0);
  EXPECT_EQ(ReadDatagramKind(&miss, 3), 0);
  miss.count = 0;
  EXPECT_EQ(ReadDatagramKind(&miss, sizeof miss), 0);
  ObservedPlanDatagram plan = release::PlanOf(problem, environment, 34);
  plan.knob_count = kMaxDatagramKnobs;
  EXPECT_EQ(ReadDatagramKind(&plan, sizeof plan), 2);
  plan.knob_count = kMaxDatagramKnobs + 1;
  EXPECT_EQ(ReadDatagramKind(&plan, sizeof plan), 0);
  ObservedLegacyDatagram legacy = release::LegacyOf(problem, environment);
  EXPECT_EQ(ReadDatagramKind(&legacy, sizeof legacy), 3);
  legacy.header.version = 2;
  EXPECT_EQ(ReadDatagramKind(&legacy, sizeof legacy), 0);
}

}  // namespace
}  // namespace convtune::snapshot
