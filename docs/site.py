"""Make the pages of docs/ a site: the README becomes its first page, links to files become text.

MkDocs calls these functions (https://www.mkdocs.org/dev-guide/plugins/#events). A link to a file
outside docs/, such as a source file, leads somewhere in a clone but not on the site. There the path
is printed instead. Pictures outside docs/ are copied.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the first page, and the pictures that pages show from outside docs/."""
    files.append(File.generated(config, "index.md", content=_read_readme()))
    for page in [*Path(config.docs_dir).glob("*.md")]:
        for mark, _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            picture = (page.parent / target).resolve()
            if mark and not picture.is_relative_to(config.docs_dir):
                name = f"pictures/{picture.name}"
                files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page in which every link leads to a page or a picture of the site."""
    return LINK.sub(_rewrite, markdown)


def _read_readme() -> str:
    """Return the README with links as they are seen from docs/."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")

    def move(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups()
        inside = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
        return f"{mark}[{words}]({inside}{anchor or ''})"

    return LINK.sub(move, text)


def _rewrite(found: re.Match[str]) -> str:
    mark, words, target, _ = found.groups()
    if not target.startswith("../"):
        return found[0]
    if target == "../README.md":
        return f"[{words}](index.md)"
    if mark:
        return f"![{words}](pictures/{PurePosixPath(target).name})"
    path = target.removeprefix("../")
    return f"{words} (`{path}`)" if words.strip("`") not in path else f"`{path}`"
