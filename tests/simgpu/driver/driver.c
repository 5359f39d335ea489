// The simulated GPU's libcuda.so.1: four functions that device/kernels.cc looks
// up, which the program answers, and those that cuDNN looks for, without a device.
#include "tests/simgpu/driver/driver_table.h"

#define CONVTUNE_SIMULATED_DRIVER
#include "server/worker/device/driver_stub.c"

static const struct SimgpuDriverTable* driver_table;

void SimgpuSetDriverTable(const struct SimgpuDriverTable* table) { driver_table = table; }

// Their names, and parameters as C passes them.
#define ANSWER(function, member, parameters, arguments)                       \
  int function parameters;                                                    \
  int function parameters {                                                   \
    return driver_table != NULL ? driver_table->member arguments : kNoDevice; \
  }

ANSWER(cuModuleLoadDataEx, module_load_data_ex,
       (void** module, const void* image, unsigned count, int* options, void** values),
       (module, image, count, options, values))
ANSWER(cuModuleUnload, module_unload, (void* module), (module))
ANSWER(cuModuleGetFunction, module_get_function, (void** function, void* module, const char* name),
       (function, module, name))
ANSWER(cuLaunchKernel, launch_kernel,
       (void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
        unsigned bz, unsigned shared, void* stream, void** parameters, void** extra),
       (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
