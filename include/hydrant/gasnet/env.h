/* hydrant/gasnet/env.h - settings from the environment, numbers with units, and their display.
 *
 * With GASNET_VERBOSEENV=1 every setting that is read "with default" is shown on standard error, once
 * per name: "ENV parameter: NAME = value   (default)". In a job the variables are those of the whole
 * job, equal on all ranks, and one rank displays them.
 *
 * Errors   an invalid value (gasnett_getenv_yesno_withdefault, ..._dbl_withdefault) ends the program
 *          with gasnett_fatalerror; after a number, text that is no unit is ignored with one
 *          warning.
 * Threads  any, but no thread may set a variable while another reads one (as with getenv()).
 * Cost     a search of the environment; not for inner loops.
 * Source   GASNet tools specification 1.20, "Environment utilities".
 */
#ifndef HYDRANT_GASNET_ENV_H
#define HYDRANT_GASNET_ENV_H

#include <hydrant/gasnet/annotations.h>

#include <stddef.h>
#include <stdint.h>

HYDRANT_TOOLS_BEGIN

/* Formats `val` into buf (at most bufsz bytes with the final zero; 32 always suffice) and returns buf.
 * A memory size gets a unit, B to TB in powers of 1024. It is the largest unit that divides the size,
 * or one with a count of at least 10 (rounded towards zero). Magnitudes from 2^50 are hexadecimal. */
char* hydrant_tools_format_number(int64_t val, char* buf, size_t bufsz, int is_mem_size);

/* The inverse: sign, decimal (fraction allowed) or 0x hexadecimal. If mem_size_multiplier is not 0, a
 * unit may follow: K, M, G, T or B in either case (also KB, KiB, ...); without a unit the number counts
 * mem_size_multiplier bytes. Trailing text is ignored. Null and "" are 0; decimals out of range
 * saturate. */
int64_t hydrant_tools_parse_int(const char* str, uint64_t mem_size_multiplier);

void hydrant_tools_setenv(const char* key, const char* value);
void hydrant_tools_unsetenv(const char* key);
/* Null if not set. Not displayed. The text belongs to the environment: do not change or free it. */
char* hydrant_tools_getenv(const char* keyname);
char* hydrant_tools_getenv_withdefault(const char* keyname, const char* defaultval);
/* 1 for y, yes, 1; 0 for n, no, 0; in either case. */
int hydrant_tools_getenv_yesno_withdefault(const char* keyname, int defaultval);
/* As hydrant_tools_parse_int(). */
int64_t hydrant_tools_getenv_int_withdefault(const char* keyname, int64_t defaultval,
                                             uint64_t mem_size_multiplier);
/* A decimal number or a fraction of two: "1.5", "-1e4", "3/8". */
double hydrant_tools_getenv_dbl_withdefault(const char* keyname, double defaultval);

/* Nonzero if this process displays settings. May change while a job starts. */
int hydrant_tools_verboseenv(void);
/* Display a setting if this process displays settings; for settings read by other means. */
void hydrant_tools_envstr_display(const char* key, const char* val, int is_dflt);
void hydrant_tools_envint_display(const char* key, int64_t val, int is_dflt, int is_mem_size);
void hydrant_tools_envdbl_display(const char* key, double val, int is_dflt);

HYDRANT_TOOLS_END

#define gasnett_format_number hydrant_tools_format_number
#define gasnett_parse_int hydrant_tools_parse_int
#define gasnett_setenv hydrant_tools_setenv
#define gasnett_unsetenv hydrant_tools_unsetenv
#define gasnett_getenv hydrant_tools_getenv
#define gasnett_getenv_withdefault hydrant_tools_getenv_withdefault
#define gasnett_getenv_yesno_withdefault hydrant_tools_getenv_yesno_withdefault
#define gasnett_getenv_int_withdefault hydrant_tools_getenv_int_withdefault
#define gasnett_getenv_dbl_withdefault hydrant_tools_getenv_dbl_withdefault
#define gasnett_verboseenv hydrant_tools_verboseenv
#define gasnett_envstr_display hydrant_tools_envstr_display
#define gasnett_envint_display hydrant_tools_envint_display
#define gasnett_envdbl_display hydrant_tools_envdbl_display

#endif
