"""One thread of a running process held still, while its other threads go on: by ptrace, as a debugger does it."""
import ctypes
import os
import pathlib

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
ALL_KINDS_OF_CHILDREN = 0x40000000  # __WALL: threads, too

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class HeldThread:
    """Holds the oldest thread `name` of process `pid` until `release`. OSError: no such thread, or this machine forbids it (PermissionError)."""

    def __init__(self, pid, name):
        self.thread = 0
        for task in sorted(pathlib.Path("/proc/%d/task" % pid).iterdir(), key=lambda task: int(task.name)):
            if (task / "comm").read_text().strip() == name:
                self.call(SEIZE, int(task.name))
                self.thread = int(task.name)
                self.call(INTERRUPT, self.thread)
                os.waitpid(self.thread, ALL_KINDS_OF_CHILDREN)
                return
        raise ProcessLookupError("process %d has no thread %s" % (pid, name))

    def release(self):
        """Does nothing the second time, or if the thread is gone."""
        if self.thread:
            try:
                self.call(DETACH, self.thread)
            except ProcessLookupError:
                pass
            self.thread = 0

    @staticmethod
    def call(request, thread):
        if libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace of thread %d" % thread)
