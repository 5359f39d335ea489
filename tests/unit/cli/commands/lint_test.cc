#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "client/cli/calls/candidate_list.h"
#include "client/cli/commands/lint/lint.h"
#include "proto/convert/problem_list.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

// What is said of a candidate; the rest is usual.
struct Listed {
  bool tensor_cores = true;
  int64_t workspace = 0;
  bool deterministic = true;
  bool compiled = false;
  bool last_resort = false;
  v1::CandidateStatus status = v1::CANDIDATE_STATUS_FINALIZED;
};

// Knows of the lists that a test gives it.
class LintTest : public testing::Test {
 protected:
  void Know(const std::string& problem, const std::vector<Listed>& candidates) {
    v1::Tuning& tuning = input_.known[Problem(problem).ToText()] = {};
    tuning.set_problem_text(Problem(problem).ToText());
    for (const Listed& listed : candidates) {
      v1::Candidate* candidate = tuning.add_candidates();
      const int number = tuning.candidates_size();
      candidate->mutable_engine_config()->set_engine_index(number);
      candidate->set_text("graph:eng" + std::to_string(number));
      candidate->set_heuristic_rank(number - 1);
      (listed.last_resort ? candidate->set_fallback_place(number)
                          : candidate->set_mode_a_place(number));
      if (listed.tensor_cores) candidate->add_numerical_notes(v1::NUMERICAL_NOTE_TENSOR_CORE);
      if (listed.compiled) {
        candidate->add_behavior_notes(v1::BEHAVIOR_NOTE_RUNTIME_COMPILATION);
      }
      candidate->set_deterministic(listed.deterministic);
      candidate->set_workspace_bytes(listed.workspace);
      candidate->set_status(listed.status);
    }
  }

  std::vector<lint::LintFinding> Lint(const std::string& problem) const {
    return lint::FindingsOf({{Problem(problem), 3, "list:1"}}, input_);
  }

  // The only finding.
  lint::LintFinding Only(const std::string& problem) const {
    const auto findings = Lint(problem);
    EXPECT_THAT(findings, SizeIs(1));
    return findings.empty() ? lint::LintFinding() : findings[0];
  }

  lint::LintInput input_;
};

constexpr char kPlain[] = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,f16";
constexpr char kThree[] = "fwd,x=8x3x28x28,w=64x3x3x3,pad=1,nhwc,f16";
constexpr char kEight[] = "fwd,x=8x8x28x28,w=64x8x3x3,pad=1,nhwc,f16";

TEST_F(LintTest, AConvolutionWithAllThatItCouldHaveHasNoFinding) {
  Know(kPlain, {{}, {.workspace = 100}});
  EXPECT_THAT(Lint(kPlain), IsEmpty());
}

TEST_F(LintTest, PaddedChannelsThatHaveTensorCoresAreProposedWithBothLists) {
  Know(kThree, {{.tensor_cores = false}, {.tensor_cores = false}});
  Know(kEight, {{.tensor_cores = false}, {.workspace = 64}, {}});
  const auto findings = Lint(kThree);
  ASSERT_THAT(findings, SizeIs(1));
  const lint::LintFinding& finding = findings[0];
  EXPECT_EQ(finding.kind, "tensor-cores");
  EXPECT_EQ(finding.severity, lint::LintSeverity::kNotice);  // 2.67 times the arithmetic
  EXPECT_EQ(finding.message,
            "none of 2 candidates runs on tensor cores; with 3 input channels padded to 8: 2 of 3, "
            "one with no workspace");
  EXPECT_EQ(finding.proposal, Problem(kEight).ToText());
  EXPECT_EQ(finding.count, 3);
  EXPECT_EQ(finding.share, 1);
  ASSERT_THAT(finding.proof, SizeIs(2));
  EXPECT_EQ(finding.proof[0].words,
            "2 candidates, 0 on tensor cores, first graph:eng1 with no workspace");
  EXPECT_THAT(finding.proof[1].form, HasSubstr("2.67 times the arithmetic"));
  EXPECT_EQ(
      finding.proof[1].words,
      "3 candidates, 2 on tensor cores, first graph:eng1 with no workspace; least workspace on "
      "tensor cores: graph:eng3 with no workspace");
}

TEST_F(LintTest, AFormWithLittleMoreArithmeticIsAWarning) {
  const std::string odd = "fwd,x=8x60x28x28,w=64x60x3x3,pad=1,nhwc,f16";
  Know(odd, {{.tensor_cores = false}});
  Know(kPlain, {{}});
  EXPECT_EQ(Only(odd).severity, lint::LintSeverity::kWarning);
}

TEST_F(LintTest, AFormWithoutTensorCoresIsNotProposed) {
  Know(kThree, {{.tensor_cores = false}});
  Know(kEight, {{.tensor_cores = false}});
  EXPECT_EQ(Only(kThree).proposal, "");
  EXPECT_EQ(Only(kThree).severity, lint::LintSeverity::kNotice);
  EXPECT_THAT(Only(kThree).message, HasSubstr("nor does one of any form"));
}

TEST_F(LintTest, CopiesForTensorCoresAreHeldAgainstAFormThatDoesWithout) {
  const std::string odd = "fwd,x=8x63x28x28,w=64x63x3x3,pad=1,nhwc,f16";
  constexpr int64_t kCopy = 8 * 63 * 28 * 28 * 2;
  Know(odd, {{.tensor_cores = false}, {.workspace = kCopy}});
  Know(kPlain, {{.workspace = kCopy}});
  EXPECT_THAT(Lint(odd), IsEmpty()) << "padded it has copies too";
  Know(kPlain, {{.workspace = kCopy}, {.workspace = 7}});
  EXPECT_EQ(Only(odd).kind, "tensor-cores");
  EXPECT_EQ(Only(odd).severity, lint::LintSeverity::kWarning);
  EXPECT_EQ(Only(odd).message,
            "all candidates on tensor cores (1 of 2) need at least 771.8 KiB of workspace; with 63 "
            "input channels padded to 64: 2 of 2, one with 7 B of workspace");
  EXPECT_EQ(Only(odd).proposal, Problem(kPlain).ToText());
  // Where the other layout does without, it is the layout's finding alone.
  Know(lint::OtherLayout(Problem(odd))->ToText(), {{}});
  EXPECT_EQ(Only(odd).kind, "layout");
}

TEST_F(LintTest, WithoutTf32AnF32ConvolutionHasNoTensorCores) {
  const std::string wide = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,f32";
  Know(wide, {{}, {.tensor_cores = false}});
  Know(kPlain, {{}});
  EXPECT_THAT(Lint(wide), IsEmpty());
  input_.no_tf32 = true;
  EXPECT_EQ(Only(wide).proof[0].words,
            "1 candidate, 0 on tensor cores, first graph:eng2 with no workspace");
  EXPECT_EQ(Only(wide).proposal, Problem(kPlain).ToText());
}

TEST_F(LintTest, CandidatesThatCannotBeBuiltProveNothing) {
  Know(kThree, {{.status = v1::CANDIDATE_STATUS_UNSUPPORTED}, {.tensor_cores = false}});
  EXPECT_THAT(Lint(kThree), SizeIs(1));
}

TEST_F(LintTest, ALayoutThatNeedsCopiesIsHeldAgainstTheOther) {
  const std::string nchw = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nchw,f16";
  constexpr int64_t kActivation = 8 * 64 * 28 * 28 * 2;
  // The lean one is not on tensor cores.
  Know(nchw, {{.workspace = 2 * kActivation}, {.workspace = kActivation}, {.tensor_cores = false}});
  Know(kPlain, {{.workspace = 7}, {}});
  const auto findings = Lint(nchw);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, "layout");
  EXPECT_EQ(findings[0].severity, lint::LintSeverity::kWarning);
  EXPECT_EQ(
      findings[0].message,
      "each candidate on tensor cores needs at least 784 KiB of workspace; in nhwc one takes no "
      "workspace");
  EXPECT_EQ(findings[0].proposal, Problem(kPlain).ToText());
  EXPECT_THAT(findings[0].proof[0].words,
              HasSubstr("least workspace on tensor cores: graph:eng2 with 784 KiB"));
  EXPECT_THAT(findings[0].proof[1].words,
              HasSubstr("least workspace on tensor cores: graph:eng2 with no"));
  EXPECT_THAT(Lint(kPlain), IsEmpty());
}

TEST_F(LintTest, AWorkspaceBelowACopyIsNoFinding) {
  const std::string nchw = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nchw,f16";
  Know(nchw, {{.workspace = 8 * 64 * 28 * 28 * 2 - 1}});
  Know(kPlain, {{}});
  EXPECT_THAT(Lint(nchw), IsEmpty());
}

TEST_F(LintTest, AWorkspaceBeyondTheLimitIsAnErrorWhereNothingKeepsIt) {
  Know(kPlain, {{.workspace = 1001}, {.workspace = 2000}, {.workspace = 1000}});
  EXPECT_THAT(Lint(kPlain), IsEmpty());
  input_.max_workspace = 1000;
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kWarning);
  EXPECT_THAT(Only(kPlain).proof.back().words, HasSubstr("graph:eng3 with 1000 B"));
  input_.max_workspace = 999;
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kError);
  EXPECT_EQ(Only(kPlain).kind, "workspace");
}

TEST_F(LintTest, AWorkspaceALittleBeyondTheLimitIsNamedInBytes) {
  Know(kPlain, {{.workspace = (int64_t{1} << 30) + 5}, {}});
  EXPECT_EQ(Only(kPlain).message,
            "cuDNN's first choice needs 1073741829 B of workspace, more than 1073741824 B");
}

TEST_F(LintTest, OneDeterministicCandidateIsEnough) {
  Know(kPlain, {{.deterministic = false}, {}});
  EXPECT_THAT(Lint(kPlain), IsEmpty());
  Know(kPlain, {{.deterministic = false}, {.deterministic = false}});
  EXPECT_EQ(Only(kPlain).kind, "nondeterministic");
}

TEST_F(LintTest, AFirstChoiceThatIsCompiledIsNoticed) {
  Know(kPlain, {{}, {.compiled = true}});
  EXPECT_THAT(Lint(kPlain), IsEmpty());
  Know(kPlain, {{.compiled = true}, {}});
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kNotice);
  EXPECT_THAT(Only(kPlain).proof.back().words, HasSubstr("graph:eng2"));
  Know(kPlain, {{.compiled = true}});
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kWarning);
}

TEST_F(LintTest, EnginesOfLastResortAreAnError) {
  Know(kPlain, {{.last_resort = true}, {}});
  EXPECT_THAT(Lint(kPlain), IsEmpty());
  Know(kPlain, {{.status = v1::CANDIDATE_STATUS_UNSUPPORTED}, {.last_resort = true}});
  EXPECT_EQ(Only(kPlain).kind, "last-resort");
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kError);
}

TEST_F(LintTest, NothingThatCanBeBuiltIsAnError) {
  Know(kPlain, {{.status = v1::CANDIDATE_STATUS_UNSUPPORTED}});
  EXPECT_EQ(Only(kPlain).message, "cuDNN lists nothing for it that can be built");
  EXPECT_EQ(Only(kPlain).kind, "no-candidate");
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kError);
}

TEST_F(LintTest, AListThatIsMissingIsAnErrorWithItsReason) {
  EXPECT_EQ(Only(kPlain).severity, lint::LintSeverity::kError);
  EXPECT_THAT(Only(kPlain).message, HasSubstr("no list of its candidates: the daemon keeps"));
  input_.failures[Problem(kPlain).ToText()] = "the worker died: signal 11";
  EXPECT_EQ(Only(kPlain).message, "there is no list of its candidates: the worker died: signal 11");
}

TEST_F(LintTest, CandidatesOnTensorCoresAloneAreNoneWithoutTf32) {
  const std::string wide = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,f32";
  Know(wide, {{}, {}});
  input_.no_tf32 = true;
  EXPECT_EQ(Only(wide).kind, "no-candidate");
  EXPECT_EQ(Only(wide).message, "cuDNN lists nothing for it without tensor cores");
}

TEST_F(LintTest, WhatAProgramSettledOnIsNoList) {
  Know(kThree, {{.tensor_cores = false, .deterministic = false}});
  input_.known.begin()->second.add_incomplete_reasons(v1::INCOMPLETE_REASON_OBSERVED);
  EXPECT_THAT(Lint(kThree), IsEmpty());
}

TEST_F(LintTest, TheWorstComesFirstThenTheMostArithmeticAndKindsCanBeIgnored) {
  const std::string small = "fwd,x=1x64x28x28,w=64x64x3x3,pad=1,nhwc,f16";
  const std::string missing = "fwd,x=1x64x7x7,w=64x64x3x3,pad=1,nhwc,f16";
  for (const char* problem : {small.c_str(), kPlain}) {
    Know(problem, {{.deterministic = false, .compiled = true}});
  }
  const std::vector<ProblemRow> rows = {
      {Problem(small), 1, "a:1"}, {Problem(missing), 1, "a:2"}, {Problem(kPlain), 1, "a:3"}};
  std::vector<std::string> order;
  for (const lint::LintFinding& finding : lint::FindingsOf(rows, input_)) {
    order.push_back(finding.source + " " + finding.kind);
  }
  EXPECT_THAT(order, ElementsAre("a:2 no-candidate", "a:3 nondeterministic", "a:3 compiled",
                                 "a:1 nondeterministic", "a:1 compiled"));
  input_.ignored = {"compiled", "no-candidate"};
  EXPECT_THAT(lint::FindingsOf(rows, input_), SizeIs(2));
}

TEST_F(LintTest, FormsAreAskedForWhereTheirProofIsMissing) {
  Know(kThree, {{.tensor_cores = false}});
  Know(kPlain, {{}});
  const std::vector<ProblemRow> rows = {{Problem(kThree), 1, "a:1"}, {Problem(kPlain), 1, "a:2"}};
  EXPECT_THAT(lint::ProblemsToList(rows, {}), SizeIs(2));  // other layouts
  std::vector<std::string> asked;
  for (const ProblemRow& row : lint::ProblemsToList(rows, input_)) {
    asked.push_back(row.problem.ToText());
  }
  EXPECT_THAT(asked,
              ElementsAre(lint::OtherLayout(Problem(kThree))->ToText(), Problem(kEight).ToText(),
                          lint::OtherLayout(Problem(kPlain))->ToText()));
}

TEST(FormsTest, GroupsAreMergedUntilTheirChannelsFill) {
  const auto forms =
      lint::TensorCoreForms(Problem("fwd,x=8x32x28x28,w=32x1x3x3,pad=1,groups=32,nhwc,f16"));
  // Padding each group's one channel would be 64 times the arithmetic.
  ASSERT_THAT(forms, SizeIs(2));
  EXPECT_EQ(forms[0].how, "in nchw");
  EXPECT_EQ(forms[0].work, 1);
  EXPECT_EQ(forms[1].problem, Problem("fwd,x=8x32x28x28,w=32x8x3x3,pad=1,groups=4,nhwc,f16"));
  EXPECT_EQ(forms[1].work, 8);
  EXPECT_EQ(forms[1].how, "with every 8 groups merged into one");
}

TEST(FormsTest, PaddedChannelsAreNamedWithTheirNumbers) {
  const auto how = [](const std::string& text) {
    const std::vector<lint::Form> forms = lint::TensorCoreForms(Problem(text));
    return forms.empty() ? "" : forms.back().how;
  };
  EXPECT_EQ(how("fwd,x=8x12x28x28,w=20x12x3x3,nhwc,f16"),
            "with 12 input channels padded to 16 and 20 output channels to 24");
  EXPECT_EQ(how("fwd,x=8x2x28x28,w=16x1x3x3,groups=2,nhwc,f16"),
            "with 1 input channel padded to 8 in each group");
}

TEST_F(LintTest, AMatrixProductWithALeanFirstChoiceOnTensorCoresIsANotice) {
  const std::string patches = "fwd,x=8x3x224x224,w=96x3x4x4,stride=4,nhwc,f16";
  Know(patches, {{}});
  EXPECT_EQ(Only(patches).severity, lint::LintSeverity::kNotice);
  Know(patches, {{.workspace = int64_t{1} << 30}, {}});
  EXPECT_EQ(Only(patches).kind, "matrix-product");
  EXPECT_EQ(Only(patches).severity, lint::LintSeverity::kWarning);
}

TEST_F(LintTest, TextEndsWithASumOfEachKindAndShowsTheProposedFormAlone) {
  Know(kThree, {{.tensor_cores = false}});
  Know(kEight, {{}});
  const std::string nchw = lint::OtherLayout(Problem(kThree))->ToText();
  Know(nchw, {{.tensor_cores = false}});
  std::vector<lint::LintFinding> findings = lint::FindingsOf({{Problem(kThree), 3, "a:1"}}, input_);
  EXPECT_THAT(findings[0].proof, SizeIs(3));
  const std::string alone = lint::LintText(findings, {}, 0, false);
  EXPECT_THAT(alone, Not(HasSubstr("in nchw, 1.00")));
  EXPECT_THAT(alone, HasSubstr("padded to 8, 2.67 times the arithmetic: fwd,x=8x8x28x28"));
  EXPECT_THAT(alone, Not(HasSubstr("FINDING")));  // one finding has no sum
  findings.push_back(findings[0]);
  findings[1].share = 0.25;
  EXPECT_THAT(lint::LintText(findings, {}, 0, false),
              HasSubstr("FINDING       SEVERITY  CONVOLUTIONS  RUNS  ARITHMETIC\n"
                        "tensor-cores  notice               2     6      125.0%\n"));
}

TEST(FormsTest, EightBitTypesArePaddedTo16AndF64NotAtAll) {
  const auto forms = lint::TensorCoreForms(Problem("fwd,x=8x24x28x28,w=24x24x1x1,nhwc,i8"));
  ASSERT_THAT(forms, SizeIs(2));
  EXPECT_EQ(forms[1].problem.x_dims()[1], 32);
  EXPECT_EQ(forms[1].problem.output_type(), DataType::kI32);
  EXPECT_THAT(lint::TensorCoreForms(Problem("fwd,x=8x3x28x28,w=24x3x1x1,f64")), IsEmpty());
}

TEST(FormsTest, AnNchwConvolutionHasEachFormInNhwcToo) {
  std::vector<std::string> how;
  for (const lint::Form& form :
       lint::TensorCoreForms(Problem("fwd,x=8x63x28x28,w=64x63x3x3,pad=1,f16"))) {
    how.push_back(form.how);
  }
  EXPECT_THAT(how, ElementsAre("in nhwc", "with 63 input channels padded to 64",
                               "with 63 input channels padded to 64, in nhwc"));
}

TEST(FormsTest, AnEpilogueStaysInEveryForm) {
  const ConvProblem problem =
      Problem("fwd,x=8x3x28x28,w=24x3x3x3,pad=1,nhwc,f16,mid=f32,epilogue=bias+relu");
  ASSERT_THAT(lint::TensorCoreForms(problem), SizeIs(2));
  for (const lint::Form& form : lint::TensorCoreForms(problem)) {
    EXPECT_EQ(form.problem.epilogue(), problem.epilogue());
  }
  EXPECT_EQ(lint::OtherLayout(problem)->epilogue(), problem.epilogue());
}

TEST(MatrixProductTest, PatchesAreOne) {
  const auto product =
      lint::AsMatrixProduct(Problem("fwd,x=8x3x224x224,w=768x3x16x16,stride=16,f16"));
  ASSERT_TRUE(product);
  EXPECT_EQ(product->m, 8 * 14 * 14);
  EXPECT_EQ(product->k, 768);
  EXPECT_EQ(product->n, 768);
  EXPECT_EQ(product->linear,
            "F.linear(x.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5).flatten(3), "
            "w.flatten(1), b).permute(0, 3, 1, 2)");
}

TEST(MatrixProductTest, AKernelOverAllOfTheInputIsOne) {
  for (const char* text : {"fwd,x=8x512x7x7,w=4096x512x7x7,f16", "fwd,x=8x512x1x1,w=64x512x1x1"}) {
    ASSERT_TRUE(lint::AsMatrixProduct(Problem(text))) << text;
    // With the convolution's shape: one pixel in each dimension.
    EXPECT_EQ(lint::AsMatrixProduct(Problem(text))->linear,
              "F.linear(x.flatten(1), w.flatten(1), b)[:, :, None, None]");
  }
}

TEST(MatrixProductTest, WindowsInThreeDimensionsAreOne) {
  const auto product =
      lint::AsMatrixProduct(Problem("fwd,x=2x3x16x224x224,w=96x3x2x4x4,stride=2x4x4,f16"));
  ASSERT_TRUE(product);
  EXPECT_THAT(product->linear, HasSubstr(".permute(0, 2, 3, 4, 1, 5, 6, 7).flatten(4)"));
}

TEST(MatrixProductTest, OthersAreNone) {
  for (const char* text :
       {"fwd,x=8x64x28x28,w=64x64x1x1", "fwd,x=8x64x28x28,w=64x64x1x1,stride=2",
        "fwd,x=8x64x28x28,w=64x64x2x2,stride=2,pad=1", "fwd,x=8x64x28x28,w=64x64x3x3,stride=2",
        "fwd,x=8x64x28x28,w=64x32x2x2,stride=2,groups=2",
        "fwd,x=8x64x28x28,w=64x64x2x2,stride=2,dilation=2",
        "fwd,x=8x64x28x28,w=64x64x2x2,stride=2,mode=conv",
        "bwd_data,x=8x64x28x28,w=64x64x2x2,stride=2", "bwd_filter,x=8x512x7x7,w=4096x512x7x7"}) {
    EXPECT_FALSE(lint::AsMatrixProduct(Problem(text))) << text;
  }
}

TEST_F(LintTest, ASummaryCountsByFirstChoice) {
  Know(kPlain, {{.workspace = 64, .compiled = true}, {.tensor_cores = false}});
  Know(kThree, {{.tensor_cores = false, .deterministic = false}});
  const output::Fields summary =
      lint::SummaryFields({{Problem(kPlain), 1, "a:1"},
                           {Problem(kThree), 1, "a:2"},
                           {Problem("fwd,x=8x64x7x7,w=64x64x3x3,f16"), 1, "a:3"}},
                          input_);
  EXPECT_THAT(output::JsonRow(summary).text,
              AllOf(HasSubstr(R"({"batch":"8","dtype":"f16","problems":3,"withoutCandidate":1,)"),
                    HasSubstr(R"("onTensorCores":0.9)"),
                    HasSubstr(R"(,"nondeterministic":1,"compiled":1,"mostWorkspaceBytes":64})")));
}

TEST_F(LintTest, AnnotationsNameFileAndLineAndAreEscaped) {
  Know(kThree, {{.tensor_cores = false}});
  std::vector<lint::LintFinding> findings =
      lint::FindingsOf({{Problem(kThree), 1, "my,list:x.csv:17"}}, input_);
  findings[0].message = "50% of\nit";
  EXPECT_EQ(lint::LintGithub(findings),
            "::notice file=my%2Clist%3Ax.csv,line=17,title=convtune tensor-cores::"
            "fwd,x=8x3x28x28,w=64x3x3x3,pad=1,nhwc,f16 (1 run, 100.0%25 of the arithmetic): 50%25 "
            "of%0Ait\n");
  findings[0].source = "model.onnx:3";
  EXPECT_THAT(lint::LintGithub(findings), HasSubstr("::notice file=model.onnx,title="));
  findings[0].source = "stdin:3";
  EXPECT_THAT(lint::LintGithub(findings), HasSubstr("::notice title="));
}

class LintCommandTest : public DaemonTest {
 protected:
  LintCommandTest() {
    v1::Candidate* candidate = daemon_.tuning.add_candidates();
    candidate->mutable_engine_config()->set_engine_index(1);
    candidate->set_text("graph:eng1");
    candidate->set_status(v1::CANDIDATE_STATUS_FINALIZED);
    candidate->add_numerical_notes(v1::NUMERICAL_NOTE_TENSOR_CORE);
    daemon_.tuning.mutable_environment()->set_name("profile:nvidia-h200");
    std::ofstream(Path()) << kPlain << "\n";
  }

  std::string Path() const { return daemon_.folder() + "/list.txt"; }
  RunResult Lint(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"lint", Path()});
    return Run(arguments);
  }
};

TEST_F(LintCommandTest, ListsOnlyAndFailsFromTheSeverityThatWasAskedFor) {
  const RunResult result = Lint({});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("warning nondeterministic: fwd,x=8x64x28x28"),
                                HasSubstr("(1 run, 100.0% of the arithmetic)")));
  EXPECT_THAT(result.err,
              HasSubstr("profile:nvidia-h200: 1 convolution: 0 errors, 1 warning, 0 notices"));
  EXPECT_TRUE(daemon_.last_create().options().list_only());
  EXPECT_EQ(Lint({"--fail-on", "warning"}).code, 1);
  EXPECT_EQ(Lint({"--fail-on", "warning", "--ignore", "nondeterministic"}).code, 0);
  EXPECT_EQ(Lint({"--fail-on", "never"}).code, 0);
}

TEST_F(LintCommandTest, AProblemWithoutAListHasTheJobsReason) {
  daemon_.misses["x"] = v1::MISS_REASON_NOT_FOUND;
  daemon_.states[0].set_state(v1::JOB_STATE_FAILED);
  v1::TuningFailure* failure = daemon_.states[0].add_failures();
  failure->set_problem_text(Problem(kPlain).ToText());
  failure->set_reason("the worker died: signal 11");
  const RunResult result = Lint({});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              HasSubstr("there is no list of its candidates: the worker died: signal 11"));
}

TEST_F(LintCommandTest, EachFormatHasTheFinding) {
  EXPECT_THAT(Lint({"--json"}).out,
              AllOf(HasSubstr("\"finding\":\"nondeterministic\""), HasSubstr("\"share\":1")));
  EXPECT_THAT(Lint({"--csv"}).out, HasSubstr("warning,nondeterministic,\"fwd,x=8x64x28x28"));
  EXPECT_THAT(Lint({"--github"}).out, HasSubstr("list.txt,line=1,title=convtune nondet"));
  EXPECT_THAT(Lint({"--batches", "1,8", "--dtypes", "bf16,f32"}).out,
              AllOf(HasSubstr("ON TENSOR CORES"), HasSubstr("bf16"), HasSubstr("f32")));
}

TEST_F(LintCommandTest, TheModelAsItIsStandsOnceBesideItsVariants) {
  const auto rows = [](const std::string& json) {
    int count = 0;
    for (size_t at = 0; (at = json.find("{\"batch\":", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  // It has batch 8 and f16.
  EXPECT_EQ(rows(Lint({"--json", "--batches", "8", "--dtypes", "f16"}).out), 1);
  EXPECT_EQ(rows(Lint({"--json", "--batches", "1,8", "--dtypes", "f16,f32"}).out), 4);
  EXPECT_EQ(rows(Lint({"--json", "--batches", "1,1"}).out), 2);
  EXPECT_EQ(rows(Lint({"--json"}).out), 0);
}

TEST_F(LintCommandTest, WhatWasNotLookedAtIsSaid) {
  daemon_.tuning.add_incomplete_reasons(v1::INCOMPLETE_REASON_OBSERVED);
  EXPECT_THAT(Lint({}).err, HasSubstr("1 convolution was not looked at: all that is stored is"));
}

TEST_F(LintCommandTest, BadInputIsOneErrorEach) {
  const std::pair<std::vector<std::string>, const char*> kBad[] = {
      {{"--max-workspace", "much"}, "--max-workspace"},
      {{"--ignore", "layouts"}, "--ignore"},
      {{"--fail-on", "all"}, "--fail-on"},
      {{"--dtypes", "f17"}, "--dtypes"},
      {{"--batches", "0"}, "--batches"},
      {{"--github", "--json"}, "--github: must stand without --json, --csv"},
      {{Path() + ".none"}, ": cannot be read: "},
  };
  for (const auto& [arguments, words] : kBad) {
    const RunResult result = Lint(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
  }
  std::ofstream(Path()) << "# nothing\n";
  EXPECT_EQ(Lint({}).code, 2);
}

TEST_F(LintCommandTest, ACancelledListIsNoReport) {
  daemon_.states[0].set_state(v1::JOB_STATE_CANCELLED);
  const RunResult result = Lint({});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, IsEmpty());
}

}  // namespace
}  // namespace convtune::cli::commands
