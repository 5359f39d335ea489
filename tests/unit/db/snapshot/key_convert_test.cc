#include "db/snapshot/key_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "tests/unit/model/problem/random_problem.h"
#include "tests/unit/rule_cases.h"

namespace convtune::snapshot {
namespace {

using testing::HasSubstr;

ConvProblem Problem(std::string_view text) { return ConvProblem::Parse(text).value(); }

constexpr char kText[] = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";

TEST(ProblemKey, OfARandomProblemIsCanonicalAndGivesItBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const ConvProblem problem = ConvProblem::Create(RandomValidSpec(random)).value();
    const auto key = ToKey(problem);
    ASSERT_TRUE(key.ok()) << key.status();
    const auto back = ToProblem(*key);
    ASSERT_TRUE(back.ok()) << problem.ToText() << ": " << back.status();
    EXPECT_EQ(*back, problem);
    ProblemKey again = *key;
    ASSERT_TRUE(Canonicalize(&again)) << problem.ToText();
    EXPECT_EQ(memcmp(&again, &*key, sizeof again), 0) << problem.ToText();
  }
}

TEST(ProblemKey, IsTheOneOfTheTable) {
  for (const std::vector<std::string>& row : RuleCases("problem_keys.txt")) {
    const auto problem = ConvProblem::Parse(row[0]);
    if (!problem.ok()) {
      EXPECT_EQ(row[1], "refused") << row[0];
      continue;
    }
    const ProblemKey key = ToKey(*problem).value();
    EXPECT_EQ(absl::StrFormat("%d %016x", key.alignment, HashOf(key)), row[1]) << row[0];
  }
}

TEST(ProblemKey, StridesOfSizeOneDimensionsDoNotCount) {
  const ProblemKey key = ToKey(Problem("fwd,x=1x64x1x1,w=32x64x1x1,f32")).value();
  for (int i = 0; i < 100; ++i) {
    ProblemKey other = key;
    other.x_strides[0] = 7 + i;
    other.x_strides[2] = 3 + i;
    other.w_strides[3] = 9 + i;
    other.y_strides[0] = 11 + i;
    ASSERT_TRUE(Canonicalize(&other));
    EXPECT_EQ(memcmp(&other, &key, sizeof key), 0);
  }
}

TEST(ProblemKey, HashIgnoresAlignmentAlone) {
  const ProblemKey key = ToKey(Problem(kText)).value();
  ProblemKey other = key;
  other.alignment = 4;
  EXPECT_EQ(HashOf(other), HashOf(key));
  EXPECT_TRUE(SameButAlignment(other, key));
  auto* bytes = reinterpret_cast<unsigned char*>(&other);
  for (size_t i = 0; i < sizeof other; ++i) {
    if (i == offsetof(ProblemKey, alignment) || i == offsetof(ProblemKey, alignment) + 1) {
      continue;
    }
    other = key;
    bytes[i] ^= 0x40;
    EXPECT_NE(HashOf(other), HashOf(key)) << i;
    EXPECT_FALSE(SameButAlignment(other, key)) << i;
  }
}

TEST(ProblemKey, RejectsWhatIsOutOfTheModelsRange) {
  const ProblemKey key = ToKey(Problem(kText)).value();
  const auto rejected = [&](auto change) {
    ProblemKey bad = key;
    change(&bad);
    return !Canonicalize(&bad);
  };
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->x_dims[0] = 0; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->x_dims[0] = kMaxDim + 1; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->w_dims[2] = 60; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->groups = 3; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->strides[1] = 0; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->pad_low[1] = -1; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->spatial_rank = 1; }));
  EXPECT_TRUE(rejected([](ProblemKey* k) { k->y_strides[1] = -4; }));
  EXPECT_FALSE(rejected([](ProblemKey*) {}));
}

TEST(ProblemKey, FromOutsideMustBeAProblemsOwn) {
  const ProblemKey key = ToKey(Problem(kText)).value();
  const auto message = [&](auto change) {
    ProblemKey bad = key;
    change(&bad);
    return std::string(ToProblem(bad).status().message());
  };
  EXPECT_THAT(message([](ProblemKey* k) { k->operation = 9; }), HasSubstr("operation"));
  EXPECT_THAT(message([](ProblemKey* k) { k->data_type = 200; }),
              HasSubstr("data_type: unknown enum number 200"));
  EXPECT_THAT(message([](ProblemKey* k) { k->mode = 0; }), HasSubstr("canonical"));
  EXPECT_THAT(message([](ProblemKey* k) { k->spatial_rank = 77; }), HasSubstr("spatial"));
  EXPECT_THAT(message([](ProblemKey* k) { k->epilogue_count = 99; }),
              HasSubstr("0 to 4 operations"));
  EXPECT_THAT(message([](ProblemKey* k) { k->epilogue_count = 1; }),
              HasSubstr("epilogue: must be"));
  EXPECT_THAT(message([](ProblemKey* k) { k->epilogue[0] = 1; }), HasSubstr("canonical"));
  EXPECT_THAT(message([](ProblemKey* k) { k->intermediate_type = 2; }), HasSubstr("canonical"));
  EXPECT_THAT(message([](ProblemKey* k) { k->mode = 3; }),
              HasSubstr("mode: unknown enum number 3"));
  EXPECT_THAT(message([](ProblemKey* k) { k->pad_low[2] = 5; }), HasSubstr("canonical"));
  EXPECT_THAT(message([](ProblemKey* k) { k->alignment = 3; }), HasSubstr("alignment_bytes"));
}

TEST(EnvironmentKey, GivesTheEnvironmentBack) {
  for (const char* text : {"nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full",
                           "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.8.1,lib=graph_jit_only",
                           "nvidia-h100,cc=9.0,sms=16,mig=1g.10gb,cudnn=9.10.2,lib=unknown"}) {
    const Environment environment = Environment::Parse(text).value();
    const auto back = ToEnvironment(ToKey(environment).value());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->ToText(), text);
  }
}

TEST(EnvironmentKey, SlugIsTheModels) {
  for (const char* name :
       {"NVIDIA H200", "  NVIDIA GeForce RTX 4090  ", "a", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}) {
    EnvironmentKey key = {};
    ASSERT_TRUE(SetModelSlug(name, strlen(name), &key));
    EXPECT_EQ(key.gpu_model, Slug(name));
  }
  EnvironmentKey key = {};
  EXPECT_FALSE(SetModelSlug("--", 2, &key));
  EXPECT_FALSE(SetModelSlug(std::string(64, 'a').data(), 64, &key));
}

TEST(EnvironmentKey, FromOutsideMustBeCanonicalAndPadded) {
  const EnvironmentKey key =
      ToKey(Environment::Parse("h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full").value()).value();
  const auto taken = [&](auto change) {
    EnvironmentKey changed = key;
    change(&changed);
    return ToEnvironment(changed).ok();
  };
  EXPECT_TRUE(taken([](EnvironmentKey*) {}));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->gpu_model[0] = 'H'; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->cudnn_version += 100000000; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->library = 3; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->profile = 2; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->reserved = 1; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->sm_count = 0xFFFFFFFF; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { k->gpu_model[60] = 'x'; }));
  EXPECT_FALSE(taken([](EnvironmentKey* k) { memset(k->gpu_model, 'a', sizeof k->gpu_model); }));
}

}  // namespace
}  // namespace convtune::snapshot
