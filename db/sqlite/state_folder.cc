#include "db/sqlite/state_folder.h"

#include <fcntl.h>
#include <mntent.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/base/replace_file.h"
#include "proto/base/strings.h"

namespace convtune::db::sqlite {
namespace {

struct NetworkFileSystem {
  int64_t magic;
  std::string_view name;
};

// linux/magic.h, and for those that live outside the kernel their sources.
constexpr NetworkFileSystem kNetworkFileSystems[] = {
    {0x6969, "NFS"},       {0x517B, "SMB"},        {0xFF534D42, "CIFS"},  {0xFE534D42, "SMB2"},
    {0x01021997, "9p"},    {0x00C36400, "Ceph"},   {0x5346414F, "AFS"},   {0x6B414653, "kAFS"},
    {0x73757245, "Coda"},  {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"},  {0x19830326, "BeeGFS"},
    {0x7461636F, "OCFS2"}, {0x01161970, "GFS2"},   {0xAAD7AAEA, "PanFS"},
};

constexpr int64_t kFuseMagic = 0x65735546;
constexpr std::array<std::string_view, 6> kLocalFuse = {
    "fuseblk", "fuse.fuse-overlayfs", "fuse.bindfs", "fuse.ntfs-3g", "fuse.mergerfs", "fuse.ext2"};

absl::Status Refusal(const std::string& path, std::string_view name) {
  return absl::FailedPreconditionError(
      Concat(path, ": is on a network file system (", name,
             "), where databases get damaged; choose a state directory on a local disk, or "
             "allow it with --allow-network-fs"));
}

bool IsBelow(std::string_view path, std::string_view mount) {
  return mount == "/" || path == mount || (path.starts_with(mount) && path[mount.size()] == '/');
}

// Type of the mount that holds `path`; empty if it cannot be told.
std::string MountType(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  if (real == nullptr) {
    return "";
  }
  const std::unique_ptr<FILE, decltype(&endmntent)> mounts(setmntent("/proc/self/mounts", "r"),
                                                           &endmntent);
  if (mounts == nullptr) return "";
  std::string type;
  size_t longest = 0;
  mntent mount{};
  std::array<char, 8192> text{};
  while (getmntent_r(mounts.get(), &mount, text.data(), text.size()) != nullptr) {
    const std::string_view place = mount.mnt_dir;
    // Of mounts on the same point the last hides the others.
    if (IsBelow(real.get(), place) && place.size() >= longest) {
      longest = place.size();
      type = mount.mnt_type;
    }
  }
  return type;
}

constexpr int kAttempts = 11;
constexpr absl::Duration kBetweenAttempts = absl::Milliseconds(50);

std::string ReadHolder(int fd) {
  std::array<char, 32> buffer{};
  const ssize_t size = pread(fd, buffer.data(), buffer.size(), 0);
  const std::string_view text = Strip(std::string_view(buffer.data(), size > 0 ? size : 0));
  return text.empty() ? "unknown" : std::string(text);
}

// The lock holds without the number, which only helps people: a full disk must
// not keep the daemon from starting.
void WriteHolder(int fd) {
  const std::string pid = Concat(getpid(), "\n");
  if (ftruncate(fd, 0) == 0) {
    const ssize_t written = pwrite(fd, pid.data(), pid.size(), 0);
    static_cast<void>(written);
  }
}

absl::StatusOr<UniqueFd> Lock(const std::string& path, UniqueFd fd, int operation) {
  for (int attempt = 1; flock(fd.get(), operation | LOCK_NB) != 0; ++attempt) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EWOULDBLOCK) {
      return FileError(path, "locking");
    }
    if (attempt == kAttempts) {
      return absl::FailedPreconditionError(
          Concat(path, ": another daemon, process ", ReadHolder(fd.get()),
                 ", uses this state directory; stop it or choose another directory"));
    }
    absl::SleepFor(kBetweenAttempts);
  }
  return fd;
}

}  // namespace

absl::StatusOr<FileSystemInfo> ProbeFileSystem(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) {
    return FileError(path, "statfs");
  }
  // f_type is signed on some machines, and magic numbers use all 32 bits.
  return FileSystemInfo{static_cast<int64_t>(static_cast<uint32_t>(info.f_type)), MountType(path)};
}

absl::Status CheckLocalDisk(const std::string& path, const FileSystemInfo& info) {
  for (const NetworkFileSystem& network : kNetworkFileSystems) {
    if (network.magic == info.magic) {
      return Refusal(path, network.name);
    }
  }
  if (info.magic == kFuseMagic &&
      std::find(kLocalFuse.begin(), kLocalFuse.end(), info.type_name) == kLocalFuse.end()) {
    return Refusal(path, info.type_name.empty() ? "FUSE" : std::string_view(info.type_name));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> LockFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return FileError(path, "opening");
  absl::StatusOr<UniqueFd> lock = Lock(path, std::move(fd), LOCK_EX);
  if (lock.ok()) WriteHolder(lock->get());
  return lock;
}

absl::StatusOr<UniqueFd> ShareLockFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.valid()) return Lock(path, std::move(fd), LOCK_SH);
  if (errno == ENOENT) return UniqueFd();
  return FileError(path, "opening");
}

}  // namespace convtune::db::sqlite
