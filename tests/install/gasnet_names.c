/* Checks that names and files exist that clients of GASNet use beside its API. A second object of the
 * programs of gasnet_layout.sh. */
#include <gasnetex.h>

#include <gasnet_core.h>
#include <gasnet_portable_platform.h>
#include <gasnet_tools.h>

#if !PLATFORM_OS_LINUX
#error gasnet_portable_platform.h does not say what this is
#endif

typedef void (*function_t)(void);
extern const function_t mentioned[2];
const function_t mentioned[2] = {(function_t)_gasneti_threadkey_init,
                                 (function_t)_gasnett_trace_printf_noop};
