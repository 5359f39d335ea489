// A Mutex that a forked child finds free.
#pragma once

#include <pthread.h>

namespace convtune::preload::process {

// Links itself into the list that the fork handlers walk. No code of ours holds
// two of them at a time, so their order does not matter. Static storage only.
class Mutex {
 public:
  // Constant: nothing runs when the library is loaded.
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock();
  void Unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  friend void LockAll();
  friend void UnlockAll();
  void Link();

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  bool linked_ = false;  // written under the list's lock, read by __atomic
  Mutex* next_ = nullptr;
};

// Around fork: take, and give back, every mutex that was ever locked.
void LockAll();
void UnlockAll();

class Locked {
 public:
  explicit Locked(Mutex* mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~Locked() { mutex_->Unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Mutex* mutex_;
};

}  // namespace convtune::preload::process
