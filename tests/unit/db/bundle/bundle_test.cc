#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_merge.h"
#include "proto/base/strings.h"
#include "tests/unit/db/bundle/bundle_files.h"

namespace convtune::db::bundle {
namespace {

using ::testing::HasSubstr;

// The byte that a DATA_LOSS names.
int64_t DamagedByte(const absl::Status& status) {
  const std::string text(status.message());
  const std::string mark = "damaged at byte ";
  const size_t begin = text.find(mark);
  if (begin == std::string::npos) return -1;
  const size_t digits = begin + mark.size();
  int64_t byte = -1;
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(digits, text.find(':', digits) - digits), &byte));
  return byte;
}

TEST(BundleTest, GivesBackEveryTuningAsItWas) {
  const std::vector<Tuning> tunings = SampleTunings(3);
  const TestFolder folder;
  WriteWholeFile(folder.File("b"), BundleOf(tunings));
  auto reader = BundleReader::Open(folder.File("b"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<Tuning> got;
  ASSERT_TRUE(ReadWholeBundle(reader->get(), {}, [&](const BundleEntry& entry) {
                got.push_back(
                    FromBundleTuning(*entry.row, *entry.environment, kNow).value_or(Tuning()));
                EXPECT_EQ(entry.environment->environment, SampleEnvironment());
              }).ok());
  ASSERT_EQ(got.size(), 3U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], Imported(tunings[i]));
}

TEST(BundleTest, AnEmptyBundleIsOne) {
  std::vector<v1::Tuning> rows;
  EXPECT_TRUE(ReadAll(BundleOf({}), &rows).ok());
  EXPECT_TRUE(rows.empty());
}

TEST(BundleTest, WithoutSamplesTheSummaryStays) {
  std::vector<v1::Tuning> rows;
  ASSERT_TRUE(ReadAll(BundleOf(SampleTunings(1), /*with_samples=*/false), &rows).ok());
  EXPECT_EQ(rows[0].candidates(0).samples_ns_size(), 0);
  EXPECT_EQ(rows[0].candidates(0).sample_count(), 21);
  EXPECT_GT(rows[0].candidates(0).median_us(), 10);
}

TEST(BundleTest, APlaceIsWrittenOnce) {
  std::vector<Tuning> tunings = SampleTunings(3);
  tunings[2].provenance.node = "node-b";
  const TestFolder folder;
  WriteWholeFile(folder.File("b"), BundleOf(tunings));
  auto reader = BundleReader::Open(folder.File("b"));
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(ReadWholeBundle(reader->get(), {}, nullptr).ok());
  EXPECT_EQ((*reader)->trailer().environment_count(), 2);
  EXPECT_EQ((*reader)->trailer().tuning_count(), 3);
}

TEST(BundleTest, TheWriterRefusesADoubledKeyAndAnotherOrder) {
  BundleWriter writer([](std::string_view) { return absl::OkStatus(); });
  ASSERT_TRUE(writer.Add(ValidTuning(2), SampleEnvironment()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(writer.Add(ValidTuning(2), SampleEnvironment())));
  EXPECT_TRUE(absl::IsInvalidArgument(writer.Add(ValidTuning(1), SampleEnvironment())));
}

TEST(BundleTest, AnErrorOfTheSinkEndsTheWriting) {
  BundleWriter writer([](std::string_view) { return absl::UnavailableError("disk"); });
  EXPECT_TRUE(absl::IsUnavailable(writer.Add(ValidTuning(1), SampleEnvironment())));
}

// Where the records of a bundle begin, and its end.
std::vector<int64_t> RecordStarts(const std::string& bytes) {
  std::vector<int64_t> starts = {static_cast<int64_t>(kBundleMagic.size())};
  while (starts.back() < static_cast<int64_t>(bytes.size())) {
    const auto length = static_cast<int64_t>(ReadLittleEndian(&bytes[starts.back()], 4));
    starts.push_back(starts.back() + static_cast<int64_t>(kBundleFrameHead + kBundleChecksum) +
                     length);
  }
  return starts;
}

TEST(BundleTest, AByteFlippedAnywhereIsRefusedWithItsRecord) {
  const std::string bytes = BundleOf(SampleTunings(2));
  const std::vector<int64_t> starts = RecordStarts(bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      const absl::Status status = ReadAll(damaged);
      ASSERT_TRUE(absl::IsDataLoss(status)) << "byte " << i << ": " << status;
      // The record that the byte is in; 0 for the magic.
      int64_t record = 0;
      for (const int64_t start : starts) {
        if (start <= static_cast<int64_t>(i)) record = start;
      }
      ASSERT_EQ(DamagedByte(status), record) << "byte " << i << ": " << status;
    }
  }
}

TEST(BundleTest, CutShortAnywhereItIsRefused) {
  const std::string bytes = BundleOf(SampleTunings(2));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const absl::Status status = ReadAll(bytes.substr(0, length));
    ASSERT_TRUE(absl::IsDataLoss(status)) << length << " bytes: " << status;
  }
}

TEST(BundleTest, WhatFollowsTheTrailerIsRefused) {
  const std::string bytes = BundleOf(SampleTunings(1));
  const absl::Status status = ReadAll(bytes + "x");
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(DamagedByte(status), static_cast<int64_t>(bytes.size()));
}

TEST(BundleTest, ARecordThatMovedOrIsMissingIsRefused) {
  const std::string bytes = BundleOf(SampleTunings(3));
  const std::vector<int64_t> starts = RecordStarts(bytes);
  const auto record = [&](size_t i) {
    return bytes.substr(static_cast<size_t>(starts[i]),
                        static_cast<size_t>(starts[i + 1] - starts[i]));
  };
  const std::string magic(kBundleMagic);
  // Header, environment, three tunings, trailer.
  EXPECT_TRUE(absl::IsDataLoss(
      ReadAll(magic + record(0) + record(1) + record(3) + record(2) + record(4) + record(5))));
  EXPECT_TRUE(
      absl::IsDataLoss(ReadAll(magic + record(0) + record(1) + record(2) + record(3) + record(5))));
}

TEST(BundleTest, ANewerFormatIsRefusedByItsVersion) {
  std::string bytes(kBundleMagic);
  v1::BundleHeader header;
  header.set_format_version(kBundleVersion + 1);
  bytes += FrameBundleRecord(8, BundleRecordKind::kHeader, header.SerializeAsString());
  const absl::Status status = ReadAll(bytes);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("format version 2"));
}

TEST(BundleTest, ALengthThatLiesCostsNoMemory) {
  std::string bytes = BundleOf(SampleTunings(1));
  const auto start = static_cast<size_t>(RecordStarts(bytes)[2]);
  for (int i = 0; i < 4; ++i) bytes[start + static_cast<size_t>(i)] = '\xff';
  EXPECT_THAT(std::string(ReadAll(bytes).message()), HasSubstr("more than 16777216"));
}

TEST(BundleTest, CandidatesAndQuarantineEntriesWithoutNumberAreRefusedBeforeTheyAreMade) {
  v1::Tuning candidates = SampleRow(1), quarantine = SampleRow(1);
  for (int i = 0; i <= kMaxBundleCandidates; ++i) {
    candidates.add_candidates();
    quarantine.add_quarantine();
  }
  for (const v1::Tuning& row : {candidates, quarantine}) {
    const absl::Status status = ReadAll(BundleOfRows({row}, SampleBundleEnvironment()));
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("more than 100000 candidates"));
  }
}

TEST(BundleTest, AnEnvironmentThatIsNotThereIsRefused) {
  v1::Tuning row = SampleRow(1);
  row.set_environment_number(2);
  EXPECT_TRUE(absl::IsDataLoss(ReadAll(BundleOfRows({row}, SampleBundleEnvironment()))));
}

TEST(BundleTest, ADoubledKeyIsRefused) {
  EXPECT_TRUE(absl::IsDataLoss(
      ReadAll(BundleOfRows({SampleRow(1), SampleRow(1)}, SampleBundleEnvironment()))));
}

TEST(BundleTest, AFolderIsNoBundle) {
  const TestFolder folder;
  EXPECT_TRUE(absl::IsInvalidArgument(BundleReader::Open(folder.path()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BundleReader::Open(folder.File("nowhere")).status()));
}

TEST(BundleTest, JsonLinesNameTheEnvironment) {
  const TestFolder folder;
  WriteWholeFile(folder.File("b"), BundleOf(SampleTunings(2)));
  auto reader = BundleReader::Open(folder.File("b"));
  std::string text;
  EXPECT_TRUE(WriteBundleJson(reader->get(), {}, [&text](const std::string& line) {
                text += line;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // a place and two tunings
  EXPECT_THAT(text, HasSubstr(R"({"environment":"nvidia-h200,cc=9.0,sms=132,)"));
  EXPECT_THAT(text, HasSubstr(R"("text":"graph:eng10,k2=0,k3=-1")"));
  EXPECT_THAT(text, HasSubstr(R"("deterministic":true)"));
}

}  // namespace
}  // namespace convtune::db::bundle
