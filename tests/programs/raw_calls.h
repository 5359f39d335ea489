/* A program of raw backend calls, as frameworks make them. */
#ifndef TESTS_PROGRAMS_RAW_CALLS_H_
#define TESTS_PROGRAMS_RAW_CALLS_H_

#include <stdint.h>

#include "cudnn_calls.h"

#define MAX_RANK 5
#define MAX_MODES 4

struct options {
  const char* profile; /* file with device properties */
  int operation;       /* 0 fwd, 1 bwd_data, 2 bwd_filter */
  int rank;
  int64_t x[MAX_RANK], w[MAX_RANK];
  int64_t pad[3], stride[3], dilation[3];
  cudnnDataType_t type, mid, compute;
  int nhwc;
  int bias, relu, add;
  float alpha2; /* of the add, as PyTorch scales it */
  int64_t alignment;
  int mode_count;
  cudnnBackendHeurMode_t modes[MAX_MODES];
  uint32_t deny_notes;   /* skip configs with one of these numerical notes */
  int64_t max_workspace; /* -1: any */
  int build_plans;       /* 0 none, 1 until the first works, 2 all */
  int threads, repeat;
  int ask;           /* request at most so many results; 0: the count */
  int fork_after;    /* do the work again in a child */
  const char* touch; /* create this file before the second repeat */
  int quiet;
  int execute; /* run every plan twice, then the last one so often */
};

void fail(const char* what, cudnnStatus_t status);
void parse_options(int argc, char** argv, struct options* options);

/* Descriptors of one problem; all are destroyed by destroy_problem. */
struct problem {
  cudnnBackendDescriptor_t device;
  cudnnBackendDescriptor_t graph;
  cudnnBackendDescriptor_t parts[32];
  int part_count;
};
void build_problem(const struct options* options, struct problem* problem);
void destroy_problem(struct problem* problem);

/* Queries every mode, filters, builds plans and prints one JSON line. */
int run_problem(const struct options* options);
/* The whole program; problems are separated by "then". */
int raw_main(int argc, char** argv);

#endif
