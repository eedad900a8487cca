"""The reference pages are generated and up to date."""

import runpy
from pathlib import Path

import pytest


DOCS = Path(__file__).parent.parent / "docs"
SCRIPT = runpy.run_path(str(DOCS / "build_reference.py"))


@pytest.mark.parametrize("page", SCRIPT["PAGES"])
def test_a_page_is_what_the_records_say(page):
    assert (DOCS / page).read_text() == SCRIPT["reference"](page)
