// Settings and their display (GASNET_VERBOSEENV). Each name is displayed once. Lines are queued until
// the job knows whether this rank displays settings. Called by clients and by the job's start.
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>

#include "am/tools/console.hpp"
#include "am/tools/job_hooks.hpp"
#include "am/tools/numbers.hpp"
#include "am/tools/settings.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/thread.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr size_t kNumberBytes = 40;

struct Displayed {
  Displayed* next;
  char* key;
  char* pending_line;  // null once written
};

// Names that have been displayed, one entry each. Entries are never removed.
struct DisplayList {
  Mutex mutex;
  Displayed* first HYDRANT_GUARDED_BY(mutex) = nullptr;
  Displayed** end HYDRANT_GUARDED_BY(mutex) = nullptr;
};
constinit DisplayList g_displayed;

// Allocates the text, because its length is not bounded.
char* format_line(const char* key, const char* value, const char* note) noexcept {
  constexpr int kColumns = 55;  // column at which notes end
  int width = kColumns - static_cast<int>(std::strlen(key) + std::strlen(value));
  if (width < 10) width = 10;
  char* line = nullptr;
  const int len = *note != '\0'
                      ? asprintf(&line, "ENV parameter: %s = %s%*s\n", key, value, width, note)
                      : asprintf(&line, "ENV parameter: %s = %s\n", key, value);
  return len < 0 ? nullptr : line;
}

bool is_known_locked(const char* key) noexcept HYDRANT_REQUIRES(g_displayed.mutex) {
  for (const Displayed* entry = g_displayed.first; entry != nullptr; entry = entry->next) {
    if (std::strcmp(entry->key, key) == 0) return true;
  }
  return false;
}

void write_pending_locked() noexcept HYDRANT_REQUIRES(g_displayed.mutex) {
  for (Displayed* entry = g_displayed.first; entry != nullptr; entry = entry->next) {
    if (entry->pending_line == nullptr) continue;
    (void)write_quietly(STDERR_FILENO, entry->pending_line, std::strlen(entry->pending_line));
    std::free(entry->pending_line);
    entry->pending_line = nullptr;
  }
}

void display(const char* key, const char* value, const char* note) noexcept {
  const int shows = hydrant_tools_verboseenv();
  if (shows == 0) return;
  const MutexLock lock(g_displayed.mutex);
  if (!is_known_locked(key)) {
    auto* const entry = static_cast<Displayed*>(std::malloc(sizeof(Displayed)));
    char* const key_copy = strdup(key);
    if (entry == nullptr || key_copy == nullptr) {
      std::free(entry);
      std::free(key_copy);
      return;  // no memory: skip the line
    }
    *entry = {nullptr, key_copy, format_line(key, value, note)};
    if (g_displayed.first == nullptr) g_displayed.end = &g_displayed.first;
    *g_displayed.end = entry;
    g_displayed.end = &entry->next;
  }
  if (shows > 0) write_pending_locked();
}

// Displays a number together with the text that it was parsed from, if they differ.
void display_number(const char* key, const char* number, bool is_default) noexcept {
  const char* const raw = hydrant_tools_getenv(key);
  if (is_default || raw == nullptr || std::strcmp(raw, number) == 0) {
    hydrant_tools_envstr_display(key, number, is_default);
    return;
  }
  char* both = nullptr;
  if (asprintf(&both, "%s (%s)", raw, number) < 0) return;
  hydrant_tools_envstr_display(key, both, 0);
  std::free(both);
}

// Warns once per name, however often the setting is read.
void warn_of_rest(const char* key, const char* text, const ParsedInteger& parsed) noexcept {
  constinit static Mutex mutex;
  static char last_key[128];
  const MutexLock lock(mutex);
  if (std::strncmp(last_key, key, sizeof last_key - 1) == 0) return;
  std::snprintf(last_key, sizeof last_key, "%s", key);
  console_message("WARNING", "%s=%s: '%s' is not a unit and is ignored; %" PRId64 " is used", key,
                  text, parsed.rest, parsed.value);
}

// True once per name.
bool is_first_report(const char* name) noexcept {
  constinit static Mutex mutex;
  static char names[16][48];
  const MutexLock lock(mutex);
  for (auto& known : names) {
    if (std::strncmp(known, name, sizeof known - 1) == 0) return false;
    if (*known != '\0') continue;
    std::snprintf(known, sizeof known, "%s", name);
    return true;
  }
  return false;
}

}  // namespace

void report_invalid(const char* name, const char* text, const char* valid) noexcept {
  if (tools_rank() > 0 || !is_first_report(name)) return;
  console_message("WARNING", "%s=%s: invalid value; set %s; the default is used", name, text,
                  valid);
}

bool is_switched_on(const char* text, bool otherwise) noexcept {
  const int parsed = text != nullptr ? parse_switch(text) : -1;
  return parsed < 0 ? otherwise : parsed != 0;
}

bool switch_of(const char* name, const char* text, bool otherwise) noexcept {
  if (text != nullptr && *text != '\0' && parse_switch(text) < 0)
    report_invalid(name, text, "y or n");
  return is_switched_on(text, otherwise);
}

bool read_switch(const char* name, bool otherwise) noexcept {
  const char* const text = hydrant_tools_getenv(name);
  const bool is_on = switch_of(name, text, otherwise);
  const bool is_default = text == nullptr || parse_switch(text) < 0;
  hydrant_tools_envstr_display(name, is_on ? "YES" : "NO", is_default ? 1 : 0);
  return is_on;
}

}  // namespace hydrant

char* hydrant_tools_getenv(const char* keyname) {
  const auto* const job = hydrant::tools_job();
  return job->get_environment != nullptr ? job->get_environment(keyname) : std::getenv(keyname);
}

void hydrant_tools_setenv(const char* key, const char* value) {
  if (::setenv(key, value, 1) != 0)
    gasnett_fatalerror("cannot set the variable %s: %s", key, hydrant::errno_text(errno));
}

void hydrant_tools_unsetenv(const char* key) {
  if (::unsetenv(key) != 0)
    gasnett_fatalerror("cannot unset the variable %s: %s", key, hydrant::errno_text(errno));
}

int hydrant_tools_verboseenv(void) {
  const auto* const job = hydrant::tools_job();
  if (job->displays_environment != nullptr) return job->displays_environment();
  // Without a warning: a job's start may display a setting before it knows the rank.
  return hydrant::is_switched_on(hydrant_tools_getenv("GASNET_VERBOSEENV"), false) ? 1 : 0;
}

char* hydrant_tools_getenv_withdefault(const char* keyname, const char* defaultval) {
  char* const value = hydrant_tools_getenv(keyname);
  hydrant_tools_envstr_display(keyname, value != nullptr ? value : defaultval, value == nullptr);
  // The specification's return type is not const; the caller's default is returned unchanged.
  return value != nullptr ? value : const_cast<char*>(defaultval);
}

int hydrant_tools_getenv_yesno_withdefault(const char* keyname, int defaultval) {
  const char* const text = hydrant_tools_getenv(keyname);
  if (text == nullptr) {
    hydrant_tools_envstr_display(keyname, defaultval ? "YES" : "NO", 1);
    return defaultval;
  }
  const int parsed = hydrant::parse_yes_no(text);
  if (parsed < 0) {
    hydrant_tools_fatalerror_nopos(
        "%s=%s: invalid value; set Y, YES, y, yes or 1, or N, NO, n, no or 0, or unset it", keyname,
        text);
  }
  hydrant_tools_envstr_display(keyname, parsed ? "YES" : "NO", 0);
  return parsed;
}

int64_t hydrant_tools_getenv_int_withdefault(const char* keyname, int64_t defaultval,
                                             uint64_t mem_size_multiplier) {
  const char* const text = hydrant_tools_getenv(keyname);
  int64_t value = defaultval;
  if (text != nullptr) {
    const auto parsed = hydrant::parse_integer(text, mem_size_multiplier);
    value = parsed.value;
    if (*parsed.rest != '\0') hydrant::warn_of_rest(keyname, text, parsed);
  }
  hydrant_tools_envint_display(keyname, value, text == nullptr, mem_size_multiplier != 0);
  return value;
}

double hydrant_tools_getenv_dbl_withdefault(const char* keyname, double defaultval) {
  const char* const text = hydrant_tools_getenv(keyname);
  double value = defaultval;
  if (text != nullptr && !hydrant::parse_double(text, &value)) {
    hydrant_tools_fatalerror_nopos("%s=%s: neither a number (1.5, -1e4) nor a fraction (3/8)",
                                   keyname, text);
  }
  hydrant_tools_envdbl_display(keyname, value, text == nullptr);
  return value;
}

void hydrant_tools_envstr_display(const char* key, const char* val, int is_dflt) {
  if (val == nullptr) val = "*not set*";
  if (*val == '\0') val = "*empty*";
  hydrant::display(key, val, is_dflt ? "   (default)" : "");
}

void hydrant_tools_envint_display(const char* key, int64_t val, int is_dflt, int is_mem_size) {
  if (hydrant_tools_verboseenv() == 0) return;
  char number[hydrant::kNumberBytes];
  hydrant::display_number(key, hydrant_tools_format_number(val, number, sizeof number, is_mem_size),
                          is_dflt != 0);
}

void hydrant_tools_envdbl_display(const char* key, double val, int is_dflt) {
  if (hydrant_tools_verboseenv() == 0) return;
  char number[hydrant::kNumberBytes];
  std::snprintf(number, sizeof number, "%g", val);
  hydrant::display_number(key, number, is_dflt != 0);
}
