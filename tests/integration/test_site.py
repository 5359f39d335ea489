"""The pages: a site without a broken link that loads nothing from elsewhere, which names what there is."""

import importlib.util
import json
import re
import subprocess

import pytest

from conftest import REPO
from harness import needs
from test_report import chromium, dump_dom  # noqa: F401

pytestmark = pytest.mark.ci

DOCS = REPO / "deploy/docs"


def build(repository, site):
    return subprocess.run([repository / "deploy/build-site", site], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("material") is None:
        needs.missing("mkdocs-material")
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
    for place in (
        "deploy/docs/symptoms.html", "deploy/docs/settings.html", "deploy/docs/api.html#batchgetrequest",
        "deploy/docs/commands.html#convtune-jobs-watch",
        "deploy/docs/commands.html#convtune-fleet-release-withdraw",
    ):  # fmt: skip
        assert place in found


def test_pages_are_there_as_markdown_too_and_listed_for_language_models(site):
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", (site / "llms.txt").read_text(), re.MULTILINE)
    assert listed[0] == "README.md" and {"deploy/docs/cli.md", "deploy/docs/api.md", "client/python/README.md"} <= set(listed)
    for path in listed:
        page = site / path
        assert page.read_text().startswith("#"), path
        assert (page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")).exists(), path


def test_search_needs_no_web_server(site, chromium, tmp_path):  # noqa: F811
    done = dump_dom(chromium, tmp_path, f"file://{site}/deploy/docs/concepts.html?q=quarantine")
    assert re.search(r"md-search-result__meta\">\s*\d+ matching documents", done.stdout), done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]


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


def test_the_life_of_a_tuning_names_files_that_exist():
    named = re.findall(r"`((?:\w+/)+\w+\.cc)`", (REPO / "server/README.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not ((REPO / "server" / name).exists() or (REPO / name).exists())] == []


def test_pages_name_every_verb_and_setting(convtune, convtuned):
    help_of = lambda program: subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout  # noqa: E731
    verbs = re.findall(r"^  ([a-z][a-z-]*)  +\S", help_of(convtune), re.MULTILINE)
    page = (DOCS / "cli.md").read_text()
    assert len(verbs) > 20
    assert [verb for verb in verbs if not re.search(rf"`{verb}\b", page)] == []
    settings = re.findall(r"^  --([a-z-]+) .*\(Env:", help_of(convtuned), re.MULTILINE)
    page = (DOCS / "operations.md").read_text()
    file = (REPO / "deploy/convtuned.toml").read_text()
    assert len(settings) > 25
    assert [name for name in settings if f"--{name}" not in page and f"#{name} = " not in file] == []
