// ParseByteSize reads sizes as people write them. Freestanding: the interposer reads them, too.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace convtune {

// Reads "64MiB": a whole number and B, KiB, MiB, GiB, KB, MB or GB; "0" needs no unit. nullopt for
// anything else, and for 2^63 bytes or more.
inline std::optional<int64_t> ParseByteSize(std::string_view text) {
  constexpr struct {
    std::string_view name;
    int64_t bytes;
  } kUnits[] = {{"B", 1},
                {"KiB", int64_t{1} << 10},
                {"MiB", int64_t{1} << 20},
                {"GiB", int64_t{1} << 30},
                {"KB", 1'000},
                {"MB", 1'000'000},
                {"GB", 1'000'000'000}};
  if (text == "0") return 0;
  int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  for (const auto& unit : kUnits) {
    if (text == unit.name && !__builtin_mul_overflow(size, unit.bytes, &size)) return size;
  }
  return std::nullopt;
}

}  // namespace convtune
