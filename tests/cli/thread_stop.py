"""Stops one thread of a process that a test has started, as a debugger does. Linux, standard library only."""

import contextlib
import ctypes
import os
import pathlib
import threading
import time

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
WAIT_FOR_THREADS = 0x40000000  # __WALL


def thread_named(pid, name):
    """The id of the only thread of that name."""
    found = [task for task in pathlib.Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text() == f"{name}\n"]
    assert len(found) == 1, (name, found)
    return int(found[0].name)


def wait_until_asleep(pid, thread, patience):
    """Waits until the thread has slept whenever it was looked at, for a while: it waits for work, and holds nothing."""
    end = time.monotonic() + patience
    asleep = 0
    while asleep < 20:
        assert time.monotonic() < end
        state = pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.01)


def stop_thread(thread):
    """Stops it for good. PermissionError where the system lets no process stop threads of another."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.waitpid(thread, WAIT_FOR_THREADS)
    # Its process ends for those who wait for it once somebody has seen the end of the thread.
    def see_its_end():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(thread, WAIT_FOR_THREADS)
    threading.Thread(target=see_its_end, daemon=True).start()
