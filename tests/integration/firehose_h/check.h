/* Shared by the C programs of this folder: checks that end the program, calls that must abort with a
 * text, and selection of a scenario by name. Header only. */
#ifndef TESTS_FIREHOSE_H_CHECK_H
#define TESTS_FIREHOSE_H_CHECK_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/patience.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                               \
    }                                                                         \
  } while (0)

typedef struct {
  const char* name;
  void (*run)(void);
} scenario_t;

/* Runs the scenario named in argv; returns 0 if it passed. */
static inline int run_scenario(const scenario_t* all, size_t n, int argc, char** argv) {
  size_t i;
  for (i = 0; argc == 2 && i < n; ++i) {
    if (strcmp(all[i].name, argv[1]) != 0) continue;
    hydrant_test_alarm(120); /* a hang is a failure, because no scenario waits for long */
    all[i].run();
    return 0;
  }
  fprintf(stderr, "usage: %s SCENARIO, one of:\n", argv[0]);
  for (i = 0; i < n; ++i) fprintf(stderr, "  %s\n", all[i].name);
  return 2;
}

/* Runs `run` in a child and reads its standard error; *status is from waitpid(). */
static inline void run_and_read(void (*run)(void), char* text, size_t room, int* status) {
  FILE* output = tmpfile();
  pid_t child;
  CHECK(output != NULL);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(fileno(output), STDERR_FILENO);
    run();
    _exit(0);
  }
  CHECK(waitpid(child, status, 0) == child);
  rewind(output);
  text[fread(text, 1, room - 1, output)] = '\0';
  fclose(output);
}

static inline void check_aborts(void (*run)(void), const char* expected) {
  char text[8192];
  int status;
  run_and_read(run, text, sizeof text, &status);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, expected)) {
    fprintf(stderr, "expected abort with \"%s\"; status %d, output:\n%s\n", expected, status, text);
    _exit(1);
  }
}

static inline void check_says(void (*run)(void), const char* expected) {
  char text[8192];
  int status;
  run_and_read(run, text, sizeof text, &status);
  if (status != 0 || !strstr(text, expected)) {
    fprintf(stderr, "expected success and \"%s\"; status %d, output:\n%s\n", expected, status,
            text);
    _exit(1);
  }
}

static inline void check_says_once(void (*run)(void), const char* expected) {
  char text[8192];
  const char* first;
  int status;
  run_and_read(run, text, sizeof text, &status);
  first = strstr(text, expected);
  if (status != 0 || !first || strstr(first + 1, expected)) {
    fprintf(stderr, "expected success and \"%s\" once; status %d, output:\n%s\n", expected, status,
            text);
    _exit(1);
  }
}

#endif
