"""The text of manual pages without their markup: `text.py ROOT FILE BYTES` writes the first BYTES bytes of all pages under ROOT, in the order of their names."""

import gzip
import pathlib
import re
import sys


def text_of(page: str) -> str:
    lines = []
    for line in page.splitlines():
        # Comments, requests and tables; the words of headings and of emphasised lines stay.
        if line.startswith((".\\\"", "'\\\"")) or re.match(r"[.'](TH|TS|TE|so|de|ds|if|ie|el|nr|nf|fi|ad|hy|na|ne|ft|sp|in|ti|ta|PD|RS|RE|IP|PP|P|LP|TP|TQ|UR|UE|MT|ME|EX|EE)\b", line):
            continue
        line = re.sub(r"^\.(SH|SS|B|I|BR|BI|IR|IB|RB|RI|SM|SB)\s+", "", line)
        line = re.sub(r"\\f(\[\w*\]|\(..|.)", "", line)
        line = re.sub(r"\\\((aq|dq|lq|rq|oq|cq)", "'", line)
        line = re.sub(r"\\\((em|en|hy|mi)", "-", line)
        line = re.sub(r"\\(\[\w+\]|\(..|\*.|s[+-]?\d|[&|^~:c /])", "", line).replace("\\-", "-").replace("\\e", "\\").replace('"', "")
        if line.strip() and not line.startswith("."):
            lines.append(line.strip())
    return "\n".join(lines)


def main() -> None:
    root, out, size = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    written = bytearray()
    for path in sorted(root.rglob("*.gz")):
        if "/man/" not in str(path) or path.is_symlink():
            continue
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            text = text_of(file.read())
        if len(text) > 500:
            written += text.encode() + b"\n\n"
        if len(written) >= size:
            break
    # Whole characters only.
    out.write_bytes(bytes(written[:size]).decode("utf-8", errors="ignore").encode())
    print(f"{out.name}: {out.stat().st_size} bytes" + ("" if len(written) >= size else f", fewer than the {size} asked for"))


if __name__ == "__main__":
    main()
