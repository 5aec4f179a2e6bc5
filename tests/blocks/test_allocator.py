from __future__ import annotations

import platform

from fsibench.blocks.allocator import keep_freed_memory


def test_thresholds_are_accepted_by_glibc_and_left_alone_elsewhere() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
