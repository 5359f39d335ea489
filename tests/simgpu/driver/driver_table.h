/* The driver's functions that the simulated GPU has, by which its libcuda.so.1
   (driver.c) calls into the program that the GPU is in. The types are those of
   the calls as C passes them: the library includes no header of CUDA. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct SimgpuDriverTable {
  int (*module_load_data_ex)(void** module, const void* image, unsigned option_count, int* options,
                             void** values);
  int (*module_unload)(void* module);
  int (*module_get_function)(void** function, void* module, const char* name);
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       void* stream, void** parameters, void** extra);
};

/* Until this is called, the four have no device either. The table stays in use. */
void SimgpuSetDriverTable(const struct SimgpuDriverTable* table);

#ifdef __cplusplus
}
#endif
