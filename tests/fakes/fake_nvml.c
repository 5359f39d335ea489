/* A libnvidia-ml.so.1 for tests. CONVTUNE_FAKE_NVML says what the card at
 * 0000:01:00.0 is like: "processes=N,own=0|1,mps=N,reasons=N,limit=MILLIWATTS,
 * temperature=N,ecc=N,mig=0|1,mode=N,fail=0|1". What is left out is 0; with
 * fail=1 nvmlInit_v2 fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
const char *nvmlErrorString(int result) { return result == 9 ? "Driver Not Loaded" : "Not Found"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
  static int card;
  *device = &card;
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
