"""Texts name ranks by the communicator, and where it numbers them otherwise by the job, too."""

from mpistrat.collectives.health.rank_names import RankNames


def test_ranks_of_the_job_have_their_numbers_alone():
    for names in (RankNames(1, 3), RankNames(1, 3, [0, 1, 2])):
        assert (names.of(2), names.listed([0, 2]), names.here) == ("2", "0, 2", "1/3")
        assert names.here_by("shm") == "1/3 (shm)"
        assert (names.world_rank(2), names.rank_of(2), names.rank_of(3)) == (2, 2, None)


def test_other_ranks_are_named_by_both():
    names = RankNames(1, 3, [6, 2, 4])
    assert names.of(2) == "2 (world rank 4)"
    assert names.listed([0, 2]) == "0 (world rank 6), 2 (world rank 4)"
    assert (names.here, names.place(0)) == ("1/3 (world rank 2)", "0/3 (world rank 6)")
    assert names.here_by("shm") == "1/3 (world rank 2, shm)"
    assert (names.world_rank(2), names.rank_of(2), names.rank_of(0)) == (4, 1, None)
