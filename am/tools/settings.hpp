// Settings of the tools and the job with GASNet's names. A value that is invalid causes one warning, by rank
// 0 in a job, and counts as not set; the functions of hydrant/gasnet/env.h end the program instead.
//
// Threads: any.
#pragma once

namespace hydrant {

// The boolean of a variable, which is displayed: y, yes, true, on, 1 or n, no, false, off, 0.
bool read_switch(const char* name, bool otherwise) noexcept;
// The boolean of a text that was read; `otherwise` for null and "".
bool switch_of(const char* name, const char* text, bool otherwise) noexcept;
// The same without a warning, for programs that are ending, and signal handlers.
bool is_switched_on(const char* text, bool otherwise) noexcept;

// Warns once per variable. `valid` says which values are.
void report_invalid(const char* name, const char* text, const char* valid) noexcept;

}  // namespace hydrant
