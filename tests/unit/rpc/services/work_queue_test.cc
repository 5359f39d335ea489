#include "server/rpc/services/work_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace convtune::rpc::services {
namespace {

TEST(WorkQueue, RunsEverythingInOrderBeforeItEnds) {
  std::vector<int> order;
  {
    WorkQueue queue(100);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(queue.Post([&order, i] { order.push_back(i); }));
    }
  }
  ASSERT_EQ(order.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(WorkQueue, RefusesWhatIsBeyondItsCapacity) {
  std::promise<void> started, go;
  std::shared_future<void> gone = go.get_future().share();
  WorkQueue queue(1);
  ASSERT_TRUE(queue.Post([&started, gone] {
    started.set_value();
    gone.wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_FALSE(queue.Post([] {}));
  go.set_value();
}

}  // namespace
}  // namespace convtune::rpc::services
