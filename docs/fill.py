"""Write measured numbers into the README and the documentation, from the files that the commands wrote.

python docs/fill.py           # between the markers <!-- name --> and <!-- /name -->
python docs/fill.py --check   # change nothing, fail if anything would change
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from tables import README_ROWS, ROOT, cost, demo, gpu_cost, measures

PARTS: dict[Path, dict[str, Any]] = {
    ROOT / "README.md": {"demo": demo, "cost": lambda: gpu_cost("graph", README_ROWS)},
    ROOT / "docs" / "cost.md": {
        "cost": lambda: cost(None),
        **{f"gpu-{mode}": lambda mode=mode: gpu_cost(mode, None) for mode in ("graph", "compiled", "eager")},
    },
    ROOT / "docs" / "measures.md": {"measures": measures},
}


def filled(text: str, parts: dict[str, Any]) -> str:
    """The text with every marked part written anew."""
    for name, make in parts.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not between.search(text):
            sys.exit(f"no <!-- {name} --> ... <!-- /{name} --> to fill")
        content = make()
        text = between.sub(lambda m, content=content: f"{m[1]}{content}\n{m[2]}", text)
    return text


def main() -> None:
    """Fill, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path, parts in PARTS.items():
        before = path.read_text(encoding="utf-8")
        after = filled(before, parts)
        if check and before != after:
            sys.exit(f"{path.relative_to(ROOT)} is not what the measured files say: run python docs/fill.py")
        if not check:
            path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
