"""What the harness knows about processes: families, their CPU time and memory, and their end."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prctl")

START = "import os, subprocess, sys, threading, time; from fsibench.harness import processes; processes.adopt_orphans();"
SPIN = "import time\nwhile time.process_time() < 0.6: pass\nprint('spun', flush=True)"


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_child_started_from_a_thread_that_left_its_session_is_a_descendant() -> None:
    program = START + """
holder = []
def start(): holder.append(subprocess.Popen(["sleep", "600"], start_new_session=True)); time.sleep(60)
threading.Thread(target=start, daemon=True).start()
while not holder: time.sleep(0.01)
assert processes.descendants(os.getpid()) == [holder[0].pid]
assert processes.resident_mb([holder[0].pid]) > 0
processes.end_descendants()
print(processes.descendants(os.getpid()), flush=True)
os._exit(0)
"""
    assert run(program).strip() == "[]"


def test_an_orphan_is_adopted_and_its_work_counts_alive_and_dead() -> None:
    launch = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SPIN!r}], start_new_session=True)"
    program = START + f"""
before = processes.family_cpu_seconds()
middle = subprocess.Popen([sys.executable, "-c", {launch!r}], stdout=subprocess.PIPE)
middle.wait()
assert middle.stdout.readline() == b"spun\\n"
print(processes.family_cpu_seconds() - before)
processes.end_descendants()
print(processes.family_cpu_seconds() - before)
"""
    alive, dead = map(float, run(program).split())
    assert 0.55 < alive < 5
    assert 0.55 < dead < 5


def test_spared_children_stay() -> None:
    program = START + """
spared, other = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
processes.end_descendants([spared.pid])
assert spared.poll() is None and processes.children(os.getpid()) == [spared.pid]
spared.kill()
"""
    run(program)


def test_strays_of_a_dead_driver_are_ended_and_those_of_living_ones_stay() -> None:
    program = START + """
from fsibench.executors import server
def stray(driver): return subprocess.Popen(["sleep", "600"], env={**os.environ, server.FAMILY: driver})
me = processes.identity(os.getpid())
namespace, number, start = me.split("/")
mine, dead, elsewhere = stray(me), stray(f"{namespace}/{number}/{int(start) - 1}"), stray(f"other/{number}/1")
while len(processes.carrying(server.FAMILY, [mine.pid, dead.pid, elsewhere.pid])) < 3: time.sleep(0.01)
server.end_strays()
assert dead.wait() == -9
assert mine.poll() is None and elsewhere.poll() is None
server.end_orphans(set())
assert processes.children(os.getpid()) == [elsewhere.pid]
elsewhere.kill()
"""
    run(program)
