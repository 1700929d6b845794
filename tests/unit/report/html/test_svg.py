"""SVG elements escape texts and attributes."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.report.html.svg import element, picture, rect, text

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]))


@given(content=TEXT, tip=TEXT)
def test_escaped_text_is_parsed_back_unchanged(content, tip):
    parts = [text(1, 2, content), rect(0, 0, 1, 1, tip, tip)]
    root = ElementTree.fromstring(picture(10, 10, tip, parts))

    titles = [found.text or "" for found in root.iter("title")]
    assert titles == [tip, tip]
    assert (root.find("text").text or "") == content
    assert root.find("rect").get("class") == " ".join(tip.split(" "))


def test_attributes_have_their_svg_names():
    assert element("g", stroke_width=1.0, class_="a") == '<g stroke-width="1" class="a"></g>'
