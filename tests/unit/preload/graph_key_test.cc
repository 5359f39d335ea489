#include "client/preload/shadow.h"

#include <gtest/gtest.h>

#include "db/snapshot/key_convert.h"
#include "server/worker/cudnn/graph_builder.h"
#include "tests/unit/model/problem/random_problem.h"

namespace convtune::preload {
namespace {

using snapshot::ProblemKey;

// Shadows of the graph that is built for a problem, as a program makes it.
struct Graph {
  explicit Graph(const ConvProblem& problem) {
    OperationShadow& conv = operations.emplace_back();
    conv.convolution = static_cast<uint8_t>(problem.operation());
    const bool fused = !problem.epilogue().empty();
    const DataType in = problem.data_type();
    const DataType out = problem.output_type();
    conv.x = Tensor(problem, problem.x_dims(), problem.x_strides(),
                    problem.operation() == Operation::kBwdData ? out : in);
    conv.w = Tensor(problem, problem.w_dims(), problem.w_strides(),
                    problem.operation() == Operation::kBwdFilter ? out : in);
    conv.y = Tensor(problem, problem.y_dims(), problem.y_strides(),
                    fused                                    ? problem.intermediate_type()
                    : problem.operation() == Operation::kFwd ? out
                                                             : in);
    conv.y.is_virtual = fused;
    conv.conv.spatial = problem.spatial_rank();
    conv.conv.compute = worker::cudnn::ToCudnn(problem.compute_type());
    conv.conv.mode = worker::cudnn::ToCudnn(problem.mode());
    Copy(problem.pad_low(), conv.conv.pad_low);
    Copy(problem.pad_high(), conv.conv.pad_high);
    Copy(problem.strides(), conv.conv.strides);
    Copy(problem.dilations(), conv.conv.dilations);
    for (size_t i = 0; i < problem.epilogue().size(); ++i) {
      OperationShadow op = {};
      const EpilogueOp kind = problem.epilogue()[i];
      const bool last = i + 1 == problem.epilogue().size();
      op.x = operations.back().y;
      op.pointwise.math = CUDNN_DATA_FLOAT;
      op.pointwise.mode =
          kind == EpilogueOp::kRelu ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_ADD;
      if (kind != EpilogueOp::kRelu) {
        op.b = Tensor(problem, problem.y_dims(), problem.y_strides(), out);
        for (int d = 0; kind == EpilogueOp::kBias && d < op.b.rank; ++d) {
          op.b.dims[d] = d == 1 ? op.b.dims[d] : 1;
        }
      }
      op.y = Tensor(problem, problem.y_dims(), problem.y_strides(),
                    last ? out : problem.intermediate_type());
      op.y.is_virtual = !last;
      operations.push_back(op);
    }
  }

  static void Copy(const std::vector<int64_t>& from, int64_t* to) {
    std::copy(from.begin(), from.end(), to);
  }

  TensorShadow Tensor(const ConvProblem& problem, const std::vector<int64_t>& dims,
                      const std::vector<int64_t>& strides, DataType type) {
    TensorShadow tensor = {};
    tensor.uid = ++uid;
    tensor.rank = static_cast<int>(dims.size());
    tensor.type = worker::cudnn::ToCudnn(type);
    tensor.alignment = problem.alignment_bytes();
    Copy(dims, tensor.dims);
    Copy(strides, tensor.strides);
    return tensor;
  }

  bool Key(ProblemKey* key) const {
    const OperationShadow* pointers[8] = {};
    for (size_t i = 0; i < operations.size(); ++i) {
      pointers[i] = &operations[i];
    }
    return MakeKey(pointers, static_cast<int>(operations.size()), key);
  }

  int64_t uid = 0;
  std::vector<OperationShadow> operations;
};

ConvProblem Parsed(std::string_view text) { return ConvProblem::Parse(text).value(); }

constexpr char kFused[] =
    "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16,epilogue=add+bias+relu,mid=f32";

TEST(MakeKey, IsTheDaemonsKeyForRandomProblems) {
  std::mt19937_64 random(3);
  int tried = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto problem = ConvProblem::Create(RandomValidSpec(random));
    // A pointwise operation on f64 is none that is served.
    if (!problem.ok() || problem->sm_count_target() != 0 ||
        (!problem->epilogue().empty() && problem->intermediate_type() == DataType::kF64)) {
      continue;
    }
    ++tried;
    ProblemKey key;
    ASSERT_TRUE(Graph(*problem).Key(&key)) << problem->ToText();
    const ProblemKey expected = snapshot::ToKey(*problem).value();
    EXPECT_EQ(memcmp(&key, &expected, sizeof key), 0) << problem->ToText();
  }
  EXPECT_GT(tried, 1000);
}

TEST(MakeKey, TheSmallestAlignmentOfTheTensorsInMemoryCounts) {
  Graph graph(Parsed(kFused));
  ProblemKey key;
  graph.operations[0].w.alignment = 4;
  graph.operations[0].y.alignment = 1;  // virtual
  ASSERT_TRUE(graph.Key(&key));
  EXPECT_EQ(key.alignment, 4);
  graph.operations[2].b.alignment = 2;
  ASSERT_TRUE(graph.Key(&key));
  EXPECT_EQ(key.alignment, 2);
  for (const int64_t bytes : {0, -4, 3, 300}) {
    graph.operations[0].x.alignment = bytes;
    EXPECT_FALSE(graph.Key(&key)) << bytes;
  }
}

TEST(MakeKey, RefusesWhatTheKeyCannotSay) {
  const auto refused = [](auto change) {
    Graph graph(Parsed(kFused));
    change(&graph.operations);
    ProblemKey key;
    return !graph.Key(&key);
  };
  using Operations = std::vector<OperationShadow>;
  EXPECT_FALSE(refused([](Operations*) {}));
  EXPECT_TRUE(refused([](Operations* o) { o->at(0).x.dims[0] = 17; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(0).w.type = CUDNN_DATA_FLOAT; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(0).x.type = CUDNN_DATA_INT64; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(0).x.is_virtual = true; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(0).y.is_virtual = false; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(0).conv.spatial = 1; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(1).x.uid = 99; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(1).pointwise.math = CUDNN_DATA_HALF; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(1).b.dims[0] = 1; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(1).b.strides[1] = 7; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(1).b.type = CUDNN_DATA_FLOAT; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(2).b.dims[2] = 56; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(2).y.type = CUDNN_DATA_HALF; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(3).pointwise.mode = CUDNN_POINTWISE_TANH_FWD; }));
  EXPECT_TRUE(refused([](Operations* o) { o->at(3).y.is_virtual = true; }));
  EXPECT_TRUE(refused([](Operations* o) { std::swap(o->at(2), o->at(3)); }));
  EXPECT_TRUE(refused([](Operations* o) { o->erase(o->begin()); }));
}

TEST(MakeKey, OnOnePixelTheFirstOfTwoAdditionsIsTheResiduals) {
  Graph graph(Parsed("fwd,x=1x64x1x1,w=64x64x1x1,f16,epilogue=add+bias+relu,mid=f32"));
  ProblemKey key;
  ASSERT_TRUE(graph.Key(&key));
  EXPECT_EQ(key.epilogue[0], 1);
  EXPECT_EQ(key.epilogue[1], 2);
  Graph biased(Parsed("fwd,x=1x64x1x1,w=64x64x1x1,f16,epilogue=bias,mid=f32"));
  ASSERT_TRUE(biased.Key(&key));
  EXPECT_EQ(key.epilogue[0], 2);
}

}  // namespace
}  // namespace convtune::preload
