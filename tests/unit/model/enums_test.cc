#include "proto/model/enums.h"

#include <gtest/gtest.h>

namespace convtune {
namespace {

TEST(EnumsTest, NamesAreReadBack) {
  for (const Operation v : {Operation::kFwd, Operation::kBwdData, Operation::kBwdFilter}) {
    EXPECT_EQ(ParseOperation(Name(v)), v);
  }
  for (int i = 1; i <= 8; ++i) {
    EXPECT_EQ(ParseDataType(Name(static_cast<DataType>(i))), static_cast<DataType>(i));
  }
  for (const EpilogueOp v : {EpilogueOp::kAdd, EpilogueOp::kBias, EpilogueOp::kRelu}) {
    EXPECT_EQ(ParseEpilogueOp(Name(v)), v);
  }
  for (const Evidence v : {Evidence::kNone, Evidence::kHeuristic, Evidence::kObserved,
                           Evidence::kIncomplete, Evidence::kMeasured}) {
    EXPECT_EQ(ParseEvidence(Name(v)), v);
  }
  for (const LibraryConfiguration v : {LibraryConfiguration::kUnknown, LibraryConfiguration::kFull,
                                       LibraryConfiguration::kGraphJitOnly}) {
    EXPECT_EQ(ParseLibraryConfiguration(Name(v)), v);
  }
}

TEST(EnumsTest, OtherSpellingsAreRefused) {
  EXPECT_FALSE(ParseOperation("FWD"));
  EXPECT_FALSE(ParseDataType(""));
  EXPECT_FALSE(ParseDataType("float"));
  EXPECT_FALSE(ParseEvidence("invalid"));
  EXPECT_FALSE(ParseEvidence("unspecified"));
  EXPECT_FALSE(ParseOperation("none"));
}

TEST(EnumsTest, EveryNoteHasAName) {
  for (int i = 1; i <= 10; ++i) EXPECT_NE(Name(static_cast<NumericalNote>(i)), "invalid");
  for (int i = 1; i <= 5; ++i) EXPECT_NE(Name(static_cast<BehaviorNote>(i)), "invalid");
  for (int i = 1; i <= 8; ++i) EXPECT_NE(Name(static_cast<CandidateStatus>(i)), "invalid");
  for (int i = 1; i <= 5; ++i) EXPECT_NE(Name(static_cast<QuarantineReason>(i)), "invalid");
  EXPECT_EQ(Name(static_cast<CandidateStatus>(9)), "invalid");
}

// They are in text forms that files have.
TEST(EnumsTest, WordsAreWhatFilesHave) {
  const auto words = []<typename T>(T, int count) {
    std::string all;
    for (int i = 1; i <= count; ++i)
      all += (i > 1 ? " " : "") + std::string(Name(static_cast<T>(i)));
    return all;
  };
  EXPECT_EQ(words(Operation::kFwd, 3), "fwd bwd_data bwd_filter");
  EXPECT_EQ(words(DataType::kF64, 8), "f64 f32 f16 bf16 i8 i32 e4m3 e5m2");
  EXPECT_EQ(words(TensorLayout::kNchw, 3), "nchw nhwc strided");
  EXPECT_EQ(words(EpilogueOp::kAdd, 3), "add bias relu");
  EXPECT_EQ(words(LibraryConfiguration::kFull, 2), "full graph_jit_only");
  EXPECT_EQ(Name(LibraryConfiguration::kUnknown), "unknown");
  EXPECT_EQ(Name(Evidence::kNone), "none");
  EXPECT_EQ(Name(NumericalNote::kWinogradTile13x13), "winograd_tile_13x13");
  EXPECT_EQ(Name(BehaviorNote::kCublasLtDependency), "cublaslt_dependency");
}

TEST(EnumsTest, SizesAreInBytes) {
  EXPECT_EQ(SizeOf(DataType::kF64), 8);
  EXPECT_EQ(SizeOf(DataType::kF32), 4);
  EXPECT_EQ(SizeOf(DataType::kI32), 4);
  EXPECT_EQ(SizeOf(DataType::kBF16), 2);
  EXPECT_EQ(SizeOf(DataType::kE5M2), 1);
}

}  // namespace
}  // namespace convtune
