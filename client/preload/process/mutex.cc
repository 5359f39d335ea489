#include "client/preload/process/mutex.h"

namespace convtune::preload::process {
namespace {

pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
Mutex* list = nullptr;

}  // namespace

void Mutex::Link() {
  pthread_mutex_lock(&list_mutex);
  if (!linked_) {
    next_ = list;
    list = this;
    __atomic_store_n(&linked_, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&list_mutex);
}

void Mutex::Lock() {
  if (!__atomic_load_n(&linked_, __ATOMIC_ACQUIRE)) {
    Link();
  }
  pthread_mutex_lock(&mutex_);
}

void LockAll() {
  pthread_mutex_lock(&list_mutex);
  for (Mutex* mutex = list; mutex != nullptr; mutex = mutex->next_) {
    pthread_mutex_lock(&mutex->mutex_);
  }
}

void UnlockAll() {
  for (Mutex* mutex = list; mutex != nullptr; mutex = mutex->next_) {
    pthread_mutex_unlock(&mutex->mutex_);
  }
  pthread_mutex_unlock(&list_mutex);
}

}  // namespace convtune::preload::process
