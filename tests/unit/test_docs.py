"""What must hold for the documentation: links lead somewhere, and every public name is explained."""

import re
from pathlib import Path

import pytest

import tidelock

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", *(REPOSITORY / "docs").glob("**/*.md")])


def _read(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _links(page: Path) -> list[str]:
    targets = re.findall(r"\]\(([^)\s]+)\)", _prose(page))
    return [target for target in targets if "://" not in target]


def _anchors(page: Path) -> set[str]:
    """The names that its headings have as link targets."""
    titles = re.findall(r"^#+ (.+)$", _prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_relative_to(REPOSITORY), link
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def test_every_page_can_be_found_from_the_readme() -> None:
    linked = {(REPOSITORY / link.partition("#")[0]).resolve() for link in _links(REPOSITORY / "README.md")}
    assert not [page.name for page in PAGES if page.name != "README.md" and page not in linked]


def test_the_readme_has_the_two_commands_and_stays_short() -> None:
    readme = _read("README.md")
    assert "`make demo`" in readme
    assert "`make test`" in readme
    assert len(readme.splitlines()) < 120


@pytest.mark.parametrize("name", tidelock.__all__)
def test_every_public_name_is_explained(name: str) -> None:
    text = _read("README.md") + _read("docs/reading-and-writing.md")
    assert re.search(rf"\b{name}\b", text)


def test_every_option_of_the_source_is_explained() -> None:
    from tidelock.spark.connector.options import _KNOWN

    page = _read("docs/reading-and-writing.md")
    assert not [option for option in _KNOWN if f"`{option}`" not in page]
