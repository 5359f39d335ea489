#include "proto/model/environment.h"

#include <gtest/gtest.h>

#include "convtune/v1/record.pb.h"

namespace convtune {
namespace {

Environment H200() {
  Environment environment;
  environment.gpu_model = "NVIDIA H200";
  environment.cc_major = 9;
  environment.sm_count = 132;
  environment.cudnn = {9, 19, 0};
  environment.library = LibraryConfiguration::kFull;
  return environment;
}

TEST(EnvironmentTest, TextOfACard) {
  EXPECT_EQ(H200().ToText(), "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  EXPECT_EQ(H200().Name(), "nvidia-h200");
}

TEST(EnvironmentTest, TextOfAProfileUnderMig) {
  Environment environment = H200();
  environment.profile = true;
  environment.mig_profile = "1g.18gb";
  EXPECT_EQ(environment.ToText(),
            "profile:nvidia-h200,cc=9.0,sms=132,mig=1g.18gb,cudnn=9.19.0,lib=full");
  EXPECT_EQ(environment.Name(), "profile:nvidia-h200-1g.18gb");
}

TEST(EnvironmentTest, ReadsBackWhatItPrints) {
  Environment environment = H200();
  environment.mig_profile = "1g.10gb+me";
  const absl::StatusOr<Environment> parsed = Environment::Parse(environment.ToText());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ToText(), environment.ToText());
  EXPECT_EQ(parsed->gpu_model, "nvidia-h200");
  environment.gpu_model = "nvidia-h200";
  EXPECT_EQ(*parsed, environment);
}

TEST(EnvironmentTest, AModelThatBeginsWithSimulatedIsNoCard) {
  Environment environment;
  environment.gpu_model = "SIMULATED H200";
  EXPECT_TRUE(environment.simulated());
  EXPECT_TRUE(Environment::Parse(environment.ToText())->simulated());
  EXPECT_TRUE(IsSimulated(environment.Name()));
  for (const char* const card : {"NVIDIA H200", "SIMULATEDH200", "NVIDIA SIMULATED H200"}) {
    environment.gpu_model = card;
    EXPECT_FALSE(environment.simulated()) << card;
    EXPECT_FALSE(IsSimulated(environment.ToText())) << card;
  }
}

TEST(EnvironmentTest, SlugsAreLowerCaseWithSingleDashes) {
  EXPECT_EQ(Slug("NVIDIA GeForce RTX 4090"), "nvidia-geforce-rtx-4090");
  EXPECT_EQ(Slug("Tesla V100-SXM2-16GB"), "tesla-v100-sxm2-16gb");
  EXPECT_EQ(Slug("  A (B) "), "a-b");
  EXPECT_EQ(Slug(Slug("NVIDIA  H100 80GB HBM3")), "nvidia-h100-80gb-hbm3");
}

TEST(EnvironmentTest, MalformedTextsAreRefusedByField) {
  const struct {
    const char* text;
    const char* message;
  } kInputs[] = {
      {"", "gpu_model"},
      {"NVIDIA H200,cc=9.0,sms=1,cudnn=9.1.0,lib=full", "gpu_model"},
      {"h200,sms=1,cudnn=9.1.0,lib=full", "cc: required"},
      {"h200,cc=9.0,cudnn=9.1.0,lib=full", "sms: required"},
      {"h200,cc=9.0,sms=1,lib=full", "cudnn: required"},
      {"h200,cc=9.0,sms=1,cudnn=9.1.0", "lib: required"},
      {"h200,cc=9,sms=1,cudnn=9.1.0,lib=full", "cc: must be 2 numbers"},
      {"h200,cc=9.0,sms=x,cudnn=9.1.0,lib=full", "sms: \"x\" is not a whole number"},
      {"h200,cc=9.0,sms=-1,cudnn=9.1.0,lib=full", "sms: must be from 0"},
      {"h200,cc=9.0,sms=1,cudnn=9.1,lib=full", "cudnn: must be 3 numbers"},
      {"h200,cc=9.0,sms=1,cudnn=9.1.0,lib=half", "lib: must be full"},
      {"h200,cc=9.0,sms=1,mig=,cudnn=9.1.0,lib=full", "mig:"},
      {"h200,cc=9.0,cc=9.0,sms=1,cudnn=9.1.0,lib=full", "cc: given twice"},
      {"h200,cc=9.0,sms=1,cudnn=9.1.0,lib=full,age=3", "age: unknown token"},
  };
  for (const auto& input : kInputs) {
    const absl::Status status = Environment::Parse(input.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << input.text;
    EXPECT_NE(status.ToString().find(input.message), std::string::npos)
        << input.text << ": " << status;
  }
}

std::optional<Environment> Read(const v1::Environment& message, std::string* why) {
  std::vector<Violation> violations;
  std::optional<Environment> read = ReadProgram(message, &violations);
  *why = ToString(violations);
  return read;
}

TEST(ProgramTest, OnlyWhatIsKnownOfItIsCompared) {
  EXPECT_TRUE(Fits(Environment(), H200()));
  EXPECT_EQ(KnownText(Environment()), "");
  std::string why;
  v1::Environment message;
  message.set_cudnn_version("9.19.0");
  EXPECT_TRUE(Fits(Read(message, &why).value(), H200()));
  message.set_gpu_model("NVIDIA  H200");
  message.set_compute_capability("9.0");
  message.set_sm_count(132);
  message.set_library_configuration(v1::LIBRARY_CONFIGURATION_FULL);
  const Environment all = Read(message, &why).value();
  EXPECT_TRUE(Fits(all, H200()));
  EXPECT_EQ(KnownText(all), H200().ToText());
}

TEST(ProgramTest, EveryFieldTellsAnotherEnvironment) {
  const auto fits = [](const auto& change) {
    Environment program = H200();
    program.gpu_model = "nvidia-h200";
    change(&program);
    return Fits(program, H200());
  };
  EXPECT_TRUE(fits([](Environment*) {}));
  EXPECT_FALSE(fits([](Environment* e) { e->gpu_model = "NVIDIA H100"; }));
  EXPECT_FALSE(fits([](Environment* e) { e->profile = true; }));
  EXPECT_FALSE(fits([](Environment* e) { e->cc_minor = 3; }));
  EXPECT_FALSE(fits([](Environment* e) { e->sm_count = 16; }));
  EXPECT_FALSE(fits([](Environment* e) { e->mig_profile = "1g.18gb"; }));
  EXPECT_FALSE(fits([](Environment* e) { e->cudnn.patch = 1; }));
  EXPECT_FALSE(fits([](Environment* e) { e->library = LibraryConfiguration::kGraphJitOnly; }));
  // A profile is one only where the model is said.
  Environment program;
  program.profile = true;
  EXPECT_TRUE(Fits(program, H200()));
}

TEST(ProgramTest, MalformedTextsAreRefusedByField) {
  v1::Environment message;
  message.set_gpu_model("--");
  message.set_compute_capability("9");
  message.set_sm_count(-1);
  message.set_mig_profile("1G");
  message.set_cudnn_version("91900");
  std::string why;
  EXPECT_FALSE(Read(message, &why).has_value());
  EXPECT_EQ(why,
            "program.gpu_model: must have a letter or a digit, is \"--\"; "
            "program.compute_capability: must be 2 numbers separated by '.', is \"9\"; "
            "program.sm_count: must be from 0 to 2^31-1, is -1; "
            "program.mig_profile: \"1G\" is not a MIG profile such as 1g.18gb; "
            "program.cudnn_version: must be 3 numbers separated by '.', is \"91900\"");
}

}  // namespace
}  // namespace convtune
