#include "server/convtuned/child_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "server/supervisor/worker_process.h"

namespace convtune::convtuned {
namespace {

constexpr size_t kMaxOutput = 1 << 20;
constexpr int kPollMs = 100;

struct Running {
  std::unique_ptr<supervisor::WorkerProcess> process;
  supervisor::StartTimeout timeout;
  ChildOutput* output;
  bool at_end = false;  // its output is closed; it may live on
};

// False once all was read.
bool ReadSome(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof(buffer));
  if (count > 0) {
    text->append(buffer, std::min(static_cast<size_t>(count), kMaxOutput - text->size()));
  }
  return count > 0 || (count < 0 && errno == EINTR);
}

// True if the program has ended or is not waited for any more.
bool IsOver(bool readable, bool stopped, Running* one) {
  ChildOutput* output = one->output;
  if (readable && !one->at_end) one->at_end = !ReadSome(one->process->fd(), &output->text);
  if (one->at_end) {
    if (const auto end = one->process->Poll()) {
      if (!end->success) {
        output->status = absl::InternalError(absl::StrCat("it ended with ", end->description));
      }
      return true;
    }
  }
  one->timeout.Saw(supervisor::WorkDone(one->process->pid()) + output->text.size(),
                   SteadyTime::Now());
  if (stopped) {
    output->status = absl::CancelledError("stopped");
  } else if (SteadyTime::Now() >= one->timeout.end()) {
    output->status = absl::DeadlineExceededError(one->timeout.reason());
  }
  return !output->status.ok();
}

}  // namespace

std::vector<ChildOutput> RunPrograms(const std::vector<std::vector<std::string>>& commands,
                                     const supervisor::StartLimits& limits,
                                     const std::function<bool()>& stop,
                                     const std::string& library_path) {
  std::vector<ChildOutput> outputs(commands.size());
  std::list<Running> running;
  for (size_t i = 0; i < commands.size(); ++i) {
    auto process = supervisor::WorkerProcess::StartPrinting(commands[i], library_path);
    outputs[i].status = process.status();
    if (process.ok()) {
      running.push_back({*std::move(process), {limits, SteadyTime::Now()}, &outputs[i], false});
    }
  }
  while (!running.empty()) {
    std::vector<pollfd> polled;
    for (const Running& one : running) {
      polled.push_back({one.at_end ? -1 : one.process->fd(), POLLIN, 0});
    }
    poll(polled.data(), polled.size(), kPollMs);
    const bool stopped = stop();
    size_t i = 0;
    std::erase_if(running,
                  [&](Running& one) { return IsOver(polled[i++].revents != 0, stopped, &one); });
  }
  return outputs;
}

}  // namespace convtune::convtuned
