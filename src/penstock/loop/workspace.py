"""The working folder: commands start in it, and file tools cannot leave it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.errors import ToolFailure

__all__ = ["Workspace"]


class Workspace(msgspec.Struct, frozen=True):
    """A folder and everything below it. `root` is its real path, free of links."""

    root: Path

    def __post_init__(self) -> None:
        if self.root != self.root.resolve():
            raise ValueError(f"{self.root} is not a real path; use Workspace.at")

    @classmethod
    def at(cls, folder: str | Path) -> Workspace:
        """Returns the working folder with this path. Raises NotADirectoryError if there is no such folder."""
        root = Path(folder).resolve()
        if not root.is_dir():
            raise NotADirectoryError(f"{root} is not a folder")
        return cls(root)

    def resolve(self, text: str) -> Path:
        """Returns the real path for a path from the model, absolute or relative to the root, with every link followed.

        Raises ToolFailure for one that leads out of the folder, also through a link or `..`, and for anything that is not a path.
        """
        if not text or "\0" in text:
            raise ToolFailure(
                "the path is empty or contains a null character; give a path such as src/main.py"
            )
        if text == "~" or text.startswith("~/"):
            raise ToolFailure(f"{text} is in the home folder; {self._limits()}")
        try:
            path = (self.root / text).resolve()
            str(path).encode()
        except UnicodeEncodeError:
            raise ToolFailure("the path is not UTF-8; use terminal for such a file") from None
        except (RuntimeError, OSError) as error:  # a circle of links, a name that is too long
            raise ToolFailure(f"{text} cannot be followed: {error}") from None
        if not path.is_relative_to(self.root):
            raise ToolFailure(f"{text} is outside the working folder; {self._limits()}")
        return path

    def relative_name(self, path: Path) -> str:
        """Returns the path relative to the root, as the model and people see it."""
        return path.relative_to(self.root).as_posix()

    def _limits(self) -> str:
        return f"file tools work in {self.root} and below; give paths relative to it, such as src/main.py"
