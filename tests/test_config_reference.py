"""The configuration page is generated and up to date."""

import runpy
from pathlib import Path


DOCS = Path(__file__).parent.parent / "docs"


def test_configuration_page_is_what_the_records_say():
    page = runpy.run_path(str(DOCS / "build_reference.py"))["reference"]()
    assert (DOCS / "configuration.md").read_text() == page
