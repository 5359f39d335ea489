#include "db/sqlite/local_disk.h"

#include <mntent.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

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

}  // namespace convtune::db::sqlite
