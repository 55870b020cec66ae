/* HYDRANT_TEST_PATIENCE: the factor of all positive waits of tests, 1 if it is not set. A positive wait is
 * for something that has to happen, so that only a failure pays for it. C++ has patience.hpp. */
#ifndef TESTS_SUPPORT_PATIENCE_H
#define TESTS_SUPPORT_PATIENCE_H

#include <stdlib.h>
#include <unistd.h>

static inline double hydrant_test_patience(void) {
  const char* text = getenv("HYDRANT_TEST_PATIENCE");
  const double times = text ? strtod(text, NULL) : 1;
  return times > 0 ? times : 1;
}

/* alarm(): the end of a program that hangs. */
static inline void hydrant_test_alarm(unsigned seconds) {
  const double longest = seconds * hydrant_test_patience();
  unsigned whole = 1;
  while (whole < longest) ++whole;
  alarm(whole);
}

#endif
