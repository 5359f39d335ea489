/* One heuristics query as a framework makes it, timed in parts. Compiled twice:
 * hooked_query calls cuDNN as a linked program does, bare_query by the
 * addresses that the library itself gives. */
#ifndef TESTS_BENCH_QUERY_H_
#define TESTS_BENCH_QUERY_H_

#include "tests/programs/raw_calls.h"

#define MAX_WINNER_KNOBS 32

/* An engine config, as stored. */
struct winner {
  int64_t engine;
  int knob_count;
  cudnnBackendKnobType_t types[MAX_WINNER_KNOBS];
  int64_t values[MAX_WINNER_KNOBS];
};

struct times {
  double graph_us;    /* making the operation graph's descriptors */
  double query_us;    /* all calls of the query: setting, finalising, fetching, destroying */
  double finalize_us; /* finalising the heuristics alone */
  double config_us;   /* with a winner: making its engine config by hand */
};

/* The first config goes through `first` ("eng34,k2=5"). `winner` may be NULL. */
struct times hooked_query(const struct options* options, const struct winner* winner, char* first,
                          size_t size);
struct times bare_query(const struct options* options, const struct winner* winner, char* first,
                        size_t size);

#endif
