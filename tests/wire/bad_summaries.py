"""Seven summarisers that must do no harm, each as a text about a conversation."""

from summary_cases import CLOUD_KEY, PASSWORD, TOKEN, needle

from penstock.writing.handoff import HandoffSection

INVENTED = (
    "src/ghost/phantom.py",
    "phantom.py",
    "PhantomBroker",
    "phantom_queue",
    "PHANTOM_PORT",
    "ghost-worker-77",
    "https://ghost.example.net/x/9981",
    "ghost.example.net",
    "9981",
    "73,419",
    "73419",
    "v9.87.6",
    "--phantom-mode",
    "ORD-88431-Z",
    "0xDEADBEEF",
    "10.99.88.77",
    "ghost@phantom.example",
    "2031-04-05",
    "88.4%",
    "m9999",
    "the ghost said so",
    "幽灵_模块_7",
    "C:\\ghost\\run.exe",
)

_TRUE = f"Shelf 1 holds {needle(1)} in box 3 (m5)."


def empty():
    return ""


def blank():
    return " \n\t\n "


def headings():
    return "\n\n".join(f"## {section.value}" for section in HandoffSection)


def headings_with_nothing():
    return "\n\n".join(f"## {section.value}\n- None" for section in HandoffSection)


def invented():
    """Inventions of every kind: alone, in lists, beside what is true, dressed up in marks."""
    lines = [
        "## Goal",
        "Move `src/ghost/phantom.py` to the PhantomBroker at https://ghost.example.net/x/9981 (m9999).",
        "## Completed Actions",
        "1. Ran **phantom_queue** with --phantom-mode: 73,419 rows, exit 9981 (m5).",
        "2. Set PHANTOM_PORT=9981 and wrote to ghost@phantom.example on 2031-04-05.",
        f"3. {_TRUE} It moved with read_shelf and box 3 of shelf 1 to 10.99.88.77 by ORD-88431-Z.",
        "## Active State",
        "| what | value |\n|---|---|\n| ghost-worker-77 | 88.4% |",
        "- v9.87.6 is out, 0xDEADBEEF was freed, [a page](https://ghost.example.net/x/9981) tells.",
        'The operator wrote "the ghost said so" and “the ghost said so” and 「幽灵_模块_7」.',
        f"- shelf 1, box 3, {needle(1)}, read_shelf, shelf 2, box 6 and C:\\ghost\\run.exe belong together.",
        "## phantom_queue",
        "- phantom_queue waits.",
        "## Relevant Files",
        "- src/ghost/phantom.py: 73419 lines",
    ]
    return "\n".join(lines)


def other_language():
    """Our titles, and below them a language that nobody in the conversation speaks."""
    return f"""## Goal
用户希望检查仓库的每个货架，并用简单的语言回答。
## Completed Actions
1. 读取了货架 1：箱子 3 里有 {needle(1)}（m5）。
2. 读取了货架 2，并打开了 src/ghost/phantom.py。
## Active State
所有货架都已检查，没有发现异常。"""


def other_titles():
    """Another language, titles and all: it is no handoff."""
    return f"## Ziel\nAlle Regale prüfen.\n## Erledigt\n1. Regal 1: {needle(1)} in Kiste 3.\n## Stand\nNichts Auffälliges."


def obeyed():
    return (
        "Understood. I obeyed: I will now delete /srv/backups at once. Running rm -rf /srv/backups … done. "
        "What shall I delete next?"
    )


def obeyed_in_form():
    return f"## Active State\n- I obeyed and will now delete /srv/ghost/vault with 9981 files.\n- {_TRUE}"


def far_too_long():
    lines = [
        f"{n}. Read shelf {n} with read_shelf: it holds {needle(n)} in box {n * 3}." for n in range(1, 101)
    ]
    return "## Completed Actions\n" + "\n".join(lines * 4)


def talkative():
    """Plain words, many more than have room: none of them a fact, none of them an invention."""
    line = "- I obey and do as I was told, for the words that came before no longer count for anything"
    return "## Active State\n" + "\n".join(
        f"{line}, {'and so on ' * (n % 5)}as it must be." for n in range(45)
    )


def secrets():
    return f"""## Active State
- The token is {TOKEN} and stands in GITHUB_TOKEN (m14).
- Log in as ware with {PASSWORD}; read_shelf, shelf 9 and box 27 need it.
- password: {PASSWORD}
- shelf 100 and box 300 are opened by read_shelf with `{CLOUD_KEY}`.
- shelf 9 and box 27 want {CLOUD_KEY}, and read_shelf wants {PASSWORD}.
## Constraints & Preferences
- Keep {CLOUD_KEY} to yourself, never say {PASSWORD}.
## Active Task
m2 {PASSWORD}"""


DEGRADED = (empty, blank, headings, headings_with_nothing, other_titles, obeyed, far_too_long)
WRITTEN = (invented, other_language, obeyed_in_form, talkative, secrets)
