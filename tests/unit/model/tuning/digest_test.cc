#include "proto/model/environment.h"

#include <gtest/gtest.h>

#include "proto/model/problem/conv_problem.h"

namespace convtune {
namespace {

TuningKey Key(std::string_view problem, std::string_view environment) {
  return {ConvProblem::Parse(problem)->ToText(), Environment::Parse(environment)->ToText()};
}

constexpr char kH200[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";

// Databases hold these: a change needs a new format version, not new numbers.
TEST(DigestTest, NeverChanges) {
  EXPECT_EQ(Key("fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16", kH200).Digest().ToString(),
            "v1:fc3af0ad767d208cb92620de1426f428");
  EXPECT_EQ(Key("bwd_filter,x=1x4x9x9,w=8x2x3x3,groups=2,pad=1:0,bf16,out=f32,align=4",
                "profile:nvidia-h200,cc=9.0,sms=16,mig=1g.18gb,cudnn=9.19.0,lib=graph_jit_only")
                .Digest()
                .ToString(),
            "v1:721b47702ab92623ff2937e3e557f73b");
  EXPECT_EQ(TuningKey().Digest().ToString(), "v1:87785a2bee9bbfd24ad8cf6f33415581");
}

TEST(DigestTest, ChecksumsNeverChange) {
  // XXH3's own value for no bytes and seed 0.
  EXPECT_EQ(Checksum64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Checksum64("convtune"), 10465447790047445113u);
}

TEST(DigestTest, DoesNotDependOnHowTheProblemWasTyped) {
  EXPECT_EQ(Key("fwd,x=1x4x9,w=4x4x3,f16", kH200).Digest(),
            Key("fwd, f16 ,w=4x4x1x3,acc=f32,x=1x4x1x9", kH200).Digest());
}

TEST(DigestTest, DependsOnProblemAndEnvironment) {
  const TuningKey a{"p", "e"};
  EXPECT_NE(a.Digest(), (TuningKey{"q", "e"}).Digest());
  EXPECT_NE(a.Digest(), (TuningKey{"p", "f"}).Digest());
}

TEST(DigestTest, IsPrintedWithItsLeadingZeros) {
  EXPECT_EQ((TuningDigest{1, 0xab}).ToString(), "v1:000000000000000100000000000000ab");
}

}  // namespace
}  // namespace convtune
