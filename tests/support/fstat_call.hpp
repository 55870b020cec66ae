// The system call by which this libc's fstat() asks the kernel.
#pragma once

#include <features.h>
#include <sys/syscall.h>

namespace hydrant::testing {

constexpr long kFstatCall = __GLIBC_PREREQ(2, 39) ? SYS_fstat : SYS_newfstatat;

}  // namespace hydrant::testing
