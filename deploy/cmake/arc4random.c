// libstdc++'s archive takes arc4random from glibc, which has it since 2.36. With
// one of their own the portable programs run on older ones.
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

uint32_t arc4random(void) {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}
