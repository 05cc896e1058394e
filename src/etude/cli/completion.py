"""What the shell completes for a recipe, and for a path."""

from __future__ import annotations

from pathlib import Path


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes that come with Etude, and TOML files of the folder that is being typed."""
    from etude.pipeline.recipe.read import shipped_folders

    shipped = {file.stem for folder in shipped_folders() for file in folder.glob("*.toml")}
    return sorted({*(name for name in shipped if name.startswith(incomplete)), *paths(incomplete, ".toml")})


def paths(incomplete: str, suffix: str | None) -> list[str]:
    """Folders, with a slash, and files with the suffix that begin as typed. Hidden ones only after a dot."""
    head, _, start = incomplete.rpartition("/")
    folder = Path(head or ("/" if incomplete.startswith("/") else "."))
    if not folder.is_dir():
        return []
    prefix = f"{head}/" if "/" in incomplete else ""
    found = []
    for path in folder.iterdir():
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            if path.is_dir():
                found.append(f"{prefix}{path.name}/")
            elif suffix is not None and path.suffix == suffix:
                found.append(f"{prefix}{path.name}")
    return found
