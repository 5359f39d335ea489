#include "query.h"

#include <stdio.h>
#include <time.h>

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = NULL;
  if (CUDNN_CALL(cudnnBackendCreateDescriptor)(type, &descriptor) != CUDNN_STATUS_SUCCESS) {
    fail("create", CUDNN_STATUS_INTERNAL_ERROR);
  }
  return descriptor;
}

static void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const cudnnStatus_t status =
      CUDNN_CALL(cudnnBackendSetAttribute)(descriptor, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) fail("set", status);
}

static void finalize(cudnnBackendDescriptor_t descriptor) {
  const cudnnStatus_t status = CUDNN_CALL(cudnnBackendFinalize)(descriptor);
  if (status != CUDNN_STATUS_SUCCESS) fail("finalize", status);
}

static void make_config(const struct problem* problem, const struct winner* winner) {
  cudnnBackendDescriptor_t engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t choices[MAX_WINNER_KNOBS];
  set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &problem->graph);
  set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &winner->engine);
  set(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &problem->device);
  finalize(engine);
  for (int i = 0; i < winner->knob_count; ++i) {
    choices[i] = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    set(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &winner->types[i]);
    set(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &winner->values[i]);
    finalize(choices[i]);
  }
  cudnnBackendDescriptor_t config = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  set(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
  set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, winner->knob_count,
      choices);
  finalize(config);
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(config);
  for (int i = 0; i < winner->knob_count; ++i) {
    CUDNN_CALL(cudnnBackendDestroyDescriptor)(choices[i]);
  }
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(engine);
}

static void engine_of(cudnnBackendDescriptor_t config, char* text, size_t size) {
  cudnnBackendDescriptor_t engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  int64_t count = 0, index = -1;
  CUDNN_CALL(cudnnBackendGetAttribute)
  (config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
  CUDNN_CALL(cudnnBackendGetAttribute)
  (engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index);
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(engine);
  snprintf(text, size, "eng%lld", (long long)index);
}

struct times QUERY(const struct options* options, const struct winner* winner, char* first,
                   size_t size) {
  struct problem problem;
  struct times times = {0, 0, 0, 0};
  double start = now_us();
  build_problem(options, &problem);
  times.graph_us = now_us() - start;

  cudnnBackendDescriptor_t heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  cudnnBackendDescriptor_t config = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int64_t count = 0;
  start = now_us();
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &problem.graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &options->modes[0]);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &problem.device);
  const double before = now_us();
  finalize(heuristics);
  times.finalize_us = now_us() - before;
  CUDNN_CALL(cudnnBackendGetAttribute)
  (heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL);
  CUDNN_CALL(cudnnBackendGetAttribute)
  (heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config);
  times.query_us = now_us() - start;
  engine_of(config, first, size);

  if (winner != NULL) {
    start = now_us();
    make_config(&problem, winner);
    times.config_us = now_us() - start;
  }
  start = now_us();
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(config);
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(heuristics);
  times.query_us += now_us() - start;
  destroy_problem(&problem);
  return times;
}
