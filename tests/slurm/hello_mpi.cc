// A program of ranks for the cluster's own tests: says where each rank is and adds their numbers
// up, again and again.
// Usage: hello_mpi [REPEATS]     exit 1 if a sum is wrong

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 1;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::printf("rank %d of %d on %s\n", rank, size, host);
  std::fflush(stdout);
  bool is_right = true;
  for (int i = 0; i < repeats; ++i) {
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_right = is_right && sum == size * (size - 1) / 2;
  }
  if (rank == 0) std::printf("%s\n", is_right ? "sums are right" : "SUMS ARE WRONG");
  MPI_Finalize();
  return is_right ? 0 : 1;
}
