#include "proto/model/tuning/ban.h"

#include <gtest/gtest.h>

#include <set>

namespace convtune {
namespace {

constexpr char kH200[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";
constexpr char kProfile[] = "profile:nvidia-a100,cc=8.0,sms=108,cudnn=9.20.1,lib=full";
constexpr char kHalf[] = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";
constexpr char kGradient[] = "bwd_data,x=16x64x56x56,w=64x64x3x3,pad=1,nchw,f32";

TuningKey KeyOf(const std::string& problem, const std::string& environment) {
  return {ConvProblem::Parse(problem)->ToText(), environment};
}

Bans Only(const Ban& ban) { return Bans({std::make_shared<const Ban>(ban)}); }

Ban BanOf(const std::string& candidate) {
  Ban ban;
  ban.number = 3;
  ban.candidate = CandidatePattern::Parse(candidate).value();
  return ban;
}

TEST(CandidatePatternTest, FitsWhatItDoesNotName) {
  const struct {
    const char* pattern;
    const char* candidate;
    bool fits;
  } kCases[] = {
      {"eng47", "graph:eng47", true},
      {"eng47", "graph:eng47,k2=5,k3=0", true},
      {"eng47", "graph:eng4", false},
      {"eng47", "graph:eng470", false},
      {"graph:eng47,k2=*", "graph:eng47,k2=5,k3=0", true},
      {"eng47,k2=*", "graph:eng47,k3=0", false},
      {"eng47,k2=5", "graph:eng47,k2=5,k3=0", true},
      {"eng47,k2=5", "graph:eng47,k2=50", false},
      {"eng47,k3=0,k2=5", "graph:eng47,k2=5,k3=0", true},
      {"eng*,k2=5", "graph:eng1,k2=5", true},
      {"graph:*", "graph:eng1,k2=5", true},
      {"graph:*", "legacy:algo1,math2", false},
      {"legacy:*", "legacy:algo1,math2", true},
      {"legacy:*", "graph:eng1", false},
      {"legacy:algo1", "legacy:algo1,math0", true},
      {"legacy:algo1,math2", "legacy:algo1,math0", false},
      {"legacy:*,math2", "legacy:algo6,math2", true},
      {"legacy:algo*,math*", "legacy:algo6,math2", true},
  };
  for (const auto& c : kCases) {
    const auto pattern = CandidatePattern::Parse(c.pattern);
    ASSERT_TRUE(pattern.ok()) << c.pattern << ": " << pattern.status();
    EXPECT_EQ(pattern->Fits(ParseCandidateId(c.candidate).value()), c.fits)
        << c.pattern << " and " << c.candidate;
    EXPECT_EQ(*CandidatePattern::Parse(pattern->ToText()), *pattern) << pattern->ToText();
  }
}

TEST(CandidatePatternTest, ACandidatesOwnTextIsAPattern) {
  for (const char* text : {"graph:eng34,k2=5,k17=-1", "legacy:algo1,math2"}) {
    EXPECT_EQ(CandidatePattern::Parse(text)->ToText(), text);
    EXPECT_TRUE(CandidatePattern::Parse(text)->Fits(*ParseCandidateId(text)));
  }
}

TEST(CandidatePatternTest, AnErrorHasTheRuleAnExampleAndWhatIsWrong) {
  const struct {
    const char* pattern;
    const char* wrong;
  } kCases[] = {
      {"47", "expected eng, graph: or legacy: in front"},
      {"eng", "expected eng and a number from 0 to 2^63-1 or *, found \"eng\""},
      {"graph:eng-1", "expected eng and a number from 0 to 2^63-1 or *, found \"eng-1\""},
      {"eng,k2=", "expected eng and a number from 0 to 2^63-1 or *, found \"eng\""},
      {"eng47,k2=", "expected k2=<number of 64 bits or *>, found \"k2=\""},
      {"eng47,k2", "expected k<type>=<number or *>, found \"k2\""},
      {"eng47,k=1", "expected k and a number from 0 to 2^31-1 or *, found \"k\""},
      {"eng47,k*=1", "the type of a knob must be a number"},
      {"eng47,k2=1,k2=2", "k2 is given twice"},
      {"legacy:algo2147483648",
       "expected algo and a number from 0 to 2^31-1 or *, found \"algo2147483648\""},
      {"legacy:*,math", "expected math and a number from 0 to 2^31-1 or *, found \"math\""},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(CandidatePattern::Parse(c.pattern).status().message(),
              std::string("must be a candidate in which * stands for any number, such as eng47, "
                          "eng47,k2=* or legacy:*, is \"") +
                  c.pattern + "\": " + c.wrong);
  }
}

TEST(CandidatePatternTest, MalformedTextsAreRefused) {
  for (const char* text : {"", "*", "eng-1", "eng47,", "eng47,k2=x", "legacy:",
                           "legacy:algo1,math2,math3", "legacy:eng47", "eng47 ", "eng4*"}) {
    EXPECT_FALSE(CandidatePattern::Parse(text).ok()) << text;
  }
}

TEST(CudnnRangeTest, HasVersions) {
  const struct {
    const char* range;
    const char* version;
    bool has;
  } kCases[] = {
      {"", "9.19.0", true},
      {"<9.20", "9.19.7", true},
      {"<9.20", "9.20.0", false},
      {"<=9.20", "9.20.3", true},
      {"<=9.20", "9.21.0", false},
      {">9.20", "9.20.3", false},
      {">9.20", "9.21.0", true},
      {">=9.20.1", "9.20.0", false},
      {"9.19", "9.19.4", true},
      {"=9.19", "9.20.0", false},
      {"=9.19.0", "9.19.1", false},
      {"9", "9.28.1", true},
      {">=9.12,<9.20", "9.8.0", false},
      {">=9.12, <9.20", "9.19.0", true},
  };
  for (const auto& c : kCases) {
    const auto range = CudnnRange::Parse(c.range);
    ASSERT_TRUE(range.ok()) << c.range << ": " << range.status();
    EXPECT_EQ(range->Has(CudnnVersion::Parse(c.version).value()), c.has)
        << c.range << " and " << c.version;
    EXPECT_EQ(*CudnnRange::Parse(range->ToText()), *range) << range->ToText();
  }
  for (const char* text : {"<", "9.x", "<9.20,", ">=9.20,<9.20", "<0", "9.1.2.3", "~9.2"}) {
    EXPECT_FALSE(CudnnRange::Parse(text).ok()) << text;
  }
}

TEST(BansTest, FindsTheBanOfACandidateAProblemAndAnEnvironment) {
  const CandidateId candidate = EngineConfig{47, {{2, 5}}};
  Ban ban = BanOf("eng47");
  const auto holds = [&](const std::string& problem, const std::string& environment) {
    return Only(ban).Find(candidate, KeyOf(problem, environment)) != nullptr;
  };
  EXPECT_TRUE(holds(kHalf, kH200) && holds(kGradient, kProfile));
  ban.cudnn = *CudnnRange::Parse("<9.20");
  EXPECT_TRUE(holds(kHalf, kH200));
  EXPECT_FALSE(holds(kHalf, kProfile));
  ban.cudnn = {};
  ban.gpu = *ReadGpuGlob("*A100");
  EXPECT_FALSE(holds(kHalf, kH200));
  EXPECT_TRUE(holds(kHalf, kProfile));  // a profile counts as its GPU
  ban.gpu = *ReadGpuGlob("NVIDIA H200");
  EXPECT_TRUE(holds(kHalf, kH200));
  ban.operation = Operation::kBwdData;
  EXPECT_FALSE(holds(kHalf, kH200));
  EXPECT_TRUE(holds(kGradient, kH200));
  ban.data_type = DataType::kF16;
  EXPECT_FALSE(holds(kGradient, kH200));
  ban.operation.reset();
  ban.layout = TensorLayout::kNhwc;
  EXPECT_TRUE(holds(kHalf, kH200));
  ban.layout = TensorLayout::kNchw;
  EXPECT_FALSE(holds(kHalf, kH200));
}

TEST(BansTest, ThoseThatCameWithConvtuneHoldWhereTheirSourcesSay) {
  const struct {
    int engine;
    const char* problem;
    const char* environment;
    const char* name;  // of the ban that holds; empty: none
  } kCases[] = {
      {5, "fwd,x=1x8x9x9,w=8x8x3x3,f16", "nvidia-a10g,cc=8.6,sms=80,cudnn=9.23.1,lib=full",
       "shipped/1"},
      {5, "fwd,x=1x8x9x9,w=8x8x3x3,f16", "nvidia-h200,cc=9.0,sms=132,cudnn=9.23.1,lib=full", ""},
      {5, "fwd,x=1x8x9x9,w=8x8x3x3,f16", "nvidia-a10g,cc=8.6,sms=80,cudnn=9.23.0,lib=full", ""},
      {5, "fwd,x=1x8x9x9,w=8x8x3x3,f16", "nvidia-a10g,cc=8.6,sms=80,cudnn=9.24.0,lib=full", ""},
      {5, "bwd_data,x=1x8x9x9,w=8x8x3x3,f16", "nvidia-a2,cc=8.6,sms=10,cudnn=9.23.1,lib=full", ""},
      {58, "fwd,x=1x8x9x9,w=8x8x3x3,f32",
       "nvidia-geforce-rtx-5090,cc=12.0,sms=170,cudnn=9.23.0,lib=full", "shipped/2"},
      {58, "fwd,x=1x8x9x9,w=8x8x3x3,f32", "nvidia-b200,cc=10.0,sms=148,cudnn=9.26.0,lib=full", ""},
      {58, "fwd,x=1x8x9x9,w=8x8x3x3,f32",
       "nvidia-geforce-rtx-5090,cc=12.0,sms=170,cudnn=9.22.9,lib=full", ""},
      {63, "bwd_data,x=1x8x9x9,w=8x8x3x3,f32",
       "profile:nvidia-geforce-rtx-5090,cc=12.0,sms=170,cudnn=9.28.0,lib=full", "shipped/3"},
      {63, "bwd_filter,x=1x8x9x9,w=8x8x3x3,f32",
       "nvidia-geforce-rtx-5090,cc=12.0,sms=170,cudnn=10.0.0,lib=full", "shipped/4"},
      {63, "fwd,x=1x8x9x9,w=8x8x3x3,f32",
       "nvidia-geforce-rtx-5090,cc=12.0,sms=170,cudnn=9.26.0,lib=full", ""},
      {23, "fwd,x=1x8x9x9x9,w=8x8x3x3x3,bf16", "nvidia-h200,cc=9.0,sms=132,cudnn=9.14.2,lib=full",
       "shipped/5"},
      {23, "fwd,x=1x8x9x9x9,w=8x8x3x3x3,bf16", "nvidia-h200,cc=9.0,sms=132,cudnn=9.15.0,lib=full",
       ""},
      {23, "fwd,x=1x8x9x9,w=8x8x3x3,bf16", "nvidia-h200,cc=9.0,sms=132,cudnn=9.14.2,lib=full", ""},
      {23, "bwd_data,x=1x8x9x9x9,w=8x8x3x3x3,f32", "nvidia-t4,cc=7.5,sms=40,cudnn=9.28.0,lib=full",
       "shipped/6"},
      {23, "bwd_data,x=1x8x9x9,w=8x8x3x3,f32", "nvidia-t4,cc=7.5,sms=40,cudnn=9.28.0,lib=full", ""},
  };
  std::vector<Bans::Shared> shipped;
  for (const Ban& ban : ShippedBans()) shipped.push_back(std::make_shared<const Ban>(ban));
  const Bans bans(shipped);
  for (const auto& c : kCases) {
    const Bans::Shared ban =
        bans.Find(EngineConfig{c.engine, {{2, 5}}}, KeyOf(c.problem, c.environment));
    EXPECT_EQ(ban == nullptr ? "" : ban->Name(), c.name)
        << c.engine << " " << c.problem << " " << c.environment;
  }
  std::set<std::string> tried;
  for (const auto& c : kCases) tried.insert(c.name);
  EXPECT_EQ(tried.size(), shipped.size() + 1);  // each, and none
}

TEST(BansTest, AGpuIsItsModelOrItsComputeCapability) {
  Ban ban = BanOf("eng47");
  for (const char* gpu : {"sm_90", "sm90", "SM 90", "sm_*", "*h200"}) {
    ban.gpu = *ReadGpuGlob(gpu);
    EXPECT_FALSE(Only(ban).Of(KeyOf(kHalf, kH200)).empty()) << gpu;
  }
  EXPECT_FALSE(ReadGpuGlob("9.0").ok());
  for (const char* gpu : {"sm_9", "*90", "sm_8*"}) {
    ban.gpu = *ReadGpuGlob(gpu);
    EXPECT_TRUE(Only(ban).Of(KeyOf(kHalf, kH200)).empty()) << gpu;
  }
}

TEST(BansTest, TheFirstThatWasMadeIsNamed) {
  Ban second = BanOf("graph:*");
  second.number = 4;
  const Bans bans(
      {std::make_shared<const Ban>(BanOf("eng47")), std::make_shared<const Ban>(second)});
  const TuningKey key = KeyOf(kHalf, kH200);
  EXPECT_EQ(bans.Find(EngineConfig{47, {}}, key)->Name(), "bans/3");
  EXPECT_EQ(bans.Find(EngineConfig{1, {}}, key)->Name(), "bans/4");
  EXPECT_EQ(bans.Find(LegacyAlgorithm{1, 2}, key), nullptr);
}

TEST(BansTest, AGlobOfManyStarsIsRefused) {
  EXPECT_FALSE(ReadGpuGlob("a*b*c*d*e*f").ok());
  EXPECT_FALSE(ReadGpuGlob("h200\n").ok());
  EXPECT_EQ(*ReadGpuGlob("NVIDIA **H2?0"), "nvidia-*h2?0");
}

TEST(BansTest, TheFleetsNumberIsNeverTakenForTheDaemons) {
  Ban ban = BanOf("eng1");
  ban.reason = "slow";
  EXPECT_EQ(ban.NameAndReason(), "bans/3 (slow)");
  ban.fleet_ban = 7;
  EXPECT_EQ(ban.Name(), "bans/3");
  EXPECT_EQ(ban.NameAndReason(), "bans/3 (fleet ban 7: slow)");
  ban.number = 0;
  EXPECT_EQ(ban.Name(), "fleet ban 7");
  EXPECT_EQ(ban.NameAndReason(), "fleet ban 7 (slow)");
}

TEST(BansTest, OneOfEachRuleAndSoManyAtMost) {
  const Ban known = BanOf("eng1");
  const Bans bans = Only(known).With(BanOf("eng2"));
  Ban same = BanOf("graph:eng1");
  same.fleet_ban = 9;
  EXPECT_EQ(bans.CheckIsNew(same, 10).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(bans.CheckIsNew(BanOf("eng3"), 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(bans.CheckIsNew(BanOf("eng3"), 3).ok());
  EXPECT_TRUE(bans.With(ShippedBans()).CheckIsNew(BanOf("eng3"), 3).ok());
}

TEST(BansTest, AnExpiryIsASecondAway) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  Ban ban = BanOf("eng1");
  EXPECT_TRUE(ban.CheckExpiry(now).ok());
  ban.expire_time = now + absl::Seconds(1);
  EXPECT_TRUE(ban.CheckExpiry(now).ok());
  ban.expire_time = now + absl::Milliseconds(999);
  EXPECT_EQ(ban.CheckExpiry(now).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace convtune
