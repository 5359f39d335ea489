#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw_calls.h"

static int numbers(const char* text, int64_t* values, int most) {
  int count = 0;
  char* end = NULL;
  while (*text != '\0' && count < most) {
    values[count++] = strtoll(text, &end, 10);
    text = *end == '\0' ? end : end + 1;
  }
  return count;
}

static cudnnDataType_t type_of(const char* name) {
  if (strcmp(name, "f16") == 0) return CUDNN_DATA_HALF;
  if (strcmp(name, "bf16") == 0) return CUDNN_DATA_BFLOAT16;
  return CUDNN_DATA_FLOAT;
}

static int modes_of(const char* text, cudnnBackendHeurMode_t* modes) {
  int count = 0;
  for (; *text != '\0' && count < MAX_MODES; ++text) {
    modes[count++] = *text == 'i'   ? CUDNN_HEUR_MODE_INSTANT
                     : *text == 'b' ? CUDNN_HEUR_MODE_B
                     : *text == 'f' ? CUDNN_HEUR_MODE_FALLBACK
                                    : CUDNN_HEUR_MODE_A;
  }
  return count;
}

void parse_options(int argc, char** argv, struct options* o) {
  memset(o, 0, sizeof *o);
  for (int i = 0; i < 3; ++i) {
    o->stride[i] = o->dilation[i] = 1;
  }
  o->type = o->mid = o->compute = CUDNN_DATA_FLOAT;
  o->alignment = 16;
  o->alpha2 = 1;
  o->max_workspace = -1;
  o->threads = o->repeat = 1;
  o->mode_count = modes_of("af", o->modes);
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    const char* equals = strchr(name, '=');
    const char* value = equals == NULL ? "" : equals + 1;
    const size_t n = equals == NULL ? strlen(name) : (size_t)(equals - name);
#define IS(text) (n == sizeof(text) - 1 && memcmp(name, text, n) == 0)
    if (IS("profile"))
      o->profile = value;
    else if (IS("op"))
      o->operation = strcmp(value, "bwd_data") == 0 ? 1 : strcmp(value, "bwd_filter") == 0 ? 2 : 0;
    else if (IS("x"))
      o->rank = numbers(value, o->x, MAX_RANK);
    else if (IS("w"))
      numbers(value, o->w, MAX_RANK);
    else if (IS("pad"))
      numbers(value, o->pad, 3);
    else if (IS("stride"))
      numbers(value, o->stride, 3);
    else if (IS("dilation"))
      numbers(value, o->dilation, 3);
    else if (IS("type"))
      o->type = type_of(value);
    else if (IS("mid"))
      o->mid = type_of(value);
    else if (IS("nhwc"))
      o->nhwc = 1;
    else if (IS("add"))
      o->add = 1;
    else if (IS("bias"))
      o->bias = 1;
    else if (IS("relu"))
      o->relu = 1;
    else if (IS("alpha2"))
      o->alpha2 = (float)atof(value);
    else if (IS("align"))
      o->alignment = atoll(value);
    else if (IS("modes"))
      o->mode_count = modes_of(value, o->modes);
    else if (IS("deny"))
      o->deny_notes = (uint32_t)strtoul(value, NULL, 0);
    else if (IS("max-workspace"))
      o->max_workspace = atoll(value);
    else if (IS("build"))
      o->build_plans = strcmp(value, "all") == 0 ? 2 : 1;
    else if (IS("threads"))
      o->threads = atoi(value);
    else if (IS("repeat"))
      o->repeat = atoi(value);
    else if (IS("ask"))
      o->ask = atoi(value);
    else if (IS("fork"))
      o->fork_after = 1;
    else if (IS("execute"))
      o->execute = atoi(value);
    else if (IS("touch"))
      o->touch = value;
    else if (IS("quiet"))
      o->quiet = 1;
    else {
      fprintf(stderr, "unknown option %s\n", name);
      exit(2);
    }
#undef IS
  }
  if (o->profile == NULL || o->rank < 4 || o->threads < 1 || o->threads > 256) {
    fprintf(stderr, "profile=, x= and w= are needed; threads from 1 to 256\n");
    exit(2);
  }
}
