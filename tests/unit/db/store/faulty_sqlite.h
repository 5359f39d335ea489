// SQLite on a disk and in a memory that fail when they are told to.
#pragma once

#include <cstdint>
#include <string>

namespace convtune::db::store {

// Puts itself in front of the system's file layer for every database of the
// process, and of malloc for all of SQLite; before SQLite is first used. One
// thread at a time.
class FaultySqlite {
 public:
  static void Install();

  // Each of these wants no database open.
  // How a call fails: with an I/O error, for want of space (writes alone, the
  // rest go through), or the power goes, for it and for all that follow.
  enum class Failure { kError, kFull, kPower };
  // The Nth call fails, counted from 1: an open, read, write, cut, sync or deletion, no lock.
  static void ArmCall(int64_t n, Failure failure);
  static void ArmAllocation(int64_t n);
  static void Disarm();
  // True if the armed failure has happened.
  static bool fired();

  // After kPower: what is on the disk when it is on again. Of the writes to a
  // file since its last sync an arbitrary part is there, the last of it perhaps
  // in half; the log's index, which lives in memory, is not. Returns how many
  // writes were lost.
  static int64_t RestorePower(uint64_t seed);
};

}  // namespace convtune::db::store
