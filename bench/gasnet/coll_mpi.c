/* coll_mpi.c - the rows of coll_compare.c over MPI, for compare.py. Not part of the build.
 *
 *   mpicc -O2 coll_mpi.c -o coll_mpi
 *   mpirun -n 2 ./coll_mpi [PERCENT]
 *
 * MPI has no split-phase wait in these rows: its blocking calls are faster. Data are on the heap: MPI has no
 * segments.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRepetitions = 9, kMost = 1 << 20 };

static int rank;
static char *source, *dest;

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void barrier(size_t bytes) {
  (void)bytes;
  MPI_Barrier(MPI_COMM_WORLD);
}
static void broadcast(size_t bytes) { MPI_Bcast(dest, (int)bytes, MPI_CHAR, 0, MPI_COMM_WORLD); }
static void reduce_to_one(size_t bytes) {
  MPI_Reduce(source, dest, (int)(bytes / 8), MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void reduce_to_all(size_t bytes) {
  MPI_Allreduce(source, dest, (int)(bytes / 8), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}
static void split(size_t bytes) {
  MPI_Comm made;
  (void)bytes;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &made);
  MPI_Comm_free(&made);
}

static void measure(const char* name, void (*once)(size_t), size_t bytes, int rounds) {
  double ns[kRepetitions];
  for (int r = 0; r < kRepetitions; ++r) {
    barrier(0);
    const double begun = MPI_Wtime();
    for (int i = 0; i < rounds; ++i) once(bytes);
    ns[r] = (MPI_Wtime() - begun) * 1e9 / rounds;
  }
  qsort(ns, kRepetitions, sizeof *ns, ascending);
  if (rank == 0) {
    printf("%-18s %8zu bytes %12.1f ns\n", name, bytes, ns[kRepetitions / 2]);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  source = malloc(kMost);
  dest = malloc(kMost);
  memset(source, 1, kMost);
  memset(dest, 1, kMost);
  const int percent = argc > 1 ? atoi(argv[1]) : 100;
#define ROUNDS(n) ((n)*percent / 100 + 1)
  measure("barrier", barrier, 0, ROUNDS(20000));
  measure("reduction to all", reduce_to_all, 8, ROUNDS(20000));
  measure("reduction to all", reduce_to_all, 4096, ROUNDS(2000));
  measure("reduction to all", reduce_to_all, 1 << 20, ROUNDS(20));
  measure("reduction to one", reduce_to_one, 8, ROUNDS(20000));
  measure("broadcast", broadcast, 8, ROUNDS(20000));
  measure("broadcast", broadcast, 4096, ROUNDS(2000));
  measure("broadcast", broadcast, 1 << 20, ROUNDS(50));
  measure("split and destroy", split, 0, ROUNDS(200));
  MPI_Finalize();
  return 0;
}
