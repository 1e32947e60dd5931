"""Names of figures: by content, safe as names of files, and each of its own."""

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pydantic")

from helpers.bench.results import collective, point
from mpistrat.bench.report.analysis.measurements import measurements_of
from mpistrat.bench.report.figures.style import applied
from mpistrat.bench.report.file_names import layout_parts, named
from mpistrat.bench.report.page import write_pngs
from mpistrat.bench.report.sections import sections_of
from mpistrat.testing.sets import takes_long


def test_a_name_has_letters_digits_and_hyphens_only():
    assert named("all-reduce of 1 MiB", "", None, *layout_parts(4, 2)) == (
        "all-reduce-of-1-mib-4-ranks-2-nodes"
    )
    assert named("../<b>ü", 1.5) == "b-1-5"
    assert named("/", "") == "figure"
    assert len(named("x" * 300)) < 100


def drawn(*records, ranks=2):
    points = [point(one, ranks) for one in records]
    with applied():
        return sections_of(points, measurements_of(points), None)


def sizes(**keys):
    return [collective(float(size), size, **keys) for size in (8, 16)]


def names_of(sections):
    return [figure.name for section in sections for figure in section.figures]


def test_usual_types_are_not_in_a_name_and_others_are():
    found = names_of(drawn(*sizes(reduction="sum"), *sizes(reduction="max", dtype="float64")))
    assert found == ["allreduce-2-ranks", "allreduce-max-float64-2-ranks"]


def test_figures_of_the_same_name_get_numbers():
    points = [point(one, options={"root": root}) for root in "01" for one in sizes()]
    with applied():
        made = sections_of(points, measurements_of(points), None)
    assert names_of(made) == ["allreduce-2-ranks-root-0", "allreduce-2-ranks-root-1"]
    cut = [point(one, options={"x" * 90: root}) for root in "01" for one in sizes()]
    with applied():
        made = sections_of(cut, measurements_of(cut), None)
    first, second = names_of(made)
    assert second == f"{first}-2"


@takes_long()
def test_the_title_is_in_the_png_file(tmp_path):
    sections = drawn(*sizes())
    (figure,) = (one for section in sections for one in section.figures)
    with applied():
        (path,) = write_pngs(tmp_path, sections)
    assert path.name == "allreduce-2-ranks.png"
    assert figure.title in [one.get_text() for one in figure.drawing.texts]
    below_top = figure.drawing.get_size_inches()[1] * 200
    assert int.from_bytes(path.read_bytes()[20:24], "big") > below_top, "the title is within it"
