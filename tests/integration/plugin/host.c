/* host PLUGIN CASE: after dlclose() no remaining thread or hook of the plugin may run unmapped code. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 16 };
typedef int use_fn(const void*, size_t);

#define CHECK(cond)                                                      \
  do {                                                                   \
    if (!(cond)) {                                                       \
      fprintf(stderr, "%s:%d: FAILED: %s\n", __FILE__, __LINE__, #cond); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

static const char* path;

static void* map(void) {
  void* memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  memset(memory, 1, BYTES);
  return memory;
}

static void* load(use_fn** use) {
  void* plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* symbol;
  if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(plugin != NULL);
  symbol = dlsym(plugin, "plugin_use");
  CHECK(symbol != NULL);
  memcpy(use, &symbol, sizeof symbol);
  return plugin;
}

static pthread_barrier_t used, unloaded;

/* The key's destructor runs after the plugin was closed. */
static void* use_and_outlive(void* memory) {
  use_fn* use;
  void* plugin = load(&use);
  CHECK(use(memory, BYTES) == 0);
  pthread_barrier_wait(&used);
  pthread_barrier_wait(&unloaded);
  (void)plugin;
  return NULL;
}

int main(int argc, char** argv) {
  use_fn* use;
  void* plugin;
  void* memory = map();
  pthread_t thread;
  int status = 0;
  CHECK(argc == 3);
  path = argv[1];
  plugin = load(&use);
  CHECK(use(memory, BYTES) == 0);
  if (!strcmp(argv[2], "thread")) {
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&unloaded, NULL, 2);
    CHECK(pthread_create(&thread, NULL, use_and_outlive, memory) == 0);
    pthread_barrier_wait(&used);
    CHECK(dlclose(plugin) == 0); /* opened by the thread */
  }
  CHECK(dlclose(plugin) == 0);
  /* The reader thread wakes and still finds its code, and the release returns. */
  CHECK(munmap(memory, BYTES) == 0);
  if (!strcmp(argv[2], "thread")) {
    pthread_barrier_wait(&unloaded);
    CHECK(pthread_join(thread, NULL) == 0);
  } else if (!strcmp(argv[2], "fork")) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(3);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  } else if (!strcmp(argv[2], "again")) {
    for (int i = 0; i < 20; ++i) {
      plugin = load(&use);
      memory = map();
      CHECK(use(memory, BYTES) == 0);
      CHECK(dlclose(plugin) == 0);
      CHECK(munmap(memory, BYTES) == 0);
    }
  }
  usleep(300000); /* the reader wakes within 200 ms */
  return 0;
}
