// An ElfFile is a file, mapped to read it as an ELF file: of a large library only the pages that
// are looked at are read.
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/base/unique_fd.h"

namespace convtune {

// Immutable, as long as nobody shortens the file.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info = {};
    if (!fd.valid() || fstat(fd.get(), &info) != 0 || info.st_size <= 0) return;
    const auto size = static_cast<size_t>(info.st_size);
    void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (start != MAP_FAILED) bytes_ = {static_cast<const char*>(start), size};
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;
  ~ElfFile() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }

  // Of any file; empty if it could not be read.
  absl::string_view bytes() const { return bytes_; }
  // Nothing if it is no ELF file of 64 bits.
  std::optional<Elf64_Ehdr> Header() const {
    Elf64_Ehdr header;
    if (!Read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64) {
      return std::nullopt;
    }
    return header;
  }
  // False if the value would lie behind the end.
  template <typename T>
  bool Read(uint64_t at, T* value) const {
    if (at > bytes_.size() || bytes_.size() - at < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + at, sizeof(T));
    return true;
  }

 private:
  absl::string_view bytes_;
};

}  // namespace convtune
