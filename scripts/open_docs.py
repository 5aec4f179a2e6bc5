"""Open every page of a built documentation site in Chromium: no script error, no missing file, a heading on each.

    python scripts/open_docs.py docs/_build/html
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Error, Page, sync_playwright

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")
SKIPPED = ("genindex", "search", "py-modindex", "webpack-macros")


def main(site: Path) -> int:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        print("no Chromium on this machine: the pages were built but not opened")
        return 0
    pages = [page for page in sorted(site.rglob("*.html")) if page.stem not in SKIPPED and "_static" not in page.parts]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        problems = [problem for page in pages for problem in opened(browser.new_page(), page)]
        browser.close()
    print("\n".join(problems) or f"{len(pages)} pages opened without an error")
    return 1 if problems or not pages else 0


def opened(tab: Page, page: Path) -> list[str]:
    """What is wrong with one page."""
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(f"{page}: {error}"))
    tab.on("requestfailed", lambda request: problems.append(f"{page}: {request.url} is missing"))
    try:
        # Nothing is fetched from elsewhere: a page must work without a network.
        tab.route("http*://**", lambda route: route.abort())
        tab.goto(page.resolve().as_uri())
        if not tab.locator("h1").count():
            problems.append(f"{page}: no heading")
    except Error as error:
        problems.append(f"{page}: {error}")
    finally:
        tab.close()
    return problems


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
