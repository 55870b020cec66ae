/* hydrant/gasnet/env.h - settings from the environment, numbers with units, and their display.
 *
 * With GASNET_VERBOSEENV=1 every setting that is asked for "with default" is shown on standard error,
 * once per name: "ENV parameter: NAME = value   (default)". In a job the variables are those of the
 * whole job, equal on all ranks, and one rank displays.
 *
 * Errors   a value that cannot be meant (gasnett_getenv_yesno_withdefault, ..._dbl_withdefault) ends
 *          the program with gasnett_fatalerror; a number with something behind it that is no unit is
 *          used up to there and warned about once.
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

/* Writes `val` for people into buf (at most bufsz bytes with the final zero; 32 always suffice) and
 * returns buf. A memory size gets a unit, B to TB in powers of 1024: the largest that divides it, or
 * one of which it has at least 10 (then rounded towards zero). Magnitudes from 2^50 are hexadecimal. */
char* hydrant_tools_format_number(int64_t val, char* buf, size_t bufsz, int is_mem_size);

/* The inverse: sign, decimal (fraction allowed) or 0x hexadecimal, and, if mem_size_multiplier is not
 * 0, a unit K, M, G, T or B in either case (KB, KiB and so on too); without unit the number counts
 * mem_size_multiplier bytes. What follows is ignored. Null and "" are 0; decimals out of range saturate. */
int64_t hydrant_tools_parse_int(const char* str, uint64_t mem_size_multiplier);

void hydrant_tools_setenv(const char* key, const char* value);
void hydrant_tools_unsetenv(const char* key);
/* Null if not set. Not displayed. The text is the environment's: not to be changed or freed. */
char* hydrant_tools_getenv(const char* keyname);
char* hydrant_tools_getenv_withdefault(const char* keyname, const char* defaultval);
/* 1 for y, yes, 1; 0 for n, no, 0; in either case. */
int hydrant_tools_getenv_yesno_withdefault(const char* keyname, int defaultval);
/* As hydrant_tools_parse_int(). */
int64_t hydrant_tools_getenv_int_withdefault(const char* keyname, int64_t defaultval,
                                             uint64_t mem_size_multiplier);
/* A decimal number or a fraction of two: "1.5", "-1e4", "3/8". */
double hydrant_tools_getenv_dbl_withdefault(const char* keyname, double defaultval);

/* Non-zero if this process displays settings. May change while a job starts. */
int hydrant_tools_verboseenv(void);
/* Displays a setting if so; for those that were not read by a function above. */
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
