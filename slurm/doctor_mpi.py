"""What `anyorder doctor` starts as an MPI rank: it says how large the world is and sums a megabyte.

It calls the MPI library that anyorder-train is linked with (its path is in ANYORDER_DOCTOR_MPI),
through ctypes, so that nothing has to be compiled on the cluster. A timer ends a rank that hangs,
and its last line says in which call.
"""
import ctypes
import os
import socket
import sys
import threading
import time

COUNT = 1 << 18  # floats
SECONDS = 60


def say(text):
    # One write: lines of several ranks must not mix.
    os.write(1, ("MPI " + text + "\n").encode())


def give_up(where):
    say("hangs %s %s" % (where[0], socket.gethostname()))
    os._exit(1)


def main():
    where = ["MPI_Init"]
    # Not a signal handler: Python runs none while a C call hangs.
    watch = threading.Timer(SECONDS, give_up, [where])
    watch.daemon = True
    watch.start()
    start = time.monotonic()
    library = os.environ.get("ANYORDER_DOCTOR_MPI") or "libmpi.so.40"
    mpi = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)

    def handle(name):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
    world, size, rank = handle("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    took = time.monotonic() - start
    say("world %d %d %s %.3f" % (rank.value, size.value, socket.gethostname(), took))
    where[0] = "MPI_Allreduce"
    ones, sums = (ctypes.c_float * COUNT)(*([1.0] * COUNT)), (ctypes.c_float * COUNT)()
    begin = time.monotonic()
    mpi.MPI_Allreduce(ones, sums, COUNT, handle("ompi_mpi_float"), handle("ompi_mpi_op_sum"), world)
    took = time.monotonic() - begin
    right = sums[0] == size.value and sums[COUNT - 1] == size.value
    say("sum %d %s %.4f" % (rank.value, "right" if right else "wrong", took))
    where[0] = "MPI_Finalize"
    mpi.MPI_Finalize()
    watch.cancel()


if __name__ == "__main__":
    sys.exit(main())
