#include "server/rpc/services/batch_get_handler.h"

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

TEST(ResponseCache, RowsAreFoundByTheirKeys) {
  ResponseCache rows(1 << 20);
  rows.Put("1a", RowOf("one"));
  rows.Put("2a", RowOf("two"));
  ASSERT_NE(rows.Find("1a"), nullptr);
  EXPECT_EQ(rows.Find("1a")->bytes, "one");
  EXPECT_EQ(rows.Find("2a")->bytes, "two");
  EXPECT_EQ(rows.Find("3a"), nullptr);
}

TEST(ResponseCache, TheNewestIsKept) {
  ResponseCache rows(1 << 20);
  rows.Put("a", RowOf("one"));
  rows.Put("a", RowOf("two"));
  EXPECT_EQ(rows.Find("a")->bytes, "two");
}

TEST(ResponseCache, MemoryIsBounded) {
  constexpr size_t kLimit = 1 << 20;
  constexpr size_t kRow = 1000;
  ResponseCache rows(kLimit);
  size_t kept = 0;
  for (int i = 0; i < 10000; ++i) {
    rows.Put(std::to_string(i), RowOf(std::string(kRow, 'x')));
    if (i % 500 != 499) continue;
    kept = 0;
    for (int k = 0; k <= i; ++k) kept += rows.Find(std::to_string(k)) == nullptr ? 0 : kRow;
    ASSERT_LE(kept, kLimit) << i;
  }
  EXPECT_GT(kept, kLimit / 5);
  EXPECT_EQ(rows.Find("0"), nullptr);
  EXPECT_NE(rows.Find("9999"), nullptr);
}

TEST(ResponseCache, WhatIsLargerThanAllIsNotKept) {
  ResponseCache rows(1 << 12);
  rows.Put("a", RowOf(std::string(1 << 13, 'x')));
  EXPECT_EQ(rows.Find("a"), nullptr);
}

TEST(ResponseCache, ManyThreadsAtATime) {
  ResponseCache rows(1 << 18);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&rows, t] {
      for (int i = 0; i < 5000; ++i) {
        const std::string problem = std::to_string((i * 7 + t) % 900);
        const auto row = rows.Find(problem);
        if (row == nullptr) {
          rows.Put(problem, RowOf(problem));
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
