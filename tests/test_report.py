"""The report of verify as text and as a page."""

import html
import re

import pytest

from subtrace_kit.report import Check, Report


def test_the_report_as_text_and_html():
    report = Report(
        "f",
        (Check("values", "same"), Check("strides", "differs", tuple("abcde"), "<note>"), Check("ops", "not compared")),
    )
    assert str(report) == repr(report)
    assert str(report).splitlines() == [
        "f: 1 of 3 checks differ, 1 not compared",
        "  values   same",
        "  strides  differs       <note>",
        "                         a",
        "                         b",
        "                         c",
        "                         d",
        "                         and 1 more",
        "  ops      not compared",
    ]
    page = report._repr_html_()
    assert "&lt;note&gt;" in page
    assert "<script" not in page
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert all(word in text for word in str(report).split())
    assert Report("f", ()).ok
    with pytest.raises(KeyError):
        report.row("nothing")
