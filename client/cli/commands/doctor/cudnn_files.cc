#include "client/cli/commands/doctor/cudnn_files.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "proto/base/unique_fd.h"
#include "proto/model/environment.h"

namespace convtune::cli::commands::doctor {
namespace {

// The bytes of a file, mapped: of a large library only the pages that are looked at are read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info = {};
    if (!fd.valid() || fstat(fd.get(), &info) != 0 || info.st_size <= 0) return;
    const auto size = static_cast<size_t>(info.st_size);
    void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (start != MAP_FAILED) bytes_ = {static_cast<const char*>(start), size};
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }

  // Empty if it could not be read.
  absl::string_view bytes() const { return bytes_; }

 private:
  absl::string_view bytes_;
};

// False if the value would lie behind the end.
template <typename T>
bool ReadAt(absl::string_view bytes, uint64_t at, T* value) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return false;
  std::memcpy(value, bytes.data() + at, sizeof(T));
  return true;
}

// The value of the first symbol of the table that is a version of cuDNN; 0 without one.
uint32_t FindVersion(absl::string_view bytes, const Elf64_Ehdr& header, const Elf64_Shdr& symbols) {
  Elf64_Shdr names;
  if (!ReadAt(bytes, header.e_shoff + symbols.sh_link * sizeof(names), &names) ||
      names.sh_offset > bytes.size()) {
    return 0;
  }
  const absl::string_view text = bytes.substr(names.sh_offset, names.sh_size);
  Elf64_Sym symbol;
  for (uint64_t at = 0; at + sizeof(symbol) <= symbols.sh_size; at += sizeof(symbol)) {
    if (!ReadAt(bytes, symbols.sh_offset + at, &symbol)) return 0;
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_size != sizeof(uint32_t) ||
        symbol.st_name >= text.size()) {
      continue;
    }
    absl::string_view name = text.substr(symbol.st_name);
    name = name.substr(0, name.find('\0'));
    if (!absl::StartsWith(name, "cudnn_") || !absl::EndsWith(name, "_version")) continue;
    Elf64_Phdr segment;
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      if (!ReadAt(bytes, header.e_phoff + i * sizeof(segment), &segment)) return 0;
      uint32_t value = 0;
      if (segment.p_type == PT_LOAD && symbol.st_value >= segment.p_vaddr &&
          symbol.st_value - segment.p_vaddr < segment.p_filesz &&
          ReadAt(bytes, segment.p_offset + (symbol.st_value - segment.p_vaddr), &value)) {
        return value;
      }
    }
  }
  return 0;
}

}  // namespace

std::vector<std::string> LibrariesNamedIn(const std::string& file) {
  const MappedFile mapped(file);
  const absl::string_view bytes = mapped.bytes();
  constexpr absl::string_view kBegin = "libcudnn_";
  constexpr absl::string_view kEnd(".so\0", 4);  // "libcudnn_graph.so.9" is the file's own name
  std::set<std::string> names;
  for (size_t at = bytes.find(kBegin); at != absl::string_view::npos;
       at = bytes.find(kBegin, at + 1)) {
    const size_t end =
        bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at + kBegin.size());
    if (end != absl::string_view::npos && absl::StartsWith(bytes.substr(end), kEnd)) {
      names.emplace(bytes.substr(at, end - at));
    }
  }
  return {names.begin(), names.end()};
}

std::string VersionInFile(const std::string& file) {
  const MappedFile mapped(file);
  const absl::string_view bytes = mapped.bytes();
  Elf64_Ehdr header;
  if (!ReadAt(bytes, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "";
  }
  Elf64_Shdr section;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    if (!ReadAt(bytes, header.e_shoff + i * sizeof(section), &section)) return "";
    if (section.sh_type != SHT_DYNSYM) continue;
    const uint32_t value = FindVersion(bytes, header, section);
    if (value == 0) return "";
    // 0x091400 is 9.20.0.
    return CudnnVersion{static_cast<int>(value >> 16), static_cast<int>(value >> 8 & 0xFF),
                        static_cast<int>(value & 0xFF)}
        .ToText();
  }
  return "";
}

}  // namespace convtune::cli::commands::doctor
