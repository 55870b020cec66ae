/* The address range of fake device memory: below all memory that a process may map. */
#ifndef FAKE_CUDA_DRIVER_H
#define FAKE_CUDA_DRIVER_H

#define FAKE_DEVICE_FIRST 0x1000
#define FAKE_DEVICE_END 0x10000

#endif
