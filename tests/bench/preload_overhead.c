/* What the interposer costs, bare and hooked calls interleaved in one process:
 *   convtune-bench-preload ROUNDS WINNER OPTIONS...
 * WINNER is "-" for a problem that the snapshot does not have, else the stored
 * engine config. Prints the medians in microseconds as JSON. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query.h"

#define MAX_ROUNDS 100000

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Reads "eng45,k2=4,k5=3". */
static void read_winner(const char* text, struct winner* winner) {
  char* end = NULL;
  memset(winner, 0, sizeof *winner);
  winner->engine = strtoll(text + 3, &end, 10);
  while (*end == ',' && winner->knob_count < MAX_WINNER_KNOBS) {
    winner->types[winner->knob_count] = (cudnnBackendKnobType_t)strtol(end + 2, &end, 10);
    winner->values[winner->knob_count++] = strtoll(end + 1, &end, 10);
  }
}

/* Past the interposer's dlsym. */
void* bare_look_up(void* handle, const char* name) {
  static void* (*look_up)(void*, const char*);
  if (look_up == NULL) {
    *(void**)&look_up = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "dlsym", "GLIBC_2.34");
  }
  return look_up(handle, name);
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s ROUNDS WINNER OPTIONS...\n", argv[0]);
    return 2;
  }
  const int rounds = atoi(argv[1]);
  const int hit = strcmp(argv[2], "-") != 0;
  struct winner winner;
  struct options options;
  if (rounds < 1 || rounds > MAX_ROUNDS) return 2;
  if (hit) read_winner(argv[2], &winner);
  parse_options(argc - 2, argv + 2, &options);
  double* values[7];
  for (int i = 0; i < 7; ++i) values[i] = calloc((size_t)rounds, sizeof(double));
  char hooked_first[64], bare_first[64];
  for (int i = -20; i < rounds; ++i) {
    struct times bare, hooked;
    /* Which goes first changes, so that caches favour neither. */
    if (i % 2 == 0) {
      bare = bare_query(&options, hit ? &winner : NULL, bare_first, sizeof bare_first);
      hooked = hooked_query(&options, NULL, hooked_first, sizeof hooked_first);
    } else {
      hooked = hooked_query(&options, NULL, hooked_first, sizeof hooked_first);
      bare = bare_query(&options, hit ? &winner : NULL, bare_first, sizeof bare_first);
    }
    if (i < 0) continue;
    values[0][i] = bare.graph_us;
    values[1][i] = hooked.graph_us;
    values[2][i] = bare.query_us;
    values[3][i] = hooked.query_us;
    values[4][i] = bare.config_us;
    values[6][i] = hooked.finalize_us - bare.finalize_us;
    values[5][i] = hooked.query_us - bare.query_us - bare.config_us;
  }
  printf(
      "{\"hit\":%d,\"rounds\":%d,\"bare_first\":\"%s\",\"hooked_first\":\"%s\","
      "\"bare_graph_us\":%.3f,\"hooked_graph_us\":%.3f,\"bare_query_us\":%.3f,"
      "\"hooked_query_us\":%.3f,\"bare_config_us\":%.3f,\"over_us\":%.3f,\"finalize_over_us\":%.3f}"
      "\n",
      hit, rounds, bare_first, hooked_first, median(values[0], rounds), median(values[1], rounds),
      median(values[2], rounds), median(values[3], rounds), median(values[4], rounds),
      median(values[5], rounds), median(values[6], rounds));
  return 0;
}
