"""Methods that do nothing, or one wrong thing each; given to the harness as `path:Class`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsibench import Budget, Data, Diverged, Method, Posterior, Predictive, SamplePredictive


@dataclass(frozen=True)
class Gaussian:
    """N(loc, scale²) everywhere."""

    loc: float = 0.0
    scale: float = 1.0

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(torch.full((1, len(x)), self.loc), torch.full((1, 1), self.scale))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return torch.full((num_draws, len(x)), self.loc)


@dataclass(frozen=True)
class NoOp(Method):
    """Yields for ever and learns nothing."""

    name: ClassVar[str] = "noop"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        posterior = Gaussian()
        while True:
            yield posterior


@dataclass(frozen=True)
class TrainingTargets(Method):
    """Predicts the training targets as a set of values, which has no density."""

    name: ClassVar[str] = "targets"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        class Values(Gaussian):
            def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
                return SamplePredictive(train.y[:, None].expand(-1, len(x)))

        yield Values()


@dataclass(frozen=True)
class RandomWalk(Method):
    """Each step moves by a random amount; the evaluation is random too. Shows whose stream is whose."""

    name: ClassVar[str] = "walk"
    size: float = 1.0

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        place = 0.0
        while True:
            place += self.size * float(torch.randn((), generator=generator))
            yield Noisy(place)


@dataclass(frozen=True)
class Noisy(Gaussian):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        noise = torch.randn(3, len(x), generator=generator)
        return Predictive(self.loc + noise, torch.ones(1, 1))


@dataclass(frozen=True)
class Sleeper(Method):
    """Works by sleeping."""

    name: ClassVar[str] = "sleeper"
    seconds: float = 0.05

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            time.sleep(self.seconds)
            yield Gaussian()


@dataclass(frozen=True)
class Raises(Method):
    """Works for `after` steps, then fails."""

    name: ClassVar[str] = "raises"
    after: int = 3

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        for _ in range(self.after):
            yield Gaussian()
        print("the last words of the method")
        raise RuntimeError("the method failed on purpose")


@dataclass(frozen=True)
class RaisesInPredict(Method):
    """Fails only when looked at."""

    name: ClassVar[str] = "raises-in-predict"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        class Broken(Gaussian):
            def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
                raise RuntimeError("predict failed on purpose")

        while True:
            yield Broken()


@dataclass(frozen=True)
class Explodes(Method):
    """Says that it diverged."""

    name: ClassVar[str] = "explodes"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        raise Diverged("the loss is nan at step 2")


@dataclass(frozen=True)
class NotANumber(Method):
    """Predicts NaN without noticing."""

    name: ClassVar[str] = "not-a-number"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        yield Gaussian(loc=float("nan"))


@dataclass(frozen=True)
class Dies(Method):
    """Kills its own process."""

    name: ClassVar[str] = "dies"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class YieldsNothing(Method):
    name: ClassVar[str] = "yields-nothing"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        return iter(())


@dataclass(frozen=True)
class ReturnsPosterior(Method):
    """What somebody writes who has not read that `fit` is a generator."""

    name: ClassVar[str] = "returns-posterior"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        return Gaussian(0.0)  # type: ignore[return-value]


@dataclass(frozen=True)
class UsesGlobalState(Method):
    """Draws from torch's global stream: a contract check must notice."""

    name: ClassVar[str] = "global"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            yield Gaussian(loc=float(torch.randn(())))


@dataclass(frozen=True)
class Chatty(Method):
    """Prints megabytes."""

    name: ClassVar[str] = "chatty"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            sys.stdout.write("x" * 1_000_000)
            yield Gaussian()


class NotAMethod:
    """Lacks everything."""


@dataclass(frozen=True)
class Hangs(Method):
    """Never returns from native code, deaf to every signal that can be blocked."""

    name: ClassVar[str] = "hangs"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import ctypes

        yield Gaussian()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            ctypes.CDLL(None).pause()


@dataclass(frozen=True)
class Hog(Method):
    """Allocates without end."""

    name: ClassVar[str] = "hog"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        hoard = []
        while True:
            hoard.append(torch.ones(2_000_000))  # 8 MB, touched
            time.sleep(0.005)
            yield Gaussian()


@dataclass(frozen=True)
class Forks(Method):
    """Starts processes and forgets them; their names carry `marker`."""

    name: ClassVar[str] = "forks"
    marker: str = "forgotten"
    forever: bool = False

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import subprocess

        for _ in range(3):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", self.marker])
        yield Gaussian()
        while self.forever:
            time.sleep(0.05)
            yield Gaussian()


@dataclass(frozen=True)
class ChangesTheWorld(Method):
    """Changes the global seed and the thread count, and ends its process's patience."""

    name: ClassVar[str] = "changes-the-world"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        torch.set_num_threads(7)
        torch.manual_seed(0)
        os.environ["OMP_NUM_THREADS"] = "7"
        os.chdir("/")
        yield Gaussian()


@dataclass(frozen=True)
class Where(Method):
    """Tells in its trace how many threads and cores it was given."""

    name: ClassVar[str] = "where"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Places()


@dataclass(frozen=True)
class Places(Gaussian):
    def trace(self) -> dict[str, float]:
        return {"threads": torch.get_num_threads(), "cores": len(os.sched_getaffinity(0))}


@dataclass(frozen=True)
class Segfaults(Method):
    """Dies in native code, the way a broken extension does."""

    name: ClassVar[str] = "segfaults"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import ctypes

        yield Gaussian()
        ctypes.string_at(0)


@dataclass(frozen=True)
class ExtendsItsBudget(Method):
    """Grants itself more time."""

    name: ClassVar[str] = "extends-its-budget"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        budget.seconds = 8.0
        while True:
            yield Gaussian()


@dataclass(frozen=True)
class NegativeScale(Method):
    """One of its scales is negative."""

    name: ClassVar[str] = "negative-scale"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        class Broken(Gaussian):
            def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
                scale = torch.ones(1, len(x))
                scale[0, 0] = -1.0
                return Predictive(torch.zeros(1, len(x)), scale)

        while True:
            yield Broken()


@dataclass(frozen=True)
class YieldsNone(Method):
    name: ClassVar[str] = "yields-none"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            yield None  # type: ignore[misc]


@dataclass(frozen=True)
class ScribblesOnItsRows(Method):
    """Writes into its training tensors."""

    name: ClassVar[str] = "scribbles"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        train.x.mul_(0.1)
        train.y.add_(9.0)
        yield Gaussian()


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@dataclass(frozen=True)
class WorksInAThread(Method):
    """Goes on working while it is looked at."""

    name: ClassVar[str] = "works-in-a-thread"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import threading

        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                busy(0.01)

        threading.Thread(target=work, daemon=True).start()
        try:
            while True:
                time.sleep(0.01)
                yield Gaussian()
        finally:
            ended.set()


@dataclass(frozen=True)
class WorksInAChild(Method):
    """Leaves the work to a child process and sleeps."""

    name: ClassVar[str] = "works-in-a-child"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import subprocess

        child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            while True:
                time.sleep(0.05)
                yield Gaussian()
        finally:
            child.kill()
            child.wait()


@dataclass(frozen=True)
class WorksInPredict(Method):
    """Learns nothing in `fit`; its predictions do the work."""

    name: ClassVar[str] = "works-in-predict"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        class Lazy(Gaussian):
            def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
                busy(0.05)
                return super().predict(x, generator)

        while True:
            yield Lazy()


def report_pipes() -> list[int]:
    """Descriptors of pipes that a cell can write to, beside what it prints to."""
    import fcntl

    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            pipe = os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")
            writable = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        except OSError:
            continue  # the descriptor of the listing itself
        if pipe and writable and int(name) > 2:
            found.append(int(name))
    return found


@dataclass(frozen=True)
class Writes(Method):
    """Writes foreign bytes where reports go, then goes on or waits for ever."""

    name: ClassVar[str] = "writes"
    what: str = "garbage"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import json

        yield Gaussian()
        stranger = json.dumps({"cell": "0" * 24, "report": "finished", "status": "ok"}).encode()
        content = {
            "garbage": b"\x00\x00\x00\x07garbage",
            "half": b"\x00\x00\x01\x00{",
            "huge": b"\xff\xff\xff\xff",
            "stranger": len(stranger).to_bytes(4, "big") + stranger,
        }
        for pipe in report_pipes():
            os.write(pipe, content[self.what])
        while self.what == "half":
            time.sleep(1)
        yield Gaussian()


@dataclass(frozen=True)
class Surrogate(Method):
    """Fails with a text that cannot be written to a file."""

    name: ClassVar[str] = "surrogate"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        raise RuntimeError("a lone \udcff in the text")


@dataclass(frozen=True)
class Leaves(Method):
    """Ends its process: by os._exit or sys.exit, with a code."""

    name: ClassVar[str] = "leaves"
    how: str = "_exit"
    code: int = 0

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        if self.how == "_exit":
            os._exit(self.code)
        sys.exit(self.code)


@dataclass(frozen=True)
class Parricide(Method):
    """Sends a signal to the process above its own."""

    name: ClassVar[str] = "parricide"
    number: int = 9

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        os.kill(os.getppid(), self.number)
        time.sleep(600)


@dataclass(frozen=True)
class Doubles(Method):
    """Forks, and both copies go on."""

    name: ClassVar[str] = "doubles"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        os.fork()
        while True:
            yield Gaussian()


@dataclass(frozen=True)
class ClosesAll(Method):
    """Closes every descriptor it can."""

    name: ClassVar[str] = "closes-all"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        os.closerange(0, 256)
        yield Gaussian()


@dataclass(frozen=True)
class Daemons(Method):
    """Starts processes in sessions of their own from a thread, through a parent that ends; each may hold memory."""

    name: ClassVar[str] = "daemons"
    marker: str = "daemon"
    megabytes: int = 0
    forever: bool = False

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        import subprocess
        import threading

        hold = f"import time; held = bytearray({self.megabytes * 10**6}); print(1, flush=True); time.sleep(600)"
        start = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
        command = [sys.executable, "-c", start, sys.executable, "-c", hold, self.marker]
        started = threading.Event()

        def launch() -> None:
            parent = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert parent.stdout is not None
            parent.stdout.readline()
            started.set()
            time.sleep(600)

        threading.Thread(target=launch, daemon=True).start()
        started.wait()
        yield Gaussian()
        while self.forever:
            time.sleep(0.05)
            yield Gaussian()


@dataclass(frozen=True)
class Shouts(Method):
    """Prints 64 MB, then fails."""

    name: ClassVar[str] = "shouts"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        for _ in range(64):
            sys.stdout.write("x" * 1_000_000)
        raise RuntimeError("hoarse")


@dataclass(frozen=True)
class Gate(Method):
    """Yields once, then waits until there is a file `open` in the working folder."""

    name: ClassVar[str] = "gate"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Gaussian()
        while not os.path.exists("open"):
            time.sleep(0.01)
        while True:
            yield Gaussian()
