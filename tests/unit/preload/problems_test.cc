#include "client/preload/problems.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "db/snapshot/key_convert.h"

namespace convtune::preload {
namespace {

snapshot::ProblemKey Numbered(int n, int alignment = 16) {
  const std::string text = "fwd,x=" + std::to_string(n) + "x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";
  return snapshot::ToKey(ConvProblem::Parse(text).value().WithAlignment(alignment)).value();
}

snapshot::EnvironmentKey Environment(int sms) {
  snapshot::EnvironmentKey key = {};
  key.sm_count = static_cast<uint32_t>(sms);
  return key;
}

Problem* FindNumbered(int n, int sms = 132, int alignment = 16) {
  const snapshot::ProblemKey key = Numbered(n, alignment);
  return FindProblem(Environment(sms), key);
}

TEST(Problems, EachKeyAndEnvironmentHasOne) {
  std::set<Problem*> found;
  for (const int sms : {66, 132}) {
    for (const int alignment : {8, 16}) {
      for (int n = 1; n <= 50; ++n) {
        Problem* problem = FindNumbered(n, sms, alignment);
        ASSERT_NE(problem, nullptr);
        EXPECT_EQ(problem, FindNumbered(n, sms, alignment));
        found.insert(problem);
      }
    }
  }
  EXPECT_EQ(found.size(), 200U);
}

TEST(Problems, ThreadsAgree) {
  constexpr int kThreads = 8;
  constexpr int kKeys = 300;
  std::vector<std::vector<Problem*>> found(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&found, t] {
      for (int n = 0; n < kKeys; ++n) {
        found[t].push_back(FindNumbered(1000 + n));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int t = 1; t < kThreads; ++t) {
    EXPECT_EQ(found[t], found[0]);
  }
}

cudnnBackendDescriptor_t Descriptor(uintptr_t n) {
  return reinterpret_cast<cudnnBackendDescriptor_t>(n * 64);
}

TEST(Shadows, ARecordLivesAsLongAsItsDescriptor) {
  EXPECT_EQ(FindRecord(Descriptor(1)), nullptr);
  Remember(Descriptor(1), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  ASSERT_NE(FindRecord(Descriptor(1)), nullptr);
  EXPECT_EQ(FindRecord(Descriptor(1))->type, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  Forget(Descriptor(1));
  EXPECT_EQ(FindRecord(Descriptor(1)), nullptr);
}

TEST(Shadows, ANewDescriptorAtAnOldAddressStartsAnew) {
  Remember(Descriptor(2), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  FindRecord(Descriptor(2))->tensor.uid = 5;
  Remember(Descriptor(2), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(FindRecord(Descriptor(2))->tensor.uid, 0);
  // Of a type that is not shadowed: forgotten.
  Remember(Descriptor(2), CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  EXPECT_EQ(FindRecord(Descriptor(2)), nullptr);
}

TEST(Shadows, AnUnknownAttributeMakesATensorOdd) {
  Remember(Descriptor(3), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  Record* record = FindRecord(Descriptor(3));
  const int64_t one = 1, four = 4;
  NoteAttribute(record, CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, 1, &one);
  EXPECT_FALSE(record->odd);
  NoteAttribute(record, CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, 1, &four);
  EXPECT_TRUE(record->odd);
  Forget(Descriptor(3));
  Remember(Descriptor(3), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  record = FindRecord(Descriptor(3));
  NoteAttribute(record, static_cast<cudnnBackendAttributeName_t>(9999), CUDNN_TYPE_INT64, 1, &one);
  EXPECT_TRUE(record->odd);
  Forget(Descriptor(3));
}

TEST(Shadows, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (uintptr_t t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (uintptr_t round = 0; round < 200; ++round) {
        for (uintptr_t i = 0; i < 50; ++i) {
          Remember(Descriptor(10000 + t * 100 + i), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
          FindRecord(Descriptor(10000 + t * 100 + i))->tensor.uid =
              static_cast<int64_t>(t * 100 + i);
        }
        for (uintptr_t i = 0; i < 50; ++i) {
          ASSERT_EQ(FindRecord(Descriptor(10000 + t * 100 + i))->tensor.uid,
                    static_cast<int64_t>(t * 100 + i));
          Forget(Descriptor(10000 + t * 100 + i));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace convtune::preload
