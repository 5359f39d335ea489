// The short form of a GPU's name, by which environments and snapshots name it. Freestanding: no
// library but libc.
#pragma once

#include <cstddef>

namespace convtune {

// Writes the slug to `slug`, which has room for `most` bytes: lower case, runs of anything but
// letters and digits one '-', none at the ends. Returns its length; 0 if it is empty or too long.
inline size_t WriteSlug(const char* name, size_t length, char* slug, size_t most) {
  size_t size = 0;
  bool gap = false;
  for (size_t i = 0; i < length; ++i) {
    const char c = name[i];
    const bool upper = c >= 'A' && c <= 'Z';
    if (!upper && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) {
      gap = true;
      continue;
    }
    if (gap && size > 0 && size < most) slug[size++] = '-';
    gap = false;
    if (size >= most) return 0;
    slug[size++] = static_cast<char>(upper ? c - 'A' + 'a' : c);
  }
  return size;
}

}  // namespace convtune
