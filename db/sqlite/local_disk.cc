#include "db/sqlite/local_disk.h"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "db/sqlite/file_util.h"
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

// Mount points in mountinfo write space, tab, newline and backslash in octal.
std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out.push_back(static_cast<char>(((text[i + 1] - '0') << 6) | ((text[i + 2] - '0') << 3) |
                                      (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
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
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  std::string type;
  size_t longest = 0;
  while (std::getline(mounts, line)) {
    const size_t separator = line.find(" - ");
    const std::vector<std::string_view> left =
        Split(std::string_view(line).substr(0, separator), ' ');
    if (separator == std::string::npos || left.size() < 5) {
      continue;
    }
    const std::string mount = Unescape(left[4]);
    // Of mounts on the same point the last hides the others.
    if (IsBelow(real.get(), mount) && mount.size() >= longest) {
      longest = mount.size();
      type = Split(std::string_view(line).substr(separator + 3), ' ').front();
    }
  }
  return type;
}

}  // namespace

absl::StatusOr<FileSystemInfo> ProbeFileSystem(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) {
    return FileError(path, "statfs", errno);
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
