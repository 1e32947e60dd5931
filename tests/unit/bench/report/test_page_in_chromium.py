"""The page in a browser: each figure is there, nothing is on the console."""

import pytest

from helpers.bench.chromium import chromium, show
from mpistrat.testing.sets import takes_long

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium"),
    pytest.mark.deadline(180),
]


@takes_long()
def test_each_figure_is_shown_and_the_console_is_empty(made, tmp_path):
    shown = show(made.page, tmp_path)
    assert len(shown.images) == made.text.count("<figure") >= 10
    for image in shown.images:
        assert image["natural"] > 0, f"not drawn: {image['alt']}"
        assert image["width"] > 300, image["alt"]
        assert image["height"] > 100, image["alt"]
        assert len(image["alt"]) > 40
    assert shown.console == []
    assert shown.width <= 1100, "nothing has to be scrolled sideways"


@takes_long()
def test_names_of_hosts_are_text(made, tmp_path):
    shown = show(made.page, tmp_path)
    assert shown.scripts == 1, "the one that measures"
    assert "<script>console.error('host')</script><img src=x onerror" in shown.text


@takes_long()
def test_a_broken_figure_and_a_message_on_the_console_would_be_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        "<!DOCTYPE html><title>x</title><body><img alt='a' src='data:image/svg+xml;base64,AAAA'>"
        "<script>console.error('planted')</script>"
    )
    shown = show(page, tmp_path)
    assert shown.images[0]["natural"] == 0
    assert any("planted" in line for line in shown.console)
