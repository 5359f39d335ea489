/* The program's work is in a library that is loaded by hand:
 *   PROGRAM global|local|deepbind LIBRARY ARGUMENTS... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s global|local|deepbind LIBRARY ARGUMENTS...\n", argv[0]);
    return 2;
  }
  const int scope = strcmp(argv[1], "global") == 0     ? RTLD_GLOBAL
                    : strcmp(argv[1], "deepbind") == 0 ? RTLD_LOCAL | RTLD_DEEPBIND
                                                       : RTLD_LOCAL;
  void* library = dlopen(argv[2], RTLD_NOW | scope);
  int (*run)(int, char**) = NULL;
  if (library != NULL) {
    *(void**)&run = dlsym(library, "raw_main");
  }
  if (run == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  return run(argc - 2, argv + 2);
}
