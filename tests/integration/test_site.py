"""The pages: a site without a broken link that loads nothing from elsewhere, and commands that do what they print."""

import json
import re
import subprocess

import pytest

from conftest import REPO
from test_quickstart import quickstart

GETTING_STARTED = (REPO / "deploy/docs/getting-started.md").read_text()


def build(repository, site):
    return subprocess.run([repository / "deploy/build-site", site], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    site = tmp_path_factory.mktemp("site")
    made = build(REPO, site)
    assert made.returncode == 0, made.stderr
    return site


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"' >]+)", text)
        loaded += re.findall(r"<link\b(?=[^>]*rel=[\"']?(?:stylesheet|preconnect|icon))[^>]*\bhref=[\"']?([^\"' >]+)", text)
        assert loaded and not [url for url in loaded if re.match(r"(?:\w+:)?//", url)], page


def test_pages_settings_and_the_api_can_be_searched(site):
    found = {each["location"] for each in json.loads((site / "search/search_index.json").read_text())["docs"]}
    for place in ("deploy/docs/symptoms.html", "deploy/docs/settings.html", "deploy/docs/api.html#batchgetrequest"):
        assert place in found


def test_a_broken_link_is_an_error(site, tmp_path):
    copy = tmp_path / "copy"
    if subprocess.run(["git", "clone", "-q", "--shared", REPO, copy]).returncode != 0:
        pytest.skip("the repository's folder is no clone of git")
    (copy / ".venv").symlink_to(REPO / ".venv")
    page = copy / "deploy/docs/concepts.md"
    page.write_text(page.read_text() + "\n[nowhere](nowhere.md)\n")
    made = build(copy, tmp_path / "site")
    assert made.returncode != 0 and "nowhere.md" in made.stderr


def test_the_readme_is_short():
    assert len((REPO / "README.md").read_text().splitlines()) <= 150


@pytest.mark.ci
def test_getting_started_does_what_it_prints(worker, convtune, short_dir):
    """Its blocks of sh; those of bash need a network or a model."""
    script = "".join(re.findall(r"```sh\n(.*?)```", GETTING_STARTED, re.DOTALL))
    assert script.count("./deploy/quickstart") == 4
    done = quickstart(short_dir, f'cd "$(dirname "$1")/.."\nset -x\n{script}')
    assert done.returncode == 0, done
    assert re.findall(r"answered from the database: (\d+ of \d+); worker starts: (\d)", done.stdout) == [("0 of 46", "1"), ("46 of 46", "0")]
    printed = re.findall(r"\d+ had an answer, \d+ were tuned, \d+ have none", done.stderr)
    assert printed == re.findall(r"\d+ had an answer, \d+ were tuned, \d+ have none", GETTING_STARTED)
    for line in re.findall(r"^fwd,\S+ +(\S+) ", GETTING_STARTED, re.MULTILINE):
        assert line in done.stdout
