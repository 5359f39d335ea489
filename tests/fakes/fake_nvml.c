/* A libnvidia-ml.so.1 for tests. CONVTUNE_FAKE_NVML says what the GPU at
 * 0000:01:00.0 is like: "processes=N,own=0|1,mps=N,reasons=N,limit=MILLIWATTS,
 * temperature=N,ecc=N,mig=0|1,mode=N,hot=NS,capped=NS,fail=0|1". What is left out is 0; with
 * fail=1 nvmlInit_v2 fails.
 *
 * CONVTUNE_FAKE_CARD names a folder. Xids, one a line, that are appended to the
 * file `xids` in it become events of sets that were registered before. The first
 * letter of the file `state` says how the GPU is: l is lost, g is gone from the
 * bus, r needs a reset by its recovery action, h hangs whoever asks, e reports
 * no events; else it works. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

static unsigned long long setting(const char *name) {
  const char *at = getenv("CONVTUNE_FAKE_NVML");
  const size_t length = strlen(name);
  while (at != NULL) {
    if (strncmp(at, name, length) == 0 && at[length] == '=') {
      return strtoull(at + length + 1, NULL, 10);
    }
    at = strchr(at, ',');
    if (at != NULL) ++at;
  }
  return 0;
}

static int list(unsigned others, int own, unsigned *count, struct process *processes) {
  const unsigned wanted = others + (own ? 1U : 0U);
  if (*count < wanted) {
    *count = wanted;
    return 7;
  }
  for (unsigned i = 0; i < wanted; ++i) {
    memset(&processes[i], 0, sizeof(processes[i]));
    processes[i].pid = i < others ? 4000000U + i : (unsigned)getpid();
  }
  *count = wanted;
  return 0;
}

int nvmlInit_v2(void) { return setting("fail") != 0 ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int result) {
  switch (result) {
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Not Found";
  }
}

static FILE *of_card(const char *name) {
  const char *folder = getenv("CONVTUNE_FAKE_CARD");
  char path[4096];
  if (folder == NULL) return NULL;
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return fopen(path, "r");
}

static int state(void) {
  FILE *file = of_card("state");
  int letter = file != NULL ? fgetc(file) : EOF;
  if (file != NULL) fclose(file);
  while (letter == 'h') pause();
  return letter;
}

static long told; /* bytes of `xids` */

static long size_of_xids(void) {
  FILE *file = of_card("xids");
  long size = 0;
  if (file == NULL) return 0;
  if (fseek(file, 0, SEEK_END) == 0) size = ftell(file);
  fclose(file);
  return size;
}

struct event {
  void *device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct field {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency;
  int type;
  int result;
  union {
    double real;
    unsigned number;
  } value;
};

int nvmlEventSetCreate(void **set) {
  *set = &told;
  return 0;
}
int nvmlEventSetFree(void *set) {
  (void)set;
  return 0;
}
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
  (void)device;
  (void)set;
  told = size_of_xids();
  return types == 8 && state() != 'e' ? 0 : 3;
}
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms) {
  (void)set;
  for (unsigned waited = 0; waited < timeout_ms; waited += 10) {
    FILE *file = of_card("xids");
    if (file != NULL) {
      unsigned long long xid = 0;
      const int found = fseek(file, told, SEEK_SET) == 0 && fscanf(file, "%llu", &xid) == 1 &&
                        fgetc(file) == '\n';
      if (found) told = ftell(file);
      fclose(file);
      if (found) {
        memset(event, 0, sizeof(*event));
        event->type = 8;
        event->data = xid;
        return 0;
      }
    }
    const struct timespec pause_for = {0, 10 * 1000 * 1000};
    nanosleep(&pause_for, NULL);
  }
  return 10;
}
int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
  (void)device;
  for (int i = 0; i < count; ++i) {
    fields[i].result = fields[i].field == 230 ? 0 : 3;
    fields[i].value.number = state() == 'r' ? 1 : 0;
  }
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
  static int card;
  const int is = state();
  *device = &card;
  if (is == 'l') return 15;
  if (is == 'g') return 6;
  return strcmp(id, "0000:01:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct process *list_to) {
  (void)device;
  return list((unsigned)setting("processes"), setting("own") != 0, count, list_to);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count,
                                               struct process *list_to) {
  (void)device;
  return list((unsigned)setting("mps"), 0, count, list_to);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) {
  (void)device;
  *reasons = setting("reasons");
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
  (void)device;
  *milliwatts = (unsigned)setting("limit");
  return 0;
}
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
  (void)device;
  *celsius = sensor == 0 ? (unsigned)setting("temperature") : 0;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *errors) {
  (void)device;
  *errors = type == 1 && counter == 0 ? setting("ecc") : 0;
  return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  (void)device;
  *current = (unsigned)setting("mig");
  *pending = *current;
  return 0;
}
int nvmlDeviceGetComputeMode(void *device, int *mode) {
  (void)device;
  *mode = (int)setting("mode");
  return 0;
}
int nvmlDeviceGetViolationStatus(void *device, int policy, unsigned long long *time) {
  (void)device;
  time[0] = 1;
  time[1] = policy == 1 ? setting("hot") : policy == 0 ? setting("capped") : 0;
  return 0;
}
