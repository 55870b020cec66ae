/* What only the RUNPATH of the library in caller.c leads to. */
int hooks_test_answer(void);
int hooks_test_answer(void) { return 42; }
