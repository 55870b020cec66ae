// Runs a table of calls under a condition that a program may meet in the field: a shortage, a system call
// that a filter refuses, signals, a pending cancellation. cells.py chooses the condition and judges.
//
// The outcomes lie in a file that all processes of the run map, because the program may be unable to write
// anything else. cells.py knows the layout of these structures.
#pragma once

#include <atomic>
#include <cstdint>

namespace field {

constexpr unsigned kRanks = 2;
constexpr unsigned kRows = 512;
constexpr unsigned kCalls = 512;  // more than the kernel's system calls

// A row of the table: public functions that are called together, and what calls them.
struct Row {
  const char* names;  // separated by blanks
  void (*run)();      // tells a failure by refused() and wrong()
};

enum Outcome : uint32_t {
  kNotReached,
  kStarted,
  kDone,       // all calls have returned what they should
  kRefused,    // a call has returned a code with a text
  kSilent,     // a call has returned a code, and there is no text
  kWrong,      // data or a result is not what it should be
  kCancelled,  // a thread with a pending cancellation has ended inside a call
  kLeak,       // a descriptor is open that was not before
};

struct Cell {
  std::atomic<uint32_t> outcome;
  int32_t code;
  char text[248];
};

struct Page {
  std::atomic<uint32_t> step[kRanks];      // counts rows; the driver sees a hang by it
  std::atomic<uint32_t> condition_failed;  // an errno: the condition could not be made
  std::atomic<uint8_t> used[2][kCalls];  // system calls: [0] before the end of init, [1] afterwards
  Cell cells[kRanks][kRows];
};

// In a row: a call has returned `code`, with the text of hydrant_error_text() or another one; or something is
// not what it should be. Both return false.
bool refused(int code, const char* text);
bool wrong(const char* what);

Page& page_of_run();

// ---- for the main functions ----

// Maps the outcomes; `poll` is called while this process waits for the others. Returns false after it has
// printed the names, if the arguments ask for them.
bool begin(int argc, char** argv, const Row* rows, unsigned count, unsigned ranks, void (*poll)());
// Makes the condition if it is to begin here.
void before_init();
// Init has failed with this code. Returns the exit status.
int init_failed(int code);
void after_init(unsigned rank);
// Runs each row as often as the condition says.
void run_rows();
// Returns when all processes have called it as often as this one.
void meet();

}  // namespace field

// Ends a row unless the call has returned 0.
#define FIELD_DO(call)                                                     \
  do {                                                                     \
    const int field_code = (call);                                         \
    if (field_code != 0) return (void)field::refused(field_code, nullptr); \
  } while (0)
// Ends a row if a result is not what it should be.
#define FIELD_IS(condition)                                  \
  do {                                                       \
    if (!(condition)) return (void)field::wrong(#condition); \
  } while (0)
