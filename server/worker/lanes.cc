#include "server/worker/lanes.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace convtune {

int LaneCount(int asked) {
  const int wanted = asked > 0 ? asked : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(wanted, 1, kMostLanes);
}

void RunOnLanes(int lanes, const std::function<void(int lane)>& work) {
  std::vector<std::thread> threads;
  try {
    for (int lane = 1; lane < lanes; ++lane) {
      threads.emplace_back(work, lane);
    }
  } catch (const std::system_error&) {
  }
  work(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace convtune
