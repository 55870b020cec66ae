// Statistics of the monitor's reader thread from /proc. They distinguish waiting for a processor or the
// kernel from waiting for a lock, which would add sleeps to the one before each report.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <string>

namespace hydrant::bench {

struct ThreadCounts {
  uint64_t run_ns = 0;    // on a processor
  uint64_t ready_ns = 0;  // ready to run, but not running
  uint64_t sleeps = 0;    // voluntary context switches
};

// Costs some system calls. All 0 if there is no such thread.
class ReaderThread {
 public:
  ThreadCounts counts() {
    ThreadCounts counts;
    if (task_.empty() && !find()) return counts;
    if (FILE* file = std::fopen((task_ + "/schedstat").c_str(), "re")) {
      unsigned long long run = 0;
      unsigned long long ready = 0;
      if (std::fscanf(file, "%llu %llu", &run, &ready) == 2) {
        counts.run_ns = run;
        counts.ready_ns = ready;
      }
      std::fclose(file);
    }
    if (FILE* file = std::fopen((task_ + "/status").c_str(), "re")) {
      char line[256];
      unsigned long long sleeps = 0;
      while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::sscanf(line, "voluntary_ctxt_switches: %llu", &sleeps) == 1)
          counts.sleeps = sleeps;
      }
      std::fclose(file);
    }
    return counts;
  }

 private:
  bool find() {
    DIR* tasks = opendir("/proc/self/task");
    if (tasks == nullptr) return false;
    while (const dirent* entry = readdir(tasks)) {
      const std::string task = std::string("/proc/self/task/") + entry->d_name;
      char name[32] = "";
      if (FILE* file = std::fopen((task + "/comm").c_str(), "re")) {
        if (std::fgets(name, sizeof name, file) != nullptr &&
            std::strcmp(name, "hydrant-watch\n") == 0) {
          task_ = task;
        }
        std::fclose(file);
      }
    }
    closedir(tasks);
    return !task_.empty();
  }

  std::string task_;
};

}  // namespace hydrant::bench
