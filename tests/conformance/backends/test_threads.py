"""The oracle: ranks as threads."""

from mpistrat.testing.backends.conformance import BackendConformance, run_body
from mpistrat.testing.sets import takes_long, with_all
from mpistrat.testing.threads import run_ranks


@takes_long()
class TestThreads(BackendConformance):
    sizes = (1, 2, 4) if with_all() else (1, 2)

    def run(self, size, body):
        run_ranks(size, run_body, "threads", body)
