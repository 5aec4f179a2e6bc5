"""Keep freed memory in the process: glibc otherwise maps and unmaps every activation tensor.

By default glibc serves blocks above 128 KiB (a limit it raises slowly by itself) with a fresh `mmap` and returns them
to the kernel when they are freed, so each training step pays for page faults on zeroed pages. With high thresholds
freed tensors stay in the heap and are reused while still warm in the cache.
"""

from __future__ import annotations

import ctypes
import platform

# Parameter numbers of mallopt(3).
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

GIBIBYTE = 1 << 30


def keep_freed_memory() -> bool:
    """Raise glibc's thresholds; once per process, before training. Returns whether it had an effect.

    `M_MMAP_THRESHOLD` 1 GiB, `M_TRIM_THRESHOLD` just under 2 GiB (the argument is a C int).
    On other C libraries (macOS, musl, Windows) nothing is done.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    accepted = [mallopt(M_MMAP_THRESHOLD, GIBIBYTE), mallopt(M_TRIM_THRESHOLD, 2 * GIBIBYTE - 1)]
    return accepted == [1, 1]
