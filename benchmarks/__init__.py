"""asv suites, which `fsibench gate` and `fsibench history` run too. They import only public names; parameters are literal,
so that results compare across commits; one thread; CPU time.
"""


def warm_up() -> None:
    """Before anything is timed."""
    from benchmarks import common

    common.warm_up()
