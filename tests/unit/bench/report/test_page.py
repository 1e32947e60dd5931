"""The page: figures with alt texts and numbers, names as text, nothing from elsewhere."""

import base64
import re
from xml.etree import ElementTree as ET

from mpistrat.testing.sets import takes_long

pytestmark = takes_long(unit="file")  # the page


def test_each_figure_is_in_the_page_and_a_png_file(made):
    names = re.findall(r'<figure id="([^"]+)">', made.text)
    assert sorted(names) == [
        *("allreduce-2-ranks", "fastest-allreduce", "overlap-resnet50-2-ranks"),
        *("parameter-servers-20000x64-2000-rows", "projection-times-by-ranks"),
        *("ranks-strong-mlp-batch-256-2-ranks", "ranks-weak-mlp-batch-64-2-ranks"),
        *("step-parts-strong-mlp-batch-256", "step-parts-weak-mlp-batch-64"),
        *("strong-scaling-mlp-batch-256", "weak-scaling-mlp-batch-64"),
    ]
    assert sorted(file.stem for file in made.pngs.iterdir()) == sorted(names)
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in made.pngs.iterdir())


def test_the_page_needs_no_other_file(made):
    sources = re.findall(r'src="([^"]*)"', made.text)
    assert sources
    assert all(one.startswith("data:image/svg+xml;base64,") for one in sources)
    links = re.findall(r'href="([^"]*)"', made.text)
    assert all(one.startswith("#") or one == "data:," for one in links)
    assert not re.findall(r"<script|@import|url\(", made.text)


def test_links_of_the_contents_lead_to_sections(made):
    links = re.findall(r'href="#([^"]*)"', made.text)
    places = re.findall(r'<section id="([^"]*)"', made.text)
    assert links == places
    every = re.findall(r'\bid="([^"]*)"', made.text)
    assert len(every) == len(set(every))


def test_each_figure_has_an_alt_text_and_its_numbers(made):
    figures = re.findall(r"<figure.*?</figure>", made.text, re.DOTALL)
    for figure in figures:
        (alt,) = re.findall(r'alt="([^"]*)"', figure)
        assert len(alt) > 40
        assert re.search(r"<details>.*<td>", figure, re.DOTALL), alt


def test_names_are_escaped(made):
    assert "<script" not in made.text
    assert "onerror=console.error(1)&gt;" in made.text


def test_figures_are_well_formed_and_hold_no_script(made):
    images = re.findall(r"svg\+xml;base64,([^\"]*)", made.text)
    assert len(images) == 11
    for data in images:
        tags = {
            element.tag.rpartition("}")[2]
            for element in ET.fromstring(base64.b64decode(data)).iter()
        }
        assert "svg" in tags
        assert not tags & {"script", "foreignObject", "image"}


def test_tables_hold_the_numbers_of_the_results(made):
    cells = re.findall(r"<td>([^<]*)</td>", made.text)
    for expected in (
        *("1.02 µs", "1.05 ms"),  # allreduce of 1 KiB and of 1 MiB
        "2.00×",  # faster than the next, on the map
        *("100.0%", "0.000"),  # strong scaling by the ideal: efficiency, serial fraction
        "70.0 µs (70%)",  # computation in a step
        *("50%", "56%"),  # hidden share, efficiency of a step
        "20",  # M rows/s of parameter servers
        *("run.json", "0.78"),  # of the timeline, over what was recorded
        "+20.0%",  # error of the model's prediction
    ):
        assert expected in cells, expected


def test_machines_are_summarised(made):
    assert "ranks by host &lt;script&gt;" in made.text
    assert "n2: 1; 2 CPUs allowed to a rank" in made.text
