// The system call by which this libc's fstat() asks the kernel.
#pragma once

#include <features.h>
#include <sys/syscall.h>

namespace hydrant::testing {

#if __GLIBC_PREREQ(2, 39) || defined(__SANITIZE_THREAD__)  // its fstat() calls the old __fxstat()
constexpr long kFstatCall = SYS_fstat;
#else
constexpr long kFstatCall = SYS_newfstatat;
#endif

}  // namespace hydrant::testing
