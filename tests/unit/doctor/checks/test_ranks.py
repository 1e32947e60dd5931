"""The checks that compare ranks judge recorded facts; secrets are not among these."""

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.ranks import clocks, same_environment, slow_rank
from mpistrat.doctor.checks.ranks.clocks import Clock
from mpistrat.doctor.checks.ranks.same_environment import Software
from mpistrat.doctor.checks.ranks.slow_rank import Work
from mpistrat.doctor.settings import shown, watched

FOUR = job(["n0", "n0", "n1", "n1"], "srun")


@pytest.mark.parametrize(
    "rates", [[100, 100, 100, 100], [100, 90, 110, 70], [100, 50, 80, 60]], ids=str
)
def test_ranks_of_about_one_speed(rates):
    assert faults(judged(slow_rank.CHECK, [Work(rate, 5.0) for rate in rates], FOUR)) == []


@pytest.mark.parametrize(
    ("slow", "word"),
    [
        (Work(40, 5.0), "computes at 40%"),
        (Work(100, 1.0), "copies memory at 20%"),
        (Work(100, 5.0, 0.2), "has a core for 20%"),
    ],
)
def test_a_slow_rank(slow, word):
    facts = [Work(100, 5.0), Work(102, 5.1), Work(98, 4.9), slow]
    verdict = judged(slow_rank.CHECK, facts, FOUR)
    assert has_fault(verdict, Status.WARNING, "rank 3 on n1", word)
    assert len(verdict.problems) == 1


def test_cores_that_all_ranks_share_are_not_one_ranks_fault():
    assert faults(judged(slow_rank.CHECK, [Work(100, 5.0, 0.3)] * 4, FOUR)) == []


# -------------------------------------------------------------------------------- same software

SAME = Software((("Python", "3.12.1"),), (("numpy", "2.1"),), (("NCCL_DEBUG", "INFO"),))


@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({"facts": (("Python", "3.11.7"),)}, Status.FAILURE, ["Python is 3.11.7", "3.12.1 on"]),
        ({"packages": (("numpy", "1.26"),)}, Status.FAILURE, ["numpy is 1.26", "2.1 on"]),
        ({"packages": ()}, Status.FAILURE, ["numpy is none"]),
        ({"settings": ()}, Status.WARNING, ["NCCL_DEBUG is not set", "INFO on the others"]),
    ],
)
def test_a_rank_that_differs(changed, status, words):
    other = Software(**{**vars(SAME), **changed})
    verdict = judged(same_environment.CHECK, [SAME, SAME, SAME, other], FOUR)
    assert has_fault(verdict, status, "rank 3 on n1", *words)
    assert len(verdict.problems) == 1


def test_ranks_that_are_alike():
    assert faults(judged(same_environment.CHECK, [SAME] * 4, FOUR)) == []


def test_secrets_are_neither_sent_nor_shown():
    environment = {
        "NCCL_NET": "OFI",
        "HF_TOKEN": "hf-1",
        "TF_API_TOKEN": "tf-1",
        "JAX_PROXY": "https://me:password@host",
        "AWS_SECRET_ACCESS_KEY": "aws-1",
        "SLURM_PROCID": "0",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    found = dict(watched(environment))
    assert found.keys() == {"NCCL_NET", "TF_API_TOKEN", "JAX_PROXY"}
    assert found["NCCL_NET"] == "OFI"
    assert not {"tf-1", "password"} & set(" ".join(found.values()).split())
    assert "password" not in str(found)
    assert shown("TF_API_TOKEN", "tf-1") == "another value (not shown)"
    assert shown("JAX_PROXY", found["JAX_PROXY"]) == "another value (not shown)"


def test_values_that_act_on_a_terminal_are_spelled_out():
    assert shown("OMP_X", "a\x1b[31m\udcff") == r"'a\x1b[31m\udcff'"


# ---------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize(
    ("ahead_s", "status", "word"),
    [(5.0, Status.WARNING, "5.0 s ahead of"), (-300.0, Status.FAILURE, "300.0 s behind")],
)
def test_a_clock_that_is_off(ahead_s, status, word):
    facts = {0: Clock(0.0), 2: Clock(ahead_s, 0.01)}
    assert has_fault(judged(clocks.CHECK, facts, FOUR), status, "the clock of n1", word)


def test_clocks_that_agree():
    assert faults(judged(clocks.CHECK, {0: Clock(0.0), 2: Clock(0.2, 0.001)}, FOUR)) == []
    # As far as the messages, which took long, can tell.
    assert faults(judged(clocks.CHECK, {0: Clock(0.0), 2: Clock(4.0, 3.5)}, FOUR)) == []
