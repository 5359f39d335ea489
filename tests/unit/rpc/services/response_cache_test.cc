#include "server/rpc/services/response_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace convtune::rpc::services {
namespace {

std::shared_ptr<const CachedRow> RowOf(const std::string& bytes) {
  auto row = std::make_shared<CachedRow>();
  row->bytes = bytes;
  return row;
}

TEST(ResponseCache, AreFoundByRulesAndProblem) {
  ResponseCache rows(1 << 20);
  rows.Put(1, "a", RowOf("one"));
  rows.Put(2, "a", RowOf("two"));
  ASSERT_NE(rows.Find(1, "a"), nullptr);
  EXPECT_EQ(rows.Find(1, "a")->bytes, "one");
  EXPECT_EQ(rows.Find(2, "a")->bytes, "two");
  EXPECT_EQ(rows.Find(3, "a"), nullptr);
  EXPECT_EQ(rows.Find(1, "b"), nullptr);
}

TEST(ResponseCache, TheNewestIsKept) {
  ResponseCache rows(1 << 20);
  rows.Put(1, "a", RowOf("one"));
  rows.Put(1, "a", RowOf("two"));
  EXPECT_EQ(rows.Find(1, "a")->bytes, "two");
}

TEST(ResponseCache, MemoryIsBounded) {
  constexpr size_t kLimit = 1 << 20;
  ResponseCache rows(kLimit);
  for (int i = 0; i < 10000; ++i) {
    rows.Put(1, std::to_string(i), RowOf(std::string(1000, 'x')));
    ASSERT_LE(rows.bytes(), kLimit);
  }
  EXPECT_GT(rows.bytes(), kLimit / 3);
  EXPECT_EQ(rows.Find(1, "0"), nullptr);
  EXPECT_NE(rows.Find(1, "9999"), nullptr);
}

TEST(ResponseCache, WhatIsUsedStays) {
  ResponseCache rows(1 << 20);
  rows.Put(1, "used", RowOf("used"));
  for (int i = 0; i < 10000; ++i) {
    rows.Put(1, std::to_string(i), RowOf(std::string(1000, 'x')));
    ASSERT_NE(rows.Find(1, "used"), nullptr) << i;
  }
}

TEST(ResponseCache, WhatIsLargerThanAllIsNotKept) {
  ResponseCache rows(1 << 12);
  rows.Put(1, "a", RowOf(std::string(1 << 13, 'x')));
  EXPECT_EQ(rows.Find(1, "a"), nullptr);
  EXPECT_EQ(rows.bytes(), 0U);
}

TEST(ResponseCache, ManyThreadsAtATime) {
  ResponseCache rows(1 << 18);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&rows, t] {
      for (int i = 0; i < 5000; ++i) {
        const std::string problem = std::to_string((i * 7 + t) % 900);
        const auto row = rows.Find(1, problem);
        if (row == nullptr) {
          rows.Put(1, problem, RowOf(problem));
        } else {
          EXPECT_EQ(row->bytes, problem);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace convtune::rpc::services
