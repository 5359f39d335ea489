// The threads that cuDNN's planning is spread over.
#pragma once

#include <functional>

namespace convtune {

// A lane is used by one thread at a time, and has what cuDNN forbids threads to
// share: a handle, and what is made with it. See "Thread Safety" in
// https://docs.nvidia.com/cudnn/developer/misc.
inline constexpr int kMostLanes = 8;

// The number of lanes for so many threads as `asked`; 0: one for each core.
int LaneCount(int asked);

// Calls work(lane) for the lanes from 0 to `lanes` - 1 at the same time, and
// returns when all have returned. Lane 0 is the caller's thread. Where the
// system gives no more threads, some lanes are left out: work must not depend
// on all of them being there.
void RunOnLanes(int lanes, const std::function<void(int lane)>& work);

}  // namespace convtune
