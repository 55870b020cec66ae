/* A library that the loader finds only by the RUNPATH of the library in caller.c. */
int hooks_test_answer(void);
int hooks_test_answer(void) { return 42; }
