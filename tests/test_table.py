"""Tables of reports as text and as a page."""

from subtrace_kit.table import html_table, text_table


def test_no_rows_are_a_title():
    assert text_table("f", []) == "f"
    assert html_table("f", [], {}).count("<tr>") == 0


def test_a_page_shows_names_and_lines_as_they_are_and_colors_the_verdict():
    page = html_table("<f>", [("a & b", "same", ["x < y", "z"])], {"same": "#123456"})
    assert "&lt;f&gt;</caption>" in page
    assert "a &amp; b" in page
    assert "x &lt; y<br>z" in page
    assert "color:#123456" in page
