/* Lists engine configs as frameworks do, filters them, builds plans, and prints
 * what it got. See parse_options for the arguments. */
#include "raw_calls.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CONFIGS 512
#define MAX_KNOBS 64

static int64_t get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, void* values) {
  int64_t got = 0;
  const cudnnStatus_t status =
      CUDNN_CALL(cudnnBackendGetAttribute)(descriptor, name, type, count, &got, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    fail("get", status);
  }
  return got < count ? got : count;
}

static cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = NULL;
  const cudnnStatus_t status = CUDNN_CALL(cudnnBackendCreateDescriptor)(type, &descriptor);
  if (status != CUDNN_STATUS_SUCCESS) {
    fail("create", status);
  }
  return descriptor;
}

/* Prints "eng34,k2=5" and returns the engine's numerical notes. */
static uint32_t describe(cudnnBackendDescriptor_t config, char* text, size_t size) {
  cudnnBackendDescriptor_t engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
  int64_t index = -1;
  get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  uint32_t mask = 0;
  const int64_t noted = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  for (int64_t i = 0; i < noted; ++i) {
    mask |= 1U << (notes[i] + 1);
  }
  int64_t knob_count = 0;
  CUDNN_CALL(cudnnBackendGetAttribute)
  (engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &knob_count, NULL);
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(engine);

  int64_t values[MAX_KNOBS];
  int present[MAX_KNOBS] = {0};
  cudnnBackendDescriptor_t choices[MAX_KNOBS];
  if (knob_count > MAX_KNOBS) knob_count = MAX_KNOBS;
  for (int64_t i = 0; i < knob_count; ++i) {
    choices[i] = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  }
  const int64_t chosen = knob_count == 0 ? 0
                                         : get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, knob_count, choices);
  for (int64_t i = 0; i < chosen; ++i) {
    cudnnBackendKnobType_t type = 0;
    int64_t value = 0;
    get(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    get(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    if ((int)type < MAX_KNOBS) {
      present[type] = 1;
      values[type] = value;
    }
  }
  for (int64_t i = 0; i < knob_count; ++i) {
    CUDNN_CALL(cudnnBackendDestroyDescriptor)(choices[i]);
  }
  int used = snprintf(text, size, "eng%lld", (long long)index);
  for (int type = 0; type < MAX_KNOBS; ++type) {
    if (present[type] && used > 0 && (size_t)used < size) {
      used +=
          snprintf(text + used, size - (size_t)used, ",k%d=%lld", type, (long long)values[type]);
    }
  }
  return mask;
}

/* A plan, or NULL if it cannot be built. */
static cudnnBackendDescriptor_t build_plan(const struct problem* problem,
                                           cudnnBackendDescriptor_t config, int64_t* workspace) {
  cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  *workspace = -1;
  CUDNN_CALL(cudnnBackendSetAttribute)
  (plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
  CUDNN_CALL(cudnnBackendSetAttribute)
  (plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &problem->device);
  if (CUDNN_CALL(cudnnBackendFinalize)(plan) != CUDNN_STATUS_SUCCESS) {
    CUDNN_CALL(cudnnBackendDestroyDescriptor)(plan);
    return NULL;
  }
  get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, workspace);
  return plan;
}

struct tally {
  int listed, kept, finalised, worked;
  char chosen[512];
  cudnnBackendDescriptor_t plans[MAX_CONFIGS];
  int plan_count;
};

static void run_mode(const struct options* options, const struct problem* problem,
                     cudnnBackendHeurMode_t mode, struct tally* tally, FILE* out) {
  cudnnBackendDescriptor_t heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  CUDNN_CALL(cudnnBackendSetAttribute)
  (heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
   &problem->graph);
  CUDNN_CALL(cudnnBackendSetAttribute)
  (heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  CUDNN_CALL(cudnnBackendSetAttribute)
  (heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
   &problem->device);
  const cudnnStatus_t status = CUDNN_CALL(cudnnBackendFinalize)(heuristics);
  int64_t count = 0;
  cudnnBackendDescriptor_t configs[MAX_CONFIGS];
  if (status == CUDNN_STATUS_SUCCESS) {
    CUDNN_CALL(cudnnBackendGetAttribute)
    (heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL);
  }
  int64_t ask = options->ask > 0 ? options->ask : count;
  if (ask > MAX_CONFIGS) ask = MAX_CONFIGS;
  for (int64_t i = 0; i < ask; ++i) {
    configs[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  }
  int64_t got = 0;
  if (ask > 0 && status == CUDNN_STATUS_SUCCESS) {
    CUDNN_CALL(cudnnBackendGetAttribute)
    (heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ask, &got, configs);
  }
  fprintf(out, "{\"mode\":%d,\"status\":%d,\"count\":%lld,\"got\":%lld,\"configs\":[", (int)mode,
          (int)status, (long long)count, (long long)got);
  if (got > ask) got = ask;
  for (int64_t i = 0; i < got; ++i) {
    char text[512];
    const uint32_t notes = describe(configs[i], text, sizeof text);
    ++tally->listed;
    fprintf(out, "%s{\"id\":\"%s\",\"notes\":%u", i > 0 ? "," : "", text, notes);
    if ((notes & options->deny_notes) == 0) {
      ++tally->kept;
      if (options->build_plans == 2 || (options->build_plans == 1 && tally->worked == 0)) {
        ++tally->finalised;
        int64_t workspace;
        cudnnBackendDescriptor_t plan = build_plan(problem, configs[i], &workspace);
        if (plan != NULL && tally->plan_count < MAX_CONFIGS) {
          tally->plans[tally->plan_count++] = plan;
        }
        fprintf(out, ",\"workspace\":%lld", (long long)workspace);
        if (workspace >= 0 && (options->max_workspace < 0 || workspace <= options->max_workspace)) {
          if (tally->worked++ == 0) memcpy(tally->chosen, text, sizeof text);
        }
      }
    }
    fprintf(out, "}");
  }
  fprintf(out, "]}");
  for (int64_t i = 0; i < ask; ++i) {
    CUDNN_CALL(cudnnBackendDestroyDescriptor)(configs[i]);
  }
  CUDNN_CALL(cudnnBackendDestroyDescriptor)(heuristics);
}

/* As a program that searches: it tries every plan and keeps to one. */
static void settle(const struct options* options, const struct tally* tally) {
  if (options->execute == 0 || tally->plan_count == 0) {
    return;
  }
  for (int i = 0; i < 2 * tally->plan_count + options->execute; ++i) {
    const int plan = i / 2 < tally->plan_count ? i / 2 : tally->plan_count - 1;
    const cudnnStatus_t status = CUDNN_CALL(cudnnBackendExecute)(NULL, tally->plans[plan], NULL);
    if (status != CUDNN_STATUS_SUCCESS) {
      fail("execute", status);
    }
  }
}

int run_problem(const struct options* options) {
  char* buffer = NULL;
  size_t size = 0;
  FILE* out = open_memstream(&buffer, &size);
  struct problem problem;
  struct tally tally;
  memset(&tally, 0, sizeof tally);
  build_problem(options, &problem);
  fprintf(out, "{\"modes\":[");
  for (int i = 0; i < options->mode_count; ++i) {
    if (i > 0) fprintf(out, ",");
    run_mode(options, &problem, options->modes[i], &tally, out);
  }
  settle(options, &tally);
  for (int i = 0; i < tally.plan_count; ++i) {
    CUDNN_CALL(cudnnBackendDestroyDescriptor)(tally.plans[i]);
  }
  destroy_problem(&problem);
  fprintf(out,
          "],\"listed\":%d,\"kept\":%d,\"plan_finalisations\":%d,\"plans\":%d,\"chosen\":\"%s\"}\n",
          tally.listed, tally.kept, tally.finalised, tally.worked, tally.chosen);
  fclose(out);
  if (!options->quiet) {
    fwrite(buffer, 1, size, stdout);
    fflush(stdout);
  }
  free(buffer);
  return options->build_plans > 0 && tally.worked == 0;
}

static void* thread_main(void* argument) {
  const struct options* options = argument;
  intptr_t failed = 0;
  for (int i = 0; i < options->repeat; ++i) {
    if (i == 1 && options->touch != NULL) {
      close(open(options->touch, O_WRONLY | O_CREAT, 0644));
    }
    failed |= run_problem(options);
  }
  return (void*)failed;
}

static int run_all(int argc, char** argv) {
  struct options options;
  parse_options(argc, argv, &options);
  pthread_t threads[256];
  int failed = 0;
  for (int i = 1; i < options.threads; ++i) {
    if (pthread_create(&threads[i], NULL, thread_main, &options) != 0) return 2;
  }
  failed |= thread_main(&options) != NULL;
  for (int i = 1; i < options.threads; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    failed |= result != NULL;
  }
  if (options.fork_after) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      exit(thread_main(&options) != NULL);
    }
    int status = 1;
    waitpid(child, &status, 0);
    failed |= status != 0;
  }
  return failed;
}

int raw_main(int argc, char** argv) {
  int failed = 0;
  for (int begin = 0; begin < argc;) {
    int end = begin + 1;
    while (end < argc && strcmp(argv[end], "then") != 0) ++end;
    failed |= run_all(end - begin, argv + begin);
    begin = end;
  }
  return failed;
}
