// For the program that runs jemalloc under the thread sanitizer: before a fork jemalloc takes more locks
// than the sanitizer's search for lock cycles can follow. The other program of this folder is searched.
extern "C" const char*
__tsan_default_options();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name
extern "C" const char* __tsan_default_options() { return "detect_deadlocks=0"; }
